"""Tables as the server makes them for kubectl."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.age import human_duration, parse_time
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.views.table_printer import custom_columns, partial_metadata, partial_metadata_list, table
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_NOW = Moment(parse_time("2024-01-01T00:10:00Z"))
_BODY: JsonObject = {
    "apiVersion": "example.org/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "creationTimestamp": "2024-01-01T00:00:00Z"},
    "spec": {"replicas": 3, "names": ["a", "b"], "on": True},
    "status": {"when": "2024-01-01T00:09:30Z", "ratio": 2},
}


def widgets(*columns: JsonObject) -> ResourceType:
    resource = Resource("example.org", "v1", "widgets", "Widget")
    return ResourceType(resource=resource, storage=resource.qualified_name, singular="widget", columns=custom_columns(columns))


def cells(*columns: JsonObject) -> list[Any]:
    made = table(widgets(*columns), [_BODY], moment=_NOW, list_metadata={})
    row: list[Any] = made["rows"][0]["cells"]
    return row


def column(kind: str, path: str, **more: Any) -> JsonObject:
    return {"name": "X", "type": kind, "jsonPath": path, **more}


def test_without_columns_a_custom_resource_shows_name_and_age() -> None:
    made = table(widgets(), [_BODY], moment=_NOW, list_metadata={"resourceVersion": "7"})
    assert made["metadata"] == {"resourceVersion": "7"}
    assert [(one["name"], one["type"], one["format"]) for one in made["columnDefinitions"]] == [
        ("Name", "string", "name"),
        ("Age", "date", ""),
    ]
    assert made["rows"] == [{"cells": ["w", "10m"], "object": partial_metadata(_BODY)}]


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
def test_a_cell_has_the_type_of_its_column_or_nothing(kind: str, path: str, cell: Any) -> None:
    assert cells(column(kind, path)) == ["w", cell]


def test_a_row_carries_as_much_of_the_object_as_is_asked_for() -> None:
    made = {
        how: table(widgets(), [_BODY], moment=_NOW, list_metadata={}, include_object=how)["rows"][0]["object"]
        for how in ("None", "Metadata", "Object")
    }
    assert made == {"None": None, "Metadata": partial_metadata(_BODY), "Object": _BODY}


def test_the_second_page_of_a_watch_has_no_headers() -> None:
    assert table(widgets(), [_BODY], moment=_NOW, list_metadata={}, with_headers=False)["columnDefinitions"] is None


def test_metadata_only_answers_show_nothing_but_metadata() -> None:
    made = partial_metadata_list([_BODY], list_metadata={"resourceVersion": "7"})
    assert made == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "7"},
        "items": [{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": _BODY["metadata"]}],
    }


@pytest.mark.parametrize(
    ("seconds", "shown"),
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
def test_ages_are_short_and_less_exact_the_longer_they_are(seconds: float, shown: str) -> None:
    assert human_duration(seconds) == shown
