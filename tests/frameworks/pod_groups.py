"""PodGroups as the tests know them: small definitions of both kinds, and a scheduler that does what it is told."""

from __future__ import annotations

from typing import Any

from dlop.api.gang import VOLCANO, group_resource
from dlop.api.types import Options
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS, Resource
from dlop.kube.types import JsonObject

PLUGINS = "scheduler-plugins-scheduler"
BY_VOLCANO = Options(gang_scheduler_name=VOLCANO)
BY_PLUGINS = Options(gang_scheduler_name=PLUGINS)

_AMOUNT = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_COMMON = {"minMember": {"type": "integer"}, "minResources": {"type": "object", "additionalProperties": _AMOUNT}}
_OWN: dict[Resource, JsonObject] = {
    VOLCANO_POD_GROUPS: {"queue": {"type": "string"}, "priorityClassName": {"type": "string"}},
    SCHEDULER_PLUGINS_POD_GROUPS: {"scheduleTimeoutSeconds": {"type": "integer"}},
}
_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(scheduler: str) -> JsonObject:
    """The definition of the groups that a scheduler knows, as far as it matters here. What it does not name is dropped."""
    resource = group_resource(scheduler)
    spec = {"type": "object", "properties": {**_COMMON, **_OWN[resource]}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": _STATUS}}},
    }
    names = {"plural": resource.plural, "singular": "podgroup", "kind": resource.kind, "listKind": "PodGroupList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified_name, "annotations": _APPROVED},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


# The server wants it for groups that end in k8s.io.
_APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}


class Groups:
    """The groups of one scheduler in one namespace."""

    def __init__(self, client: Client, scheduler: str, *, namespace: str = "default") -> None:
        self._client = client
        self._namespace = namespace
        self.resource = group_resource(scheduler)

    async def get(self, name: str = "demo") -> JsonObject | None:
        try:
            return await self._client.get(self.resource, name, namespace=self._namespace)
        except NotFoundError:
            return None

    async def spec(self, name: str = "demo") -> JsonObject:
        found = await self.get(name)
        assert found is not None
        spec: JsonObject = found["spec"]
        return spec

    async def say(self, phase: str, name: str = "demo", **more: Any) -> None:
        """What the scheduler writes about a group."""
        body = {"status": {"phase": phase, **more}}
        await self._client.patch(self.resource, name, body, namespace=self._namespace, patch_type=PatchType.MERGE, subresource="status")

    async def create(self, body: JsonObject) -> JsonObject:
        whole = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **body}
        return await self._client.create(self.resource, whole, namespace=self._namespace)

    async def edit(self, body: JsonObject, name: str = "demo") -> None:
        await self._client.patch(self.resource, name, body, namespace=self._namespace, patch_type=PatchType.MERGE)
