"""The status of a TrainingJob: its phase, its reason and the decisions of the autoscaler, beside the common conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlop import JsonObject, Outcome, Phase, Reason, ReplicaProgress, ReplicaState, ScaleRecord
from dlop.frameworks.paddlepaddle.base import ParameterServerStatus, is_waiting_optional

if TYPE_CHECKING:
    from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob

RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"
_LIMIT_REASONS = {Reason.DEADLINE_EXCEEDED: "timeout!", RESTART_LIMIT_EXCEEDED: "Pserver reached to restart limit!"}
_MAX_NAMES = 20
"""Number of failed trainers that the reason names, so that the status of a large job stays small."""


class TrainingJobStatus(ParameterServerStatus["TrainingJob"]):
    """Adds the phases Scaling and Timeout, and `scale_records`."""

    def phase(self, job: TrainingJob, outcome: Outcome) -> str:
        if outcome.phase is Phase.FAILED and outcome.reason == Reason.DEADLINE_EXCEEDED:
            return "Timeout"
        return "Scaling" if is_scaling(outcome) else super().phase(job, outcome)

    def reason(self, job: TrainingJob, outcome: Outcome) -> str:
        if outcome.phase is Phase.FAILED and outcome.reason in _LIMIT_REASONS:
            return _LIMIT_REASONS[outcome.reason]
        if outcome.phase is Phase.FAILED and outcome.reason == Phase.FAILED:
            return _describe_failed_trainers(job, outcome)
        return "need scale" if is_scaling(outcome) and not outcome.blocked else super().reason(job, outcome)

    def write(self, job: TrainingJob, outcome: Outcome) -> JsonObject:
        status, records = super().write(job, outcome), outcome.record.scale_records
        return {**status, "scale_records": {"ScaleRecords": _scale_records(records)}} if records else status


def is_scaling(outcome: Outcome) -> bool:
    """Whether elastic trainers of a running job are still starting or leaving."""
    trainers = outcome.progress.role("trainer")
    if outcome.phase is not Phase.RUNNING or trainers is None or trainers.spec.elastic is None:
        return False
    return outcome.surplus_pods > 0 or any(is_waiting_optional(trainers, replica) for replica in trainers.replicas)


def _describe_failed_trainers(job: TrainingJob, outcome: Outcome) -> str:
    trainers = outcome.progress.role("trainer")
    if trainers is None or not trainers.count(ReplicaState.FAILED):
        return outcome.message
    if job.is_fault_tolerant:
        return "all trainer instances have failed"
    failed = [replica for replica in trainers.replicas if replica.state is ReplicaState.FAILED]
    names = [job.naming.pod_name(job, trainers.spec, replica.index) for replica in failed]
    return f"trainer instances {_join(names)} on {_join(_nodes(failed))} have failed"


def _nodes(replicas: Sequence[ReplicaProgress]) -> list[str]:
    return [replica.failure.node for replica in replicas if replica.failure is not None and replica.failure.node]


def _join(names: Sequence[str]) -> str:
    more = ["..."] if len(names) > _MAX_NAMES else []
    return f"[{' '.join([*names[:_MAX_NAMES], *more])}]"


def _scale_records(records: Sequence[ScaleRecord]) -> list[JsonObject]:
    return [{"scaleTimestamp": record.time, "additional": record.change, "status": "True", "reason": record.reason} for record in records]
