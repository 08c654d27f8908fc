"""Tables and metadata-only answers: what `kubectl get` prints is decided here, by the server, as on a real cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.resource_type import Column, Moment, ResourceType
from dlop.embedded.apiserver.views.jsonpath import JsonPath
from dlop.kube.types import JsonObject

_META = "meta.k8s.io/v1"
_NAME_WORDS = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request "
    "the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration "
    "definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_CREATED_WORDS = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in "
    "happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\n"
    "Populated by the system. Read-only. Null for lists. "
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


def name_column() -> Column:
    """The first column of every table."""
    return Column(name="Name", format="name", description=_NAME_WORDS, cell=lambda body, _: body["metadata"].get("name", ""))


def custom_columns(definitions: Sequence[JsonObject]) -> tuple[Column, ...]:
    """The columns of a custom resource: its name and what the CRD asks for; by default its age."""
    age_column = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": _CREATED_WORDS}
    return (name_column(), *(_custom_column(definition) for definition in definitions or (age_column,)))


def _custom_column(definition: JsonObject) -> Column:
    kind, path = definition["type"], JsonPath(definition["jsonPath"])

    def cell(body: JsonObject, moment: Moment) -> Any:
        found = path.find(body)
        return _shown(kind, found[0], moment) if found else None

    return Column(
        name=definition["name"],
        type=kind,
        format=definition.get("format", ""),
        description=definition.get("description") or f"Custom resource definition column (in JSONPath format): {definition['jsonPath']}",
        priority=definition.get("priority", 0),
        cell=cell,
    )


def _shown(kind: str, value: Any, moment: Moment) -> Any:
    """A value as a cell of a type; what does not fit the type is not shown."""
    match kind, value:
        case _, None:
            return None
        case "string", _:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "date", str():
            return age(value, moment)
        case "boolean", bool():
            return value
        case "integer" | "number", int() | float() if not isinstance(value, bool):
            return int(value) if kind == "integer" else value
        case _:
            return None


_BARE_COLUMNS = (
    name_column(),
    Column(name="Age", description=_CREATED_WORDS, cell=lambda body, moment: age(body["metadata"].get("creationTimestamp"), moment)),
)


def table(
    type: ResourceType,
    items: Sequence[JsonObject],
    *,
    moment: Moment,
    list_metadata: Mapping[str, Any],
    include_object: str = "Metadata",
    with_headers: bool = True,
) -> JsonObject:
    """A Table of some objects; `include_object` (None, Metadata, Object) says what each row carries besides its cells."""
    columns = type.columns or _BARE_COLUMNS
    rows = [{"cells": [column.cell(item, moment) for column in columns], "object": _row_object(item, include_object)} for item in items]
    return {
        "kind": "Table",
        "apiVersion": _META,
        "metadata": dict(list_metadata),
        "columnDefinitions": [_definition(column) for column in columns] if with_headers else None,
        "rows": rows,
    }


def _definition(column: Column) -> JsonObject:
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
    """An object of which only the metadata is shown."""
    return {"kind": "PartialObjectMetadata", "apiVersion": _META, "metadata": body["metadata"]}


def partial_metadata_list(items: Sequence[JsonObject], *, list_metadata: Mapping[str, Any]) -> JsonObject:
    """A list of objects of which only the metadata is shown."""
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": _META,
        "metadata": dict(list_metadata),
        "items": [partial_metadata(item) for item in items],
    }
