"""Common parts of the built-in types: strategy, table columns and field errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.core.go_decoder import decode
from dlop.embedded.apiserver.core.go_types import merge_schema, openapi_schema
from dlop.embedded.apiserver.resource_type import ResourceType, Strategy, TableColumn, Timestamp
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")


class BuiltinStrategy(Strategy):
    """Strategy of a built-in type. `go_type` is its Go struct, for example `core.v1.Pod`."""

    def __init__(self, go_type: str) -> None:
        self.go_type = go_type

    def prune_unknown_fields(self, body: JsonObject) -> tuple[JsonObject, list[str]]:
        return decode(self.go_type, body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        """Validation that applies to all built-in types; `old` is None on create."""
        finalizers = body["metadata"].get("finalizers") or ()
        return finalizer_errors(finalizers, *(f"metadata.finalizers[{index}]" for index in range(len(finalizers))))


def builtin_type(resource: Resource, go_type: str, *, strategy: Strategy | None = None, **more: Any) -> ResourceType:
    """A built-in resource. `more` are further fields of `ResourceType`."""
    return ResourceType(
        resource=resource,
        storage=more.pop("storage", resource.qualified_name),
        singular=resource.kind.lower(),
        strategy=strategy or BuiltinStrategy(go_type),
        merge_schema=merge_schema(go_type),
        schema=openapi_schema(go_type),
        **more,
    )


def columns(*middle: TableColumn, after_age: Sequence[TableColumn] = ()) -> tuple[TableColumn, ...]:
    """The columns Name, `middle`, Age and `after_age`."""
    return (NAME, *middle, AGE, *after_age)


def column(name: str, cell: Callable[[JsonObject], Any], *, type: str = "string", priority: int = 0) -> TableColumn:
    """A column whose cells do not depend on the current time."""
    return TableColumn(name=name, type=type, priority=priority, cell=lambda body, _: cell(body))


def _age_of(body: JsonObject, now: Timestamp) -> str:
    return age(body["metadata"].get("creationTimestamp"), now)


NAME = TableColumn(name="Name", format="name", cell=lambda body, _: body["metadata"].get("name", ""))
AGE = TableColumn(name="Age", cell=_age_of)


def get_nested(body: Mapping[str, Any] | None, *path: str) -> Any:
    """The value at a path; None if any part of it is missing."""
    value: Any = body
    for part in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def with_defaults(values: JsonObject | None, **defaults: Any) -> JsonObject:
    """A copy with defaults for absent keys."""
    return {**defaults, **(values or {})}


def format_labels(labels: Mapping[str, str] | None) -> str:
    """Labels or a selector for a table cell."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(FieldErrorType.REQUIRED, path, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(FieldErrorType.INVALID, path, detail, value)


def forbidden(path: str, detail: str) -> FieldError:
    """The field must not be set or changed."""
    return FieldError(FieldErrorType.FORBIDDEN, path, detail)


def enum_errors(path: str, value: Any, supported: Sequence[str]) -> list[FieldError]:
    """An error unless the value is one of the supported ones."""
    if value in supported:
        return []
    quoted = ", ".join(f'"{option}"' for option in supported)
    return [FieldError(FieldErrorType.NOT_SUPPORTED, path, f"supported values: {quoted}", value)]


def finalizer_errors(finalizers: Sequence[str], *paths: str) -> list[FieldError]:
    """Errors for unqualified names other than the standard finalizers. `paths` has one path per finalizer, or one for all."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    names_and_paths = zip(finalizers, cycle(paths), strict=False)
    return [invalid(path, name, detail) for name, path in names_and_paths if "/" not in name and name not in _STANDARD_FINALIZERS]
