"""What Kueue does with a job of kubeflow.org, and what it reads of it: the moves of its integration, played by hand.

A job is born suspended. When it is admitted, one update changes the templates of its roles and lets it go on. When it has to
make room, another update suspends it, and the templates are put back as they were.
"""

from __future__ import annotations

import copy

from dlop.kube.client import PatchType
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.frameworks.server_stage import Stage

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def placed(flavor: str) -> JsonObject:
    """What Kueue puts into a template that is to run on machines of this flavor."""
    return {
        "metadata": {"labels": {"kueue.x-k8s.io/podset": "any"}, "annotations": {"kueue.x-k8s.io/workload": f"demo-{flavor}"}},
        "spec": {
            "nodeSelector": {"flavor": flavor},
            "tolerations": [{"key": flavor, "operator": "Exists", "effect": "NoSchedule"}],
            "schedulingGates": [{"name": f"kueue.x-k8s.io/{flavor}"}],
        },
    }


class Kueue:
    """Kueue, as far as one job is concerned."""

    def __init__(self, there: Stage, given: JsonObject) -> None:
        self._there = there
        self._field = there.kind.replica_specs_field
        self._roles: JsonObject = copy.deepcopy(given["spec"][self._field])
        self.opened: set[tuple[str, str]] = set()
        """The gates that were before pods."""

    async def admit(self, flavor: str) -> None:
        """Let the job run on machines of this flavor."""
        roles = {name: {"template": placed(flavor)} for name in self._roles}
        await self._there.edit({"spec": {"runPolicy": {"suspend": False}, self._field: roles}})

    async def stop(self) -> None:
        """Take the machines away, and put the templates back as the user wrote them."""
        await self._there.edit({"spec": {"runPolicy": {"suspend": True}}})
        nothing = {"metadata": None, "spec": {"nodeSelector": None, "tolerations": None, "schedulingGates": None}}
        await self._there.edit({"spec": {self._field: {name: {"template": nothing} for name in self._roles}}})

    async def run(self, pods: int) -> None:
        """Open the gate before each pod as it comes, and wait until so many run."""
        there = self._there

        async def all_run() -> bool:
            found = await there.pods()
            for name in [name for name, pod in found.items() if pod["spec"].get("schedulingGates")]:
                self.opened.add((name, found[name]["spec"]["schedulingGates"][0]["name"]))
                opened = {"spec": {"schedulingGates": None}}
                await there.client.patch(PODS, name, opened, namespace=there.namespace, patch_type=PatchType.MERGE)
            return [pod["status"].get("phase") for pod in found.values()] == ["Running"] * pods

        await there.until(all_run)

    async def is_active(self) -> bool:
        """Whether the job still has something on machines: Kueue gives them to others only when it has not."""
        counts = (await self._there.status()).get("replicaStatuses", {})
        return any(role.get("active", 0) for role in counts.values())

    async def is_ready(self) -> bool:
        """Whether the pods have come up: else Kueue takes the machines away after a while."""
        return (await self._there.condition("Running") or {}).get("status") == "True"

    async def verdict(self) -> tuple[str, str] | None:
        """How the job has ended, if it has: the first condition that says so, with its message."""
        conditions = (await self._there.status()).get("conditions", ())
        ended = (each for each in conditions if each["type"] in ("Succeeded", "Failed") and each["status"] == "True")
        return next(((each["type"], each["message"]) for each in ended), None)

    async def copy_status(self, status: JsonObject) -> None:
        """In the cluster where the user looks: tell how the job is doing in the one where it runs."""
        there = self._there
        await there.client.patch(
            there.resource, "demo", {"status": status}, namespace=there.namespace, patch_type=PatchType.MERGE, subresource="status"
        )
