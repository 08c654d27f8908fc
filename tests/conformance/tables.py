"""Reads resources in the Table representation that `kubectl get` uses."""

from __future__ import annotations

from typing import Any

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import object_of
from tests.conformance.crds import GAUGES
from tests.conformance.support import Api

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def get_table(api: Api, resource: Resource, name: str | None = None, **query: str) -> JsonObject:
    return await api.get_json(api.path(resource, name), accept=TABLE, **query)


def columns(table: JsonObject) -> list[tuple[str, str, int]]:
    """Name, type and priority of each column."""
    return [(column["name"], column["type"], column["priority"]) for column in table["columnDefinitions"]]


def rows(table: JsonObject) -> list[dict[str, Any]]:
    """The cells of each row by column name."""
    names = [column["name"] for column in table["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in table["rows"]]


async def create_gauge(api: Api) -> None:
    """Create the gauge `a` with a value in every printer column."""
    await api.create(GAUGES, object_of(GAUGES, "a", spec={"size": 3, "detail": "more"}))
    status = {"phase": "Fine", "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}
    await api.patch(GAUGES, "a", {"status": status}, subresource="status")
