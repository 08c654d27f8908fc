"""Simulates Kueue: the updates that it makes and the fields that it reads.

`Kueue` is its integration with the jobs of kubeflow.org. A job is created suspended. On admission, one update changes the pod templates of
its roles and resumes it. On preemption, another update suspends it, and the pod templates are restored.

`PodKueue` is its integration with single pods, for jobs of other kinds. A pod is created with a scheduling gate and a finalizer. On
admission, an update removes the gate. On preemption, the pod is deleted. The finalizer of a pod that has ended is removed.
"""

from __future__ import annotations

import copy

from dlop.api.constants import QUEUE_LABEL
from dlop.kube.client import PatchType
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.frameworks.sandbox import Sandbox

_POD_GATE = {"name": "kueue.x-k8s.io/admission"}
_POD_FINALIZER = "kueue.x-k8s.io/managed"


def placement(flavor: str) -> JsonObject:
    """What Kueue adds to a pod template for a resource flavor."""
    return {
        "metadata": {"labels": {"kueue.x-k8s.io/podset": "any"}, "annotations": {"kueue.x-k8s.io/workload": f"demo-{flavor}"}},
        "spec": {
            "nodeSelector": {"flavor": flavor},
            "tolerations": [{"key": flavor, "operator": "Exists", "effect": "NoSchedule"}],
            "schedulingGates": [{"name": f"kueue.x-k8s.io/{flavor}"}],
        },
    }


class Kueue:
    """Kueue for one job."""

    def __init__(self, sandbox: Sandbox, manifest: JsonObject) -> None:
        self._sandbox = sandbox
        self._field = sandbox.kind.schema.field
        self._roles: JsonObject = copy.deepcopy(manifest["spec"][self._field])
        self.removed_gates: set[tuple[str, str]] = set()
        """Pod and name of each scheduling gate that was removed."""

    async def admit(self, flavor: str) -> None:
        """Admit the job with this resource flavor."""
        roles = {name: {"template": placement(flavor)} for name in self._roles}
        await self._sandbox.edit({"spec": {"runPolicy": {"suspend": False}, self._field: roles}})

    async def preempt(self) -> None:
        """Suspend the job and restore the pod templates of the user."""
        await self._sandbox.edit({"spec": {"runPolicy": {"suspend": True}}})
        removed = {"metadata": None, "spec": {"nodeSelector": None, "tolerations": None, "schedulingGates": None}}
        await self._sandbox.edit({"spec": {self._field: {name: {"template": removed} for name in self._roles}}})

    async def run(self, pods: int) -> None:
        """Remove the scheduling gates of new pods and wait until `pods` pods run."""
        sandbox = self._sandbox

        async def all_run() -> bool:
            existing = await sandbox.pods()
            for name in [name for name, pod in existing.items() if pod["spec"].get("schedulingGates")]:
                self.removed_gates.add((name, existing[name]["spec"]["schedulingGates"][0]["name"]))
                patch = {"spec": {"schedulingGates": None}}
                await sandbox.client.patch(PODS, name, patch, namespace=sandbox.namespace, patch_type=PatchType.MERGE)
            return [pod["status"].get("phase") for pod in existing.values()] == ["Running"] * pods

        await sandbox.until(all_run)

    async def is_active(self) -> bool:
        """Whether the job still has active pods. Until then Kueue keeps the quota reserved."""
        counts = (await self._sandbox.status()).get("replicaStatuses", {})
        return any(role.get("active", 0) for role in counts.values())

    async def is_ready(self) -> bool:
        """Whether all pods are ready. Otherwise Kueue evicts the workload after a timeout."""
        return (await self._sandbox.condition("Running") or {}).get("status") == "True"

    async def result(self) -> tuple[str, str] | None:
        """Type and message of the first true Succeeded or Failed condition."""
        conditions = (await self._sandbox.status()).get("conditions", ())
        finished = (each for each in conditions if each["type"] in ("Succeeded", "Failed") and each["status"] == "True")
        return next(((condition["type"], condition["message"]) for condition in finished), None)

    async def copy_status(self, status: JsonObject) -> None:
        """Copy the status from the worker cluster to the management cluster, as MultiKueue does."""
        sandbox = self._sandbox
        await sandbox.client.patch(
            sandbox.resource, "demo", {"status": status}, namespace=sandbox.namespace, patch_type=PatchType.MERGE, subresource="status"
        )


def queued_template(template: JsonObject, queue: str) -> JsonObject:
    """A pod template with the label of a queue, and with what Kueue's webhook adds to each pod on creation."""
    metadata = {"labels": {QUEUE_LABEL: queue, _POD_FINALIZER: "true"}, "finalizers": [_POD_FINALIZER]}
    return {**template, "metadata": metadata, "spec": {**template["spec"], "schedulingGates": [_POD_GATE]}}


class PodKueue:
    """Kueue for the pods of one job."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def waiting(self) -> list[str]:
        """Names of the pods that wait for admission."""
        pods = await self._sandbox.pods()
        return [name for name, pod in pods.items() if _POD_GATE in pod["spec"].get("schedulingGates", ())]

    async def admit(self) -> None:
        """Admit all pods that wait, and release them in the kubelet."""
        for name in await self.waiting():
            await self._patch(name, {"spec": {"schedulingGates": None}})
            self._sandbox.kubelet.release(f"{self._sandbox.namespace}/{name}")

    async def preempt(self, name: str) -> None:
        await self._sandbox.client.delete(PODS, name, namespace=self._sandbox.namespace)

    async def release(self) -> None:
        """Remove the finalizer of pods that have ended."""
        for name, pod in (await self._sandbox.pods()).items():
            has_ended = "deletionTimestamp" in pod["metadata"] or pod["status"].get("phase") in ("Succeeded", "Failed")
            if has_ended and _POD_FINALIZER in pod["metadata"].get("finalizers", ()):
                await self._patch(name, {"metadata": {"finalizers": None}})

    async def _patch(self, name: str, patch: JsonObject) -> None:
        await self._sandbox.client.patch(PODS, name, patch, namespace=self._sandbox.namespace, patch_type=PatchType.MERGE)
