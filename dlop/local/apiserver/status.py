"""The refusals of the API server: each in the words, with the code, reason and details of the real one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dlop.kube.errors import (
    AlreadyExistsError,
    BadRequestError,
    ConflictError,
    GoneError,
    InvalidError,
    JsonObject,
    MethodNotAllowedError,
    NotFoundError,
    StatusError,
    UnsupportedMediaTypeError,
)
from dlop.kube.resources import Resource


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
_WITHOUT_VALUE = {FieldErrorType.REQUIRED, FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG, FieldErrorType.TOO_MANY}


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
        if self.type not in _WITHOUT_VALUE:
            parts.append(_shown(self.value))
        if self.detail:
            parts.append(self.detail)
        return ": ".join(parts)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def not_found(resource: Resource, name: str) -> NotFoundError:
    """404: no object of that name."""
    return NotFoundError(_failure(NotFoundError, f'{resource.qualified_name} "{name}" not found', _about(resource.plural, resource, name)))


def no_such_path() -> NotFoundError:
    """404: no such resource or page."""
    return NotFoundError(_failure(NotFoundError, "the server could not find the requested resource", {}))


def already_exists(resource: Resource, name: str) -> AlreadyExistsError:
    """409: an object of that name is there."""
    message = f'{resource.qualified_name} "{name}" already exists'
    return AlreadyExistsError(_failure(AlreadyExistsError, message, _about(resource.plural, resource, name)))


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
