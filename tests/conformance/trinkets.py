"""CustomResourceDefinitions that a single test installs, changes and deletes."""

from __future__ import annotations

from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from dlop.kube.types import JsonObject
from tests.conformance.bodies import crd, crd_version
from tests.conformance.crds import OPEN_SCHEMA
from tests.conformance.support import Api


def trinkets(group: str, *, namespaced: bool = True) -> Resource:
    """A resource in a group of its own, so that tests do not interfere."""
    return Resource(f"{group}.install.dlop.dev", "v1", "trinkets", "Trinket", namespaced=namespaced)


async def install_trinkets(api: Api, resource: Resource) -> JsonObject:
    """Create the CRD, wait until its resource is served, and return it."""
    definition = crd(resource, crd_version("v1", OPEN_SCHEMA))
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
    await api.wait_until_served(definition)
    return await api.get(CUSTOM_RESOURCE_DEFINITIONS, resource.qualified_name)


def crd_conditions(definition: JsonObject) -> dict[str, str]:
    """Status of each condition by type."""
    return {condition["type"]: condition["status"] for condition in definition.get("status", {}).get("conditions") or []}
