"""Error responses of the API server, with the message, code, reason and details of kube-apiserver."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from dlop.kube.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    MethodNotAllowedError,
    NotFoundError,
    ServerError,
    StatusError,
    UnsupportedMediaTypeError,
)
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


class FieldErrorType(StrEnum):
    """The `reason` of a status cause."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    NOT_FOUND = "FieldValueNotFound"


_TITLES = {
    FieldErrorType.REQUIRED: "Required value",
    FieldErrorType.INVALID: "Invalid value",
    FieldErrorType.TYPE_INVALID: "Invalid value",
    FieldErrorType.NOT_SUPPORTED: "Unsupported value",
    FieldErrorType.FORBIDDEN: "Forbidden",
    FieldErrorType.DUPLICATE: "Duplicate value",
    FieldErrorType.TOO_LONG: "Too long",
    FieldErrorType.TOO_MANY: "Too many",
    FieldErrorType.NOT_FOUND: "Not found",
}
_WITHOUT_VALUE = {FieldErrorType.REQUIRED, FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG}

OMITTED = object()
"""The value of a field error that does not show it, as for validation rules on objects and lists."""


@dataclass(frozen=True, slots=True)
class FieldError:
    type: FieldErrorType
    path: str
    detail: str = ""
    value: Any = None

    @property
    def message(self) -> str:
        """The message of a status cause, such as `Invalid value: 3: must be …`."""
        parts: list[str] = [_TITLES[self.type]]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            parts.append(_format_value(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


def go_number(value: float) -> str:
    """A float as Go formats it, with an exponent from one million."""
    number = float(value)
    exponent = int(f"{number:e}".split("e")[1])
    if -4 <= exponent < 6:
        return repr(number).removesuffix(".0")
    sign, digits, _ = Decimal(repr(number)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:]))
    return f"{'-' if sign else ''}{digits[0]}{'.' if rest else ''}{rest}e{exponent:+03d}"


def _format_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return go_number(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def not_found(resource: Resource, name: str) -> NotFoundError:
    """404: the object does not exist."""
    return NotFoundError(
        _failure_status(NotFoundError, f'{resource.qualified_name} "{name}" not found', _details(resource.plural, resource, name))
    )


def no_such_path() -> NotFoundError:
    """404: the path does not exist."""
    return NotFoundError(_failure_status(NotFoundError, "the server could not find the requested resource", {}))


def already_exists(resource: Resource, name: str, *, terminating: bool = False) -> AlreadyExistsError:
    """409: an object of that name exists. `terminating` says that it is being deleted."""
    message = f'{"object is being deleted: " if terminating else ""}{resource.qualified_name} "{name}" already exists'
    return AlreadyExistsError(_failure_status(AlreadyExistsError, message, _details(resource.plural, resource, name)))


def forbidden(resource: Resource, name: str, reason: str, *, cause: JsonObject | None = None) -> ForbiddenError:
    """403: the request is forbidden. `cause` is an optional status cause."""
    subject_details = _details(resource.plural, resource, name)
    details = subject_details if cause is None else {**subject_details, "causes": [cause]}
    subject = f'{resource.qualified_name} "{name}"' if name else resource.qualified_name
    return ForbiddenError(_failure_status(ForbiddenError, f"{subject} is forbidden: {reason}", details))


def version_conflict(resource: Resource, name: str) -> ConflictError:
    """409: the object has changed since the caller read it."""
    return conflict(resource, name, "the object has been modified; please apply your changes to the latest version and try again")


def conflict(resource: Resource, name: str, reason: str) -> ConflictError:
    """409: a precondition of the request does not hold."""
    message = f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {reason}'
    return ConflictError(_failure_status(ConflictError, message, _details(resource.plural, resource, name)))


def invalid(resource: Resource, name: str, errors: Sequence[FieldError]) -> InvalidError:
    """422: fields of the object are invalid."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    messages = [f"{error.path}: {error.message}" for error in errors]
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    details = _details(resource.kind, resource, name)
    details["causes"] = [{"reason": str(error.type), "message": error.message, "field": error.path} for error in errors]
    return InvalidError(_failure_status(InvalidError, f'{kind} "{name}" is invalid: {text}', details))


def bad_request(message: str) -> BadRequestError:
    """400: the request is malformed."""
    return BadRequestError(_failure_status(BadRequestError, message, None))


def method_not_allowed(resource: Resource, verb: str) -> MethodNotAllowedError:
    """405: the resource does not support the verb."""
    message = f"{verb} is not supported on resources of kind {json.dumps(resource.qualified_name)}"
    return MethodNotAllowedError(
        _failure_status(MethodNotAllowedError, message, {"group": resource.group or None, "kind": resource.plural})
    )


def expired(message: str) -> GoneError:
    """410: the resource version is compacted."""
    return GoneError(_failure_status(GoneError, message, None))


def unsupported_media_type(message: str) -> UnsupportedMediaTypeError:
    """415: the media type of the body is not supported."""
    return UnsupportedMediaTypeError(_failure_status(UnsupportedMediaTypeError, message, None))


def invalid_options(kind: str, errors: Sequence[FieldError]) -> InvalidError:
    """422: the options of a request are invalid; `kind` is for example `CreateOptions`."""
    return invalid(Resource("meta.k8s.io", "v1", kind.lower(), kind), "", errors)


def method_not_allowed_here() -> MethodNotAllowedError:
    """405: the path exists, but not for this method."""
    return MethodNotAllowedError(
        _failure_status(MethodNotAllowedError, "the server does not allow this method on the requested resource", {})
    )


def version_too_large(requested: int, current: int) -> StatusError:
    """504: the server has not reached the resource version yet. The client may retry."""
    status = _failure_status(ServerError, f"Timeout: Too large resource version: {requested}, current: {current}", None)
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ServerError(
        {**status, "reason": "Timeout", "details": {"causes": [cause], "retryAfterSeconds": 1}, "code": 504}, retry_after_seconds=1
    )


def error_without_reason(message: str) -> ServerError:
    """500 without a reason: the response of kube-apiserver when its storage layer rejects a value."""
    status = _failure_status(ServerError, message, None)
    del status["reason"]
    return ServerError(status)


def internal_error(reason: str) -> ServerError:
    """500: an internal error."""
    return ServerError(_failure_status(ServerError, f"Internal error occurred: {reason}", {"causes": [{"message": reason}]}))


def status_error(kind: type[StatusError], message: str, details: JsonObject | None = None) -> StatusError:
    """Any other error."""
    return kind(_failure_status(kind, message, details))


def _details(kind: str, resource: Resource, name: str) -> JsonObject:
    details: JsonObject = {"name": name, "group": resource.group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _failure_status(kind: type[StatusError], message: str, details: JsonObject | None) -> JsonObject:
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": kind.reason,
        "code": kind.code,
    }
    if details is not None:
        status["details"] = {key: value for key, value in details.items() if value is not None}
    return status
