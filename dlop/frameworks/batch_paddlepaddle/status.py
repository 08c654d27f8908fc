"""The status of a PaddleJob: its phase, its mode and the pods of each role, beside the common conditions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from dlop import JsonObject, Outcome, Phase, ReplicaProgress, ReplicaState, RoleProgress
from dlop.policies import Status, format_selector

if TYPE_CHECKING:
    from dlop.frameworks.batch_paddlepaddle.paddlejob import PaddleJob

_PHASES = {
    Phase.CREATED: "Pending",
    Phase.RUNNING: "Running",
    Phase.RESTARTING: "Restarting",
    Phase.SUSPENDED: "Suspended",
    Phase.SUCCEEDED: "Completed",
    Phase.FAILED: "Failed",
    Phase.INVALID: "Failed",
}
_FINISHED = {"Completed": Phase.SUCCEEDED, "Failed": Phase.FAILED}
_COUNTS = {ReplicaState.SUCCEEDED: "succeeded", ReplicaState.FAILED: "failed", ReplicaState.RESTARTING: "failed"}
_MAX_REFS = 500
"""Number of pods per role that the status lists, so that the status of a large job stays small."""


class PaddleStatus(Status["PaddleJob"]):
    """The keys of the old operator, and the common conditions."""

    def read_phase(self, stored: JsonObject) -> Phase | None:
        """The old operator wrote no conditions."""
        return super().read_phase(stored) or _FINISHED.get(stored.get("phase", ""))

    def write(self, job: PaddleJob, outcome: Outcome) -> JsonObject:
        common = super().write(job, outcome)
        roles = {role.spec.name: _role_status(job, role) for role in outcome.progress.roles}
        is_starting = any(status.get("starting") or status.get("running") for status in roles.values())
        phase = "Starting" if outcome.phase is Phase.CREATED and is_starting else _PHASES[outcome.phase]
        own = {"phase": phase, "mode": job.mode, **roles, "observedGeneration": job.metadata.generation}
        return {**{name: value for name, value in common.items() if name != "replicaStatuses"}, **own}


def _role_status(job: PaddleJob, role: RoleProgress) -> JsonObject:
    counts: JsonObject = dict(Counter(_count_name(replica) for replica in role.replicas))
    pods = [replica.pod for replica in role.replicas[:_MAX_REFS] if replica.pod is not None]
    refs = [{"kind": "Pod", "namespace": job.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid} for pod in pods]
    return {
        **counts,
        "replicas": len(role.replicas),
        "selector": format_selector(job.naming.role_labels(job, role.spec)),
        **({"refs": refs} if refs else {}),
    }


def _count_name(replica: ReplicaProgress) -> str:
    """A pod runs once all its containers are ready."""
    if replica.state is ReplicaState.RUNNING and replica.pod is not None:
        is_ready = all(container.ready for container in replica.pod.status.container_statuses)
        return "running" if is_ready else "starting"
    if replica.pod is not None and replica.pod.status.phase == "Unknown":
        return "unknown"
    return _COUNTS.get(replica.state, "pending")
