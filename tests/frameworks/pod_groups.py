"""Minimal CRDs for the PodGroups of all schedulers, and access to PodGroups in the role of the scheduler."""

from __future__ import annotations

from typing import Any

from dlop.api.gang import KUBE_BATCH, VOLCANO, gang_api
from dlop.api.types import Options
from dlop.kube.client import Client, PatchType
from dlop.kube.errors import NotFoundError
from dlop.kube.types import JsonObject

PLUGINS = "scheduler-plugins-scheduler"
COSCHEDULER = "kube-coscheduler"
BY_VOLCANO = Options(gang_scheduler_name=VOLCANO)
BY_PLUGINS = Options(gang_scheduler_name=PLUGINS)
BY_KUBE_BATCH = Options(gang_scheduler_name=KUBE_BATCH)
BY_COSCHEDULER = Options(gang_scheduler_name=COSCHEDULER)

_QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_FIELDS: JsonObject = {
    "minResources": {"type": "object", "additionalProperties": _QUANTITY},
    "queue": {"type": "string"},
    "priorityClassName": {"type": "string"},
    "scheduleTimeoutSeconds": {"type": "integer"},
}
_STATUS = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def pod_group_crd(scheduler: str) -> JsonObject:
    """The CRD for PodGroups of a scheduler, with the fields that dlop writes. Unknown fields are pruned."""
    api = gang_api(scheduler)
    resource, fields = api.resource, {name: _FIELDS[name] for name in api.fields}
    spec = {"type": "object", "properties": {"minMember": {"type": "integer"}, **fields}}
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


# Required for API groups that end in k8s.io.
_APPROVED = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}


class PodGroups:
    """PodGroups of one scheduler in one namespace."""

    def __init__(self, client: Client, scheduler: str, *, namespace: str = "default") -> None:
        self._client = client
        self._namespace = namespace
        self.resource = gang_api(scheduler).resource

    async def get(self, name: str = "demo") -> JsonObject | None:
        try:
            return await self._client.get(self.resource, name, namespace=self._namespace)
        except NotFoundError:
            return None

    async def spec(self, name: str = "demo") -> JsonObject:
        pod_group = await self.get(name)
        assert pod_group is not None
        spec: JsonObject = pod_group["spec"]
        return spec

    async def set_phase(self, phase: str, name: str = "demo", **more: Any) -> None:
        """Write a status as the scheduler does."""
        body = {"status": {"phase": phase, **more}}
        await self._client.patch(self.resource, name, body, namespace=self._namespace, patch_type=PatchType.MERGE, subresource="status")

    async def create(self, body: JsonObject) -> JsonObject:
        manifest = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **body}
        return await self._client.create(self.resource, manifest, namespace=self._namespace)

    async def edit(self, body: JsonObject, name: str = "demo") -> None:
        await self._client.patch(self.resource, name, body, namespace=self._namespace, patch_type=PatchType.MERGE)
