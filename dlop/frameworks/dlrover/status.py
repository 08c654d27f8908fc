"""The status of an ElasticJob: its phase, the counts of its pods, and the conditions in `status.status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dlop import Blocked, JsonObject, Outcome, Phase, ReplicaState
from dlop.frameworks.dlrover.names import MASTER, NAME_LABEL, TYPE_LABEL
from dlop.policies import Status, format_selector

if TYPE_CHECKING:
    from dlop.frameworks.dlrover.elasticjob import ElasticJob

_PHASES = {
    Phase.CREATED: "Created",
    Phase.RUNNING: "Running",
    Phase.RESTARTING: "Running",
    Phase.SUSPENDED: "Suspended",
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.INVALID: "Failed",
}
_FINISHED = {"Succeeded": Phase.SUCCEEDED, "Failed": Phase.FAILED}
_COUNTS = {"Pending": "pending", "Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
_STATES = {
    ReplicaState.MISSING: "initial",
    ReplicaState.PENDING: "pending",
    ReplicaState.RUNNING: "active",
    ReplicaState.SUCCEEDED: "succeeded",
    ReplicaState.FAILED: "failed",
    ReplicaState.RESTARTING: "failed",
    ReplicaState.DISRUPTED: "failed",
}


class ElasticJobStatus(Status["ElasticJob"]):
    """The format of DLRover's operator. `status.conditions` has the conditions, too, for `kubectl wait`."""

    def read_phase(self, stored: JsonObject) -> Phase | None:
        """DLRover's operator wrote no conditions outside `status.status`."""
        return super().read_phase(stored) or _FINISHED.get(stored.get("phase", ""))

    def write(self, job: ElasticJob, outcome: Outcome) -> JsonObject:
        common = super().write(job, outcome)
        nested = {name: value for name, value in common.items() if name != "replicaStatuses"}
        phase = _phase(job, outcome)
        plan = {"scalePlan": job.member_record.plan} if phase == "Scaling" else {}
        return {
            "phase": phase,
            "conditions": common["conditions"],
            "status": {**nested, "replicaStatuses": dict(_replica_statuses(job, outcome))},
            **plan,
        }

    def write_blocked(self, job: ElasticJob, blocked: Blocked, *, now: float) -> JsonObject:
        status = super().write_blocked(job, blocked, now=now)
        return {**status, "status": {**(status.get("status") or {}), "conditions": status["conditions"]}}


def _phase(job: ElasticJob, outcome: Outcome) -> str:
    if job.is_paused and not outcome.phase.is_final:
        return "Suspended"
    master = outcome.progress.role(MASTER)
    if outcome.phase is Phase.CREATED and master is not None and master.count(ReplicaState.PENDING):
        return "Pending"
    return "Scaling" if outcome.phase is Phase.RUNNING and outcome.is_scaling else _PHASES[outcome.phase]


def _replica_statuses(job: ElasticJob, outcome: Outcome) -> Iterable[tuple[str, JsonObject]]:
    """Number of pods by role and state."""
    counts: dict[str, Counter[str]] = {}
    master = outcome.progress.role(MASTER)
    for replica in () if master is None else master.replicas:
        counts.setdefault(MASTER, Counter())[_STATES[replica.state]] += 1
    for member in outcome.members:
        counts.setdefault(member.member.role, Counter())[_COUNTS.get(member.pod.status.phase, "initial")] += 1
    for role in job.replica_types:
        if role.name in counts:
            labels = {NAME_LABEL: job.metadata.name, TYPE_LABEL: role.name}
            yield role.name, {**dict(sorted(counts[role.name].items())), "labelSelector": format_selector(labels)}
