"""Why a job does not make progress. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlop.api.phase import Phase
from dlop.api.progress import ReplicaState
from dlop.api.record import Blocked
from dlop.api.start_order import StartWait
from dlop.jobs.lookup import JobHandle
from dlop.jobs.replicas import TERMINATING, ReplicaView
from dlop.policies.kueue import workload_ref

_MAX_NAMES = 4
_WAITING_STATES = (ReplicaState.PENDING, ReplicaState.RUNNING)
_CLAUSE_END = re.compile(r"; |\. |\n|\.$")


@dataclass(frozen=True, slots=True)
class PendingReason:
    """One reason why a job does not make progress. `str()` is the full text."""

    reason: str
    """CamelCase."""
    message: str
    pods: tuple[str, ...] = ()
    """The pods with this reason; empty if it concerns the whole job."""

    def __str__(self) -> str:
        if not self.pods:
            return self.message or self.reason
        message = f": {self.message}" if self.message and self.message != self.reason else ""
        return f"{_format_names(self.pods)}: {self.reason}{message}"

    @property
    def summary(self) -> str:
        """The reason and the first clause of the message."""
        clause = _CLAUSE_END.split(self.message.strip(), maxsplit=1)[0]
        return f"{self.reason}: {clause}" if self.reason and clause and clause != self.reason else self.reason or clause


def pending_reasons(
    job: JobHandle, replicas: Iterable[ReplicaView], *, spec_errors: str, start_waits: Iterable[StartWait] = ()
) -> Iterator[PendingReason]:
    """The most important reason first. Empty when the job makes progress or has finished."""
    phase, record = job.phase(), job.record()
    if job.metadata.deletion_timestamp is not None:
        finalizers = ", ".join(job.metadata.finalizers)
        yield PendingReason("Terminating", f"the job is being deleted{f'; waiting for the finalizers {finalizers}' if finalizers else ''}")
        return
    if phase is not None and phase.is_finished:
        return
    yield from _operator_reasons(job, phase)
    if phase in (None, Phase.SUSPENDED) or job.dl_job().managed_by_other:
        start_waits = ()
    if spec_errors:
        yield PendingReason("InvalidSpec", f"the spec is invalid: {spec_errors}")
        return
    pod_reasons = list(_pod_reasons(replicas))
    if record.blocked is not None and not _is_covered(record.blocked, pod_reasons):
        yield PendingReason(record.blocked.reason, record.blocked.message)
    if phase is Phase.SUSPENDED:
        yield suspension_reason(job)
    yield from pod_reasons
    yield from (PendingReason("WaitingForRole", str(wait)) for wait in start_waits)


def suspension_reason(job: JobHandle) -> PendingReason:
    """Why a job is suspended."""
    queue = job.record().queue
    if not queue:
        return PendingReason("Suspended", f"the job is suspended; `dlop resume {job.name}` resumes it")
    _, workload = workload_ref(job.dl_job())
    hint = f"`kubectl describe workload {workload}` shows what Kueue has decided"
    return PendingReason("Queued", f"the job waits in the queue {queue}; {hint}")


def _is_covered(blocked: Blocked, pod_reasons: Iterable[PendingReason]) -> bool:
    """Whether the Blocked condition repeats the reason of one of the pods."""
    return any(each.reason in blocked.message and blocked.object in (f"pod {pod}" for pod in each.pods) for each in pod_reasons)


def _operator_reasons(job: JobHandle, phase: Phase | None) -> Iterator[PendingReason]:
    if job.dl_job().managed_by_other:
        yield PendingReason("ManagedByOther", "spec.runPolicy.managedBy names another controller, so dlop does not reconcile the job")
    elif phase is None:
        yield PendingReason(
            "NotReconciled",
            "no operator has reconciled the job yet; check that one is running (`dlop run` or `dlop deploy`) "
            "and watches this namespace and kind",
        )
    elif 0 < job.record().observed_generation < job.metadata.generation:
        yield PendingReason("SpecNotObserved", "the operator has not observed the latest spec yet")


def _pod_reasons(replicas: Iterable[ReplicaView]) -> Iterator[PendingReason]:
    """Pods that do not run, grouped by reason and message."""
    groups: dict[tuple[str, str], list[str]] = {}
    terminating: list[str] = []
    for replica in replicas:
        if replica.state == TERMINATING:
            terminating.append(replica.pod)
        elif replica.state in _WAITING_STATES and _is_stuck(replica):
            groups.setdefault((replica.reason, replica.message), []).append(replica.pod)
    for (reason, message), pods in groups.items():
        yield PendingReason(reason, message, tuple(pods))
    if terminating:
        yield PendingReason(TERMINATING, "deletion has not completed", tuple(terminating))


def _is_stuck(replica: ReplicaView) -> bool:
    # A running pod has a reason only while its container is in back-off.
    return bool(replica.reason) and (replica.state == ReplicaState.PENDING or replica.reason.endswith("BackOff"))


def _format_names(pods: Sequence[str]) -> str:
    shown, more = pods[:_MAX_NAMES], len(pods) - _MAX_NAMES
    return f"pod{'s' if len(pods) > 1 else ''} {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
