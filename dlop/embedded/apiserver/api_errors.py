"""The refusals of the API server: each in the words, with the code, reason and details of the real one."""

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
    """Why a field is wrong: the `reason` of a cause."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    DUPLICATE = "FieldValueDuplicate"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    NOT_FOUND = "FieldValueNotFound"


_WORDS = {
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
"""The value of a field error that does not show its value, as the real server does for rules on whole objects and lists."""


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: its path, why, its value and a sentence."""

    type: FieldErrorType
    path: str
    detail: str = ""
    value: Any = None

    @property
    def message(self) -> str:
        """The words of a cause: `Invalid value: 3: must be …`."""
        parts: list[str] = [_WORDS[self.type]]
        if self.type not in _WITHOUT_VALUE and self.value is not OMITTED:
            parts.append(_shown(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


def go_number(value: float) -> str:
    """A float as Go prints it: with an exponent from a million on."""
    number = float(value)
    exponent = int(f"{number:e}".split("e")[1])
    if -4 <= exponent < 6:
        return repr(number).removesuffix(".0")
    sign, digits, _ = Decimal(repr(number)).normalize().as_tuple()
    rest = "".join(map(str, digits[1:]))
    return f"{'-' if sign else ''}{digits[0]}{'.' if rest else ''}{rest}e{exponent:+03d}"


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, float):
        return go_number(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def not_found(resource: Resource, name: str) -> NotFoundError:
    """404: no object of that name."""
    return NotFoundError(_failure(NotFoundError, f'{resource.qualified_name} "{name}" not found', _about(resource.plural, resource, name)))


def no_such_path() -> NotFoundError:
    """404: no such resource or page."""
    return NotFoundError(_failure(NotFoundError, "the server could not find the requested resource", {}))


def already_exists(resource: Resource, name: str, *, marked: bool = False) -> AlreadyExistsError:
    """409: an object of that name is there, `marked` for deletion or not."""
    message = f'{"object is being deleted: " if marked else ""}{resource.qualified_name} "{name}" already exists'
    return AlreadyExistsError(_failure(AlreadyExistsError, message, _about(resource.plural, resource, name)))


def forbidden(resource: Resource, name: str, why: str, *, cause: JsonObject | None = None) -> ForbiddenError:
    """403: not now, or not by you; `cause` says it to machines."""
    about = _about(resource.plural, resource, name)
    details = about if cause is None else {**about, "causes": [cause]}
    shown = f'{resource.qualified_name} "{name}"' if name else resource.qualified_name
    return ForbiddenError(_failure(ForbiddenError, f"{shown} is forbidden: {why}", details))


def version_conflict(resource: Resource, name: str) -> ConflictError:
    """409: the object is no longer the version that the caller has read."""
    return conflict(resource, name, "the object has been modified; please apply your changes to the latest version and try again")


def conflict(resource: Resource, name: str, why: str) -> ConflictError:
    """409: the object is not as the caller thinks."""
    message = f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {why}'
    return ConflictError(_failure(ConflictError, message, _about(resource.plural, resource, name)))


def invalid(resource: Resource, name: str, errors: Sequence[FieldError]) -> InvalidError:
    """422: the named fields are wrong."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    listed = [f"{error.path}: {error.message}" for error in errors]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    details = _about(resource.kind, resource, name)
    details["causes"] = [{"reason": str(error.type), "message": error.message, "field": error.path} for error in errors]
    return InvalidError(_failure(InvalidError, f'{kind} "{name}" is invalid: {text}', details))


def bad_request(message: str) -> BadRequestError:
    """400: the request makes no sense."""
    return BadRequestError(_failure(BadRequestError, message, None))


def method_not_allowed(resource: Resource, verb: str) -> MethodNotAllowedError:
    """405: the resource does not have the verb."""
    message = f"{verb} is not supported on resources of kind {json.dumps(resource.qualified_name)}"
    return MethodNotAllowedError(_failure(MethodNotAllowedError, message, {"group": resource.group or None, "kind": resource.plural}))


def expired(message: str) -> GoneError:
    """410: the version is no longer held."""
    return GoneError(_failure(GoneError, message, None))


def unsupported_media_type(message: str) -> UnsupportedMediaTypeError:
    """415: the body is in no form that is taken here."""
    return UnsupportedMediaTypeError(_failure(UnsupportedMediaTypeError, message, None))


def invalid_options(kind: str, errors: Sequence[FieldError]) -> InvalidError:
    """422: the options of a request are wrong; `kind` is e.g. `CreateOptions`."""
    return invalid(Resource("meta.k8s.io", "v1", kind.lower(), kind), "", errors)


def method_not_allowed_here() -> MethodNotAllowedError:
    """405: the path is known, the method is not."""
    return MethodNotAllowedError(_failure(MethodNotAllowedError, "the server does not allow this method on the requested resource", {}))


def version_too_large(asked: int, current: int) -> StatusError:
    """504: the server has not seen that version yet; it may soon."""
    status = _failure(ServerError, f"Timeout: Too large resource version: {asked}, current: {current}", None)
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ServerError(
        {**status, "reason": "Timeout", "details": {"causes": [cause], "retryAfterSeconds": 1}, "code": 504}, retry_after_seconds=1
    )


def unreasoned(message: str) -> ServerError:
    """500 without a reason: what the real server says when a value gets as far as its storage and is refused there."""
    status = _failure(ServerError, message, None)
    del status["reason"]
    return ServerError(status)


def internal_error(why: str) -> ServerError:
    """500: something that should not be is."""
    return ServerError(_failure(ServerError, f"Internal error occurred: {why}", {"causes": [{"message": why}]}))


def failure(kind: type[StatusError], message: str, details: JsonObject | None = None) -> StatusError:
    """Any other refusal."""
    return kind(_failure(kind, message, details))


def _about(kind: str, resource: Resource, name: str) -> JsonObject:
    details: JsonObject = {"name": name, "group": resource.group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def _failure(kind: type[StatusError], message: str, details: JsonObject | None) -> JsonObject:
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
