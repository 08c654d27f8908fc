"""Reads discovery documents."""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject
from tests.conformance.support import Api


async def list_api_resources(api: Api, path: str) -> dict[str, JsonObject]:
    """The resources of a group version by name."""
    return {resource["name"]: resource for resource in (await api.get_json(path))["resources"]}


def select_fields(resource: JsonObject, *names: str) -> dict[str, Any]:
    """Some fields of an API resource. Lists are sorted; missing fields are None."""
    return {name: sorted(resource[name]) if isinstance(resource.get(name), list) else resource.get(name) for name in names}
