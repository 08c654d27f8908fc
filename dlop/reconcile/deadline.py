"""Deadlines of the whole job, and of pods that do not start. Every deadline is also a requeue time."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import Reason
from dlop.api.phase import JobResult
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked
from dlop.kube.objects import Pod
from dlop.kube.timestamps import earliest, parse_time
from dlop.reconcile.backoff import last_backoff_end
from dlop.reconcile.blocked import waiting_pods, waiting_reason
from dlop.reconcile.context import ReconcileContext

_NOT_STARTED = (ReplicaState.MISSING, ReplicaState.PENDING)


def exceeded_deadline(context: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None) -> JobResult | None:
    """The failure of a job that has exceeded a deadline; None if it has not."""
    seconds = context.policy.active_deadline_seconds
    if seconds is not None and context.now >= started_at + seconds:
        message = f"the job was active longer than its deadline of {seconds} seconds"
        return JobResult(succeeded=False, reason=Reason.DEADLINE_EXCEEDED, message=message)
    for deadline, subject in _start_deadlines(context, progress, started_at=started_at, blocked=blocked):
        if context.now >= deadline:
            message = f"{subject} did not start within {context.policy.start_deadline_seconds} seconds"
            return JobResult(succeeded=False, reason=Reason.START_DEADLINE_EXCEEDED, message=message)
    return None


def next_deadline(context: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None) -> float | None:
    """The earliest deadline; None if the job has none."""
    seconds = context.policy.active_deadline_seconds
    start_deadlines = (deadline for deadline, _ in _start_deadlines(context, progress, started_at=started_at, blocked=blocked))
    return earliest(None if seconds is None else started_at + seconds, *start_deadlines)


def _start_deadlines(
    context: ReconcileContext, progress: Progress, *, started_at: float, blocked: Blocked | None
) -> Iterator[tuple[float, str]]:
    """Start deadlines with a description of what has to start. A replacement pod gets the full time again."""
    seconds = context.policy.start_deadline_seconds
    if seconds is None:
        return
    for pod in waiting_pods(progress):
        created = pod.metadata.creation_timestamp
        yield max(started_at, created.timestamp() if created else started_at) + seconds, _describe_pod(pod)
    if any(replica.state is ReplicaState.PENDING and replica.pod is None for role in progress.roles for replica in role.replicas):
        yield max(started_at, context.now) + seconds, "a pod created in this pass"
    if blocked is not None and any(role.count(*_NOT_STARTED) for role in progress.roles):
        blocked_since = parse_time(blocked.since) or started_at
        yield max(started_at, blocked_since, last_backoff_end(context)) + seconds, f"{blocked.message}; it"


def _describe_pod(pod: Pod) -> str:
    reason, message = waiting_reason(pod)
    details = f" ({reason}{f': {message}' if message else ''})" if reason else ""
    return f"pod {pod.metadata.name}{details}"
