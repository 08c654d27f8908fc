"""Tables for `kubectl get`."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.age import human_duration, parse_time
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.views.table_printer import columns_from_crd, partial_metadata, partial_metadata_list, table
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_NOW = Timestamp(parse_time("2024-01-01T00:10:00Z"))
_BODY: JsonObject = {
    "apiVersion": "example.org/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "creationTimestamp": "2024-01-01T00:00:00Z"},
    "spec": {"replicas": 3, "names": ["a", "b"], "on": True},
    "status": {"when": "2024-01-01T00:09:30Z", "ratio": 2},
}


def widgets(*columns: JsonObject) -> ResourceType:
    resource = Resource("example.org", "v1", "widgets", "Widget")
    return ResourceType(resource=resource, storage=resource.qualified_name, singular="widget", columns=columns_from_crd(columns))


def cells(*columns: JsonObject) -> list[Any]:
    document = table(widgets(*columns), [_BODY], now=_NOW, list_metadata={})
    row: list[Any] = document["rows"][0]["cells"]
    return row


def column(kind: str, path: str, **more: Any) -> JsonObject:
    return {"name": "X", "type": kind, "jsonPath": path, **more}


def test_without_columns_a_custom_resource_shows_name_and_age() -> None:
    document = table(widgets(), [_BODY], now=_NOW, list_metadata={"resourceVersion": "7"})
    assert document["metadata"] == {"resourceVersion": "7"}
    assert [(column["name"], column["type"], column["format"]) for column in document["columnDefinitions"]] == [
        ("Name", "string", "name"),
        ("Age", "date", ""),
    ]
    assert document["rows"] == [{"cells": ["w", "10m"], "object": partial_metadata(_BODY)}]


@pytest.mark.parametrize(
    ("kind", "path", "cell"),
    [
        ("integer", ".spec.replicas", 3),
        ("string", ".spec.replicas", "3"),
        ("string", ".spec.names", '["a","b"]'),
        ("string", ".spec.names[*]", "a"),
        ("boolean", ".spec.on", True),
        ("string", ".spec.on", "true"),
        ("number", ".status.ratio", 2),
        ("date", ".status.when", "30s"),
        ("date", ".spec.names[0]", "<invalid>"),
        ("integer", ".spec.names[0]", None),
        ("string", ".spec.nothing", None),
    ],
)
def test_a_cell_has_the_type_of_its_column_or_is_null(kind: str, path: str, cell: Any) -> None:
    assert cells(column(kind, path)) == ["w", cell]


def test_include_object_selects_the_object_of_a_row() -> None:
    row_objects = {
        include: table(widgets(), [_BODY], now=_NOW, list_metadata={}, include_object=include)["rows"][0]["object"]
        for include in ("None", "Metadata", "Object")
    }
    assert row_objects == {"None": None, "Metadata": partial_metadata(_BODY), "Object": _BODY}


def test_later_tables_of_a_watch_have_no_column_definitions() -> None:
    assert table(widgets(), [_BODY], now=_NOW, list_metadata={}, with_headers=False)["columnDefinitions"] is None


def test_partial_metadata_contains_only_metadata() -> None:
    document = partial_metadata_list([_BODY], list_metadata={"resourceVersion": "7"})
    assert document == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": _BODY["metadata"]}],
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 120, "3h2m"),
        (8 * 3600 + 120, "8h"),
        (48 * 3600, "2d"),
        (49 * 3600, "2d1h"),
        (8 * 86400 + 3600, "8d"),
        (2 * 365 * 86400, "2y"),
        (2 * 365 * 86400 + 86400, "2y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_long_ages_are_less_precise(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text
