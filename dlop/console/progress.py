"""Text about a job's progress: counts, changes and the result. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from dlop.api.progress import ReplicaState
from dlop.console.duration import format_elapsed
from dlop.jobs.lookup import JobHandle
from dlop.jobs.replicas import GONE, TERMINATING, ReplicaView
from dlop.jobs.view import NOT_RECONCILED, JobView

_TERMINAL_STATES = (ReplicaState.SUCCEEDED, ReplicaState.FAILED)
# Every pod passes through these states, and roles start in order, so they are not worth reporting.
_TRANSIENT = (": ContainerCreating", ": PodInitializing", " waits for ")
_UNSUCCESSFUL = (ReplicaState.FAILED, ReplicaState.DISRUPTED)


def job_title(view: JobView) -> str:
    """`MXJob demo`, with its namespace unless that is `default`."""
    namespace = "" if view.namespace == "default" else f" in {view.namespace}"
    return f"{view.kind} {view.name}{namespace}"


def job_labels(jobs: Sequence[JobHandle]) -> dict[str, str]:
    """What distinguishes the replicas of these jobs, by UID: job names, with the namespace or the kind if some have the same.

    A single job needs none.
    """
    if len(jobs) < 2:
        return {job.uid: "" for job in jobs}
    names = (
        [job.name for job in jobs],
        [f"{job.namespace}/{job.name}" for job in jobs],
        [job.reference for job in jobs],
        [f"{job.namespace}/{job.reference}" for job in jobs],
    )
    labels = next(candidates for candidates in names if len(set(candidates)) == len(jobs))
    return dict(zip((job.uid for job in jobs), labels, strict=True))


def with_label(replica: str, job_label: str) -> str:
    return f"{job_label}/{replica}" if job_label else replica


def format_counts(view: JobView) -> str:
    """`2 of 3 running, 1 succeeded`."""
    counts = Counter(replica.state for replica in view.replicas)
    desired = sum(role.desired for role in view.roles)
    terminal = [f"{counts[state]} {state.value.lower()}" for state in _TERMINAL_STATES if counts[state]]
    return ", ".join([f"{counts[ReplicaState.RUNNING]} of {desired} running", *terminal])


def format_seconds(elapsed: float) -> str:
    """`0.4 s`, `12 s`, `3 min 7 s`."""
    if elapsed < 10:
        return f"{elapsed:.1f} s"
    minutes, rest = divmod(round(elapsed), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def replica_name(role: str, index: int) -> str:
    """`worker-0`, the prefix of its log lines."""
    return f"{role.lower()}-{index}" if role else "pod"


def describe_changes(before: JobView | None, now: JobView, *, job_label: str = "") -> Iterator[str]:
    """One line for each change. `before` is None for a new job."""
    if now.phase != NOT_RECONCILED and (before is None or before.phase != now.phase):
        yield f"{job_title(now)}: {now.phase}{f' ({format_counts(now)})' if not now.is_finished else ''}"
    previous = {} if before is None else {(replica.role, replica.index): replica for replica in before.replicas}
    for replica in now.replicas:
        # Pods of a finished job terminate as expected.
        if not (now.is_finished and replica.state == TERMINATING):
            yield from _replica_changes(previous.get((replica.role, replica.index)), replica, job_label)


def blocking_reasons(view: JobView) -> list[str]:
    """Why the job does not make progress, without transient reasons."""
    if view.is_finished or view.phase == NOT_RECONCILED:
        return []
    return [reason for reason in view.pending_reasons if not reason.endswith(_TRANSIENT)]


def _replica_changes(before: ReplicaView | None, now: ReplicaView, job_label: str) -> Iterator[str]:
    if before is not None and (before.state, before.restarts) == (now.state, now.restarts):
        return
    if not now.restarts and now.state in (ReplicaState.MISSING, ReplicaState.PENDING):
        return
    details = [now.address] if now.state == ReplicaState.RUNNING and now.address else []
    if now.state in (*_UNSUCCESSFUL, ReplicaState.SUCCEEDED, GONE):
        details += [f"exit code {now.exit_code}"] if now.exit_code is not None else []
    if now.state in _UNSUCCESSFUL and now.reason not in ("", "Error"):
        details.append(now.reason)
    if now.restarts and (before is None or before.restarts != now.restarts):
        details.append(f"restarted {now.restarts} time{'s' if now.restarts > 1 else ''}")
    suffix = f" ({', '.join(details)})" if details else ""
    yield f"{with_label(replica_name(now.role, now.index), job_label)}: {now.state}{suffix}"


def format_result(view: JobView, *, now: float) -> str:
    """The phase, the duration, the cause and the next commands, in one line."""
    elapsed = format_elapsed(view.started_at, view.finished_at, now=now)
    text = f"{view.kind} {view.name}: {view.phase}{f' after {elapsed}' if elapsed else ''}"
    if view.has_succeeded:
        return f"{text}."
    cause = f": {view.message.rstrip('.')}" if view.message else ""
    name = f"{view.name} -n {view.namespace}"
    return f"{text}{cause}. `dlop describe {name}` shows details, `dlop logs {name}` the logs."
