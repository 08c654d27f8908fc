"""Simulates Kueue for Workloads that the operator creates: minimal CRDs, and the decisions of Kueue.

Quota is a number of pods. Kueue reserves it in the order in which the Workloads were created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlop.kube.client import Client, PatchType
from dlop.kube.errors import AlreadyExistsError
from dlop.kube.resources import RESOURCE_FLAVORS, WORKLOAD_PRIORITY_CLASSES, WORKLOADS, Resource
from dlop.kube.types import JsonObject

_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Required for API groups that end in k8s.io.
_APPROVED = {"api-approved.kubernetes.io": "unapproved, a part of a test"}
_TIME = "2026-01-01T00:00:00Z"


def _crd(resource: Resource, properties: JsonObject, **version: Any) -> JsonObject:
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    versions = [{"name": resource.version, "served": True, "storage": True, "schema": schema, **version}]
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind, "listKind": f"{resource.kind}List"}
    scope = "Namespaced" if resource.namespaced else "Cluster"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified_name, "annotations": _APPROVED},
        "spec": {"group": resource.group, "scope": scope, "names": names, "versions": versions},
    }


_QUEUE_NAME = {"type": "string", "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
KUEUE_CRDS = (
    _crd(WORKLOADS, {"spec": {**_OPEN, "properties": {"queueName": _QUEUE_NAME}}, "status": _OPEN}, subresources={"status": {}}),
    _crd(RESOURCE_FLAVORS, {"spec": _OPEN}),
    _crd(WORKLOAD_PRIORITY_CLASSES, {"value": {"type": "integer"}}),
)


def flavor(name: str) -> JsonObject:
    """A ResourceFlavor with a node label and a toleration."""
    return {
        "apiVersion": RESOURCE_FLAVORS.api_version,
        "kind": RESOURCE_FLAVORS.kind,
        "metadata": {"name": name},
        "spec": {"nodeLabels": {"flavor": name}, "tolerations": [{"key": name, "operator": "Exists", "effect": "NoSchedule"}]},
    }


class WorkloadKueue:
    """Kueue in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def create_flavors(self, *names: str) -> None:
        for name in names:
            try:
                await self._client.create(RESOURCE_FLAVORS, flavor(name))
            except AlreadyExistsError:
                continue  # they are cluster-scoped

    async def workloads(self) -> list[JsonObject]:
        items: list[JsonObject] = (await self._client.list(WORKLOADS, namespace=self._namespace))["items"]
        return sorted(items, key=lambda item: item["metadata"]["creationTimestamp"])

    async def workload(self) -> JsonObject | None:
        """The only Workload."""
        workloads = await self.workloads()
        assert len(workloads) <= 1, [workload["metadata"]["name"] for workload in workloads]
        return workloads[0] if workloads else None

    async def conditions(self) -> dict[str, tuple[str, str]]:
        """Status and reason of the conditions of the only Workload, by type."""
        workload = await self.workload()
        conditions = [] if workload is None else workload.get("status", {}).get("conditions", ())
        return {each["type"]: (each["status"], each["reason"]) for each in conditions}

    async def holds_quota(self) -> bool:
        """Whether the only Workload holds quota."""
        workload = await self.workload()
        if workload is None or (await self.conditions()).get("Finished", ("", ""))[0] == "True":
            return False
        return "admission" in workload.get("status", {})

    async def admit(self, flavor: str, *, checks: Sequence[JsonObject] = ()) -> None:
        """Reserve quota for the only Workload, and admit it."""
        workload = await self.workload()
        assert workload is not None
        pod_sets = workload["spec"]["podSets"]
        assignments = [{"name": each["name"], "count": each["count"], "flavors": {"cpu": flavor}} for each in pod_sets]
        admission = {"clusterQueue": "all", "podSetAssignments": assignments}
        conditions = {"QuotaReserved": ("True", "QuotaReserved"), "Admitted": ("True", "Admitted"), "Evicted": ("False", "QuotaReserved")}
        await self._write(workload, {"admission": admission, "admissionChecks": list(checks)}, conditions)

    async def evict(self, reason: str = "Preempted") -> None:
        """Ask the operator to stop the job."""
        workload = await self.workload()
        assert workload is not None
        await self._write(workload, {}, {"Evicted": ("True", reason)})

    async def delete(self) -> None:
        workload = await self.workload()
        assert workload is not None
        await self._client.delete(WORKLOADS, workload["metadata"]["name"], namespace=self._namespace)

    async def _write(self, workload: JsonObject, status: JsonObject, conditions: Mapping[str, tuple[str, str]]) -> None:
        """Patch the status. The other conditions stay."""
        old = {each["type"]: each for each in workload.get("status", {}).get("conditions", ())}
        new = {
            type: {"type": type, "status": value, "reason": reason, "message": f"{reason} by Kueue", "lastTransitionTime": _TIME}
            for type, (value, reason) in conditions.items()
        }
        name, body = workload["metadata"]["name"], {"status": {**status, "conditions": [*{**old, **new}.values()]}}
        await self._client.patch(WORKLOADS, name, body, namespace=self._namespace, patch_type=PatchType.MERGE, subresource="status")
