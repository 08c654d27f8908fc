"""Tables, which `kubectl get` prints, and metadata-only objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.resource_type import ResourceType, TableColumn, Timestamp
from dlop.embedded.apiserver.views.jsonpath import JsonPath
from dlop.kube.types import JsonObject

_META = "meta.k8s.io/v1"
_NAME_DESCRIPTION = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request "
    "the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration "
    "definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_CREATED_DESCRIPTION = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in "
    "happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\n"
    "Populated by the system. Read-only. Null for lists. "
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


def name_column() -> TableColumn:
    return TableColumn(name="Name", format="name", description=_NAME_DESCRIPTION, cell=lambda body, _: body["metadata"].get("name", ""))


def columns_from_crd(definitions: Sequence[JsonObject]) -> tuple[TableColumn, ...]:
    """The columns of a custom resource: Name and the additionalPrinterColumns, by default Age."""
    age_column = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": _CREATED_DESCRIPTION}
    return (name_column(), *(_custom_column(definition) for definition in definitions or (age_column,)))


def _custom_column(definition: JsonObject) -> TableColumn:
    kind, path = definition["type"], JsonPath(definition["jsonPath"])

    def cell(body: JsonObject, now: Timestamp) -> Any:
        values = path.find(body)
        return _format_cell(kind, values[0], now) if values else None

    return TableColumn(
        name=definition["name"],
        type=kind,
        format=definition.get("format", ""),
        description=definition.get("description") or f"Custom resource definition column (in JSONPath format): {definition['jsonPath']}",
        priority=definition.get("priority", 0),
        cell=cell,
    )


def _format_cell(kind: str, value: Any, now: Timestamp) -> Any:
    """The cell of a value; None if the value does not have the column type."""
    match kind, value:
        case _, None:
            return None
        case "string", _:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "date", str():
            return age(value, now)
        case "boolean", bool():
            return value
        case "integer" | "number", int() | float() if not isinstance(value, bool):
            return int(value) if kind == "integer" else value
        case _:
            return None


_DEFAULT_COLUMNS = (
    name_column(),
    TableColumn(name="Age", description=_CREATED_DESCRIPTION, cell=lambda body, now: age(body["metadata"].get("creationTimestamp"), now)),
)


def table(
    type: ResourceType,
    items: Sequence[JsonObject],
    *,
    now: Timestamp,
    list_metadata: Mapping[str, Any],
    include_object: str = "Metadata",
    with_headers: bool = True,
) -> JsonObject:
    """A Table. `include_object` (None, Metadata or Object) selects the object in each row."""
    columns = type.columns or _DEFAULT_COLUMNS
    rows = [{"cells": [column.cell(item, now) for column in columns], "object": _row_object(item, include_object)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": dict(list_metadata),
        "columnDefinitions": [_definition(column) for column in columns] if with_headers else None,
        "rows": rows,
    }


def _definition(column: TableColumn) -> JsonObject:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _row_object(item: JsonObject, include_object: str) -> JsonObject | None:
    if include_object == "None":
        return None
    return item if include_object == "Object" else partial_metadata(item)


def partial_metadata(body: JsonObject) -> JsonObject:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": body["metadata"]}


def partial_metadata_list(items: Sequence[JsonObject], *, list_metadata: Mapping[str, Any]) -> JsonObject:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _META,
        "metadata": dict(list_metadata),
        "items": [partial_metadata(item) for item in items],
    }
