"""When time is up: for the whole job, and for pods that do not start. Every deadline is also a moment to look again."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import Reason
from dlop.api.phase import JobResult
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked
from dlop.kube.objects import Pod
from dlop.kube.timestamps import earliest, parse_time
from dlop.reconcile.backoff import lost_last
from dlop.reconcile.blocked import waiting_pods, why_waiting
from dlop.reconcile.context import ReconcileContext

_NOT_STARTED = (ReplicaState.MISSING, ReplicaState.PENDING)


def missed(case: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None) -> JobResult | None:
    """The end of a job whose time is up."""
    seconds = case.policy.active_deadline_seconds
    if seconds is not None and case.now >= started_at + seconds:
        message = f"the job was active longer than its deadline of {seconds} seconds"
        return JobResult(succeeded=False, reason=Reason.DEADLINE_EXCEEDED, message=message)
    return _start_missed(case, progress, started_at=started_at, blocked=blocked)


def next_deadline(case: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None) -> float | None:
    """When time is up next."""
    active = case.policy.active_deadline_seconds
    starts = (due for due, _ in _start_deadlines(case, progress, started_at=started_at, blocked=blocked))
    return earliest(None if active is None else started_at + active, *starts)


def _start_missed(case: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None) -> JobResult | None:
    for due, what in _start_deadlines(case, progress, started_at=started_at, blocked=blocked):
        if case.now >= due:
            message = f"{what} did not start within {case.policy.start_deadline_seconds} seconds"
            return JobResult(succeeded=False, reason=Reason.START_DEADLINE_EXCEEDED, message=message)
    return None


def _start_deadlines(
    case: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None
) -> Iterator[tuple[float, str]]:
    """Until when what has to start, and how it is called. A pod that was replaced has its full time again."""
    seconds = case.policy.start_deadline_seconds
    if seconds is None:
        return
    for pod in waiting_pods(progress):
        created = pod.metadata.creation_timestamp
        yield max(started_at, created.timestamp() if created else started_at) + seconds, _described(pod)
    if any(each.state is ReplicaState.PENDING and each.pod is None for role in progress.roles for each in role.replicas):
        yield max(started_at, case.now) + seconds, "a pod that is created now"
    if blocked is not None and any(role.count(*_NOT_STARTED) for role in progress.roles):
        yield max(started_at, parse_time(blocked.since) or started_at, lost_last(case)) + seconds, f"{blocked.message}; it"


def _described(pod: Pod) -> str:
    reason, text = why_waiting(pod)
    why = f" ({reason}{f': {text}' if text else ''})" if reason else ""
    return f"pod {pod.metadata.name}{why}"
