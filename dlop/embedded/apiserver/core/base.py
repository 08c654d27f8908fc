"""What all built-in types have in common: fields known by shape, a merge schema, and the frame of their tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.core.go_decoder import read
from dlop.embedded.apiserver.core.go_types import merge_schema, openapi
from dlop.embedded.apiserver.resource_type import Column, Moment, ResourceType, Rules
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


class BuiltinRules(Rules):
    """Rules of a type whose fields are known: `shape` names its struct, e.g. `core.v1.Pod`."""

    def __init__(self, shape: str) -> None:
        self.shape = shape

    def unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The body as the type keeps it, and the paths of what it does not have."""
        return read(self.shape, body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """What holds for all built-in types; `old` is None on create."""
        finalizers = body["metadata"].get("finalizers") or ()
        return finalizer_errors(finalizers, *(f"metadata.finalizers[{index}]" for index in range(len(finalizers))))


def builtin_type(resource: Resource, shape: str, *, rules: Rules | None = None, **more: Any) -> ResourceType:
    """A built-in resource; what is not given follows from its names and its shape."""
    return ResourceType(
        resource=resource,
        storage=more.pop("storage", resource.qualified_name),
        singular=resource.kind.lower(),
        rules=rules or BuiltinRules(shape),
        merge_schema=merge_schema(shape),
        schema=openapi(shape),
        **more,
    )


def columns(*middle: Column, after_age: Sequence[Column] = ()) -> tuple[Column, ...]:
    """Name, then the columns given, then Age, then those that come after it."""
    return (NAME, *middle, AGE, *after_age)


def column(name: str, cell: Callable[[JsonObject], Any], *, type: str = "string", priority: int = 0) -> Column:
    """A column whose cells do not depend on the time."""
    return Column(name=name, type=type, priority=priority, cell=lambda body, _: cell(body))


def _age_of(body: JsonObject, moment: Moment) -> str:
    return age(body["metadata"].get("creationTimestamp"), moment)


NAME = Column(name="Name", format="name", cell=lambda body, _: body["metadata"].get("name", ""))
AGE = Column(name="Age", cell=_age_of)


def dig(body: Mapping[str, Any] | None, *path: str) -> Any:
    """The value at a path, or None when any part of the way is missing."""
    value: Any = body
    for part in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def defaulted(values: JsonObject | None, **defaults: Any) -> JsonObject:
    """The object with what it does not say filled in."""
    return {**defaults, **(values or {})}


def labels_text(labels: Mapping[str, str] | None) -> str:
    """A selector as tables show it."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def required(path: str, detail: str = "") -> FieldError:
    """The field has to be there."""
    return FieldError(FieldErrorType.REQUIRED, path, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    """The field has a value that it cannot have."""
    return FieldError(FieldErrorType.INVALID, path, detail, value)


def forbidden(path: str, detail: str) -> FieldError:
    """The field must not be there, or not be changed."""
    return FieldError(FieldErrorType.FORBIDDEN, path, detail)


def not_one_of(path: str, value: Any, supported: Sequence[str]) -> list[FieldError]:
    """An error unless the value is in a closed set."""
    if value in supported:
        return []
    listed = ", ".join(f'"{each}"' for each in supported)
    return [FieldError(FieldErrorType.NOT_SUPPORTED, path, f"supported values: {listed}", value)]


def finalizer_errors(finalizers: Sequence[str], *paths: str) -> list[FieldError]:
    """Short names are kept for the server's own finalizers. `paths` names the field of each, or one field for all."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    named = zip(finalizers, cycle(paths), strict=False)
    return [invalid(path, name, detail) for name, path in named if "/" not in name and name not in _STANDARD_FINALIZERS]
