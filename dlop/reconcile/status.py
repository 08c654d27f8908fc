"""From the result of a pass to the new status: the phase, the record, and the status format of the kind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from dlop.api.constants import Reason
from dlop.api.phase import JobResult, Outcome, Phase
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked, Record, describe_failure, record_to_json
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.code_sync import with_failed_clone
from dlop.reconcile.context import PersistedState, ReconcileContext
from dlop.reconcile.snapshot import Snapshot

if TYPE_CHECKING:
    from dlop.job import DLJob

_LOST = (ReplicaState.RESTARTING, ReplicaState.DISRUPTED)


def start_time(stored: PersistedState, *, now: float) -> float:
    """When the job was started, or last resumed; now if it starts in this pass. In whole seconds, as it is stored."""
    if stored.started_at is None or stored.phase is Phase.SUSPENDED:
        return float(int(now))
    return stored.started_at


def current_phase(context: ReconcileContext, progress: Progress) -> Phase:
    """The phase of a job that is neither suspended nor finished. It is Restarting until the job runs again."""
    if any(role.count(*_LOST) for role in progress.roles):
        return Phase.RESTARTING
    if context.job.lifecycle.is_running(context.job, progress):
        return Phase.RUNNING
    if context.is_idle:
        return Phase.CREATED
    previous = context.stored.phase
    return previous if previous in (Phase.RUNNING, Phase.RESTARTING) else Phase.CREATED


def active_outcome(
    context: ReconcileContext,
    progress: Progress,
    record: Record,
    *,
    phase: Phase,
    started_at: float | None,
    blocked: Blocked | None = None,
) -> Outcome:
    """The outcome for a job that has not finished."""
    record = _update(record, context.job, phase=phase, started_at=started_at, blocked=blocked)
    message = describe_failure(record.last_failure) if phase is Phase.RESTARTING and record.last_failure else ""
    outcome = _outcome(context, record, phase=phase, reason=phase.value, message=message, progress=progress)
    return replace(outcome, surplus_pods=len(context.surplus_pods), is_scaling=context.is_scaling)


def finished_outcome(
    context: ReconcileContext, progress: Progress, record: Record, *, result: JobResult, started_at: float | None
) -> Outcome:
    """The outcome for a job that finishes in this pass."""
    phase = Phase.SUCCEEDED if result.succeeded else Phase.FAILED
    record = _update(record, context.job, phase=phase, started_at=started_at, finished_at=context.now)
    message = result.message or with_failed_clone(context.job.status.describe_result(context.job, result, progress), result)
    return _outcome(context, record, phase=phase, reason=result.reason or phase.value, message=message, progress=progress)


def resize_outcome(context: ReconcileContext, progress: Progress, record: Record, *, started_at: float | None, size: str) -> Outcome:
    """The outcome for a job that restarts because its world size or its network has changed. `size` is the previous one."""
    record = _update(record, context.job, phase=Phase.RESTARTING, started_at=started_at)
    change = f"scaled from {size} to {context.job.size}"
    parts = "the size and the ports" if context.job.uses_host_network else "the size"
    if not size or not context.job.size:
        change, parts = f"moved {'out of' if size else 'into'} the host network", "the ports"
    message = f"{change}: restarting all replicas, because their environment contains {parts}"
    return _outcome(context, record, phase=Phase.RESTARTING, reason=Reason.RESIZED, message=message, progress=progress)


def invalid_outcome(job: DLJob, stored: PersistedState, *, message: str, now: float) -> Outcome:
    """The outcome for a job that is not started because its spec is invalid."""
    record = _update(stored.record, job, phase=Phase.INVALID, started_at=stored.started_at)
    return _bare_outcome(record, phase=Phase.INVALID, reason=Reason.INVALID_SPEC, message=message, progress=Progress(roles=()), now=now)


def blocked_status(job: DLJob, stored: PersistedState, blocked: Blocked, *, phase: Phase, now: float) -> JsonObject | None:
    """The stored status with the condition Blocked, for a job whose spec is invalid; None if it is unchanged."""
    record = _update(stored.record, job, phase=phase, started_at=stored.started_at, blocked=blocked)
    status = {**job.status.write_blocked(job, blocked, now=now), "dlop": record_to_json(record)}
    return None if status == job.stored_status else status


def changed_status(job: DLJob, outcome: Outcome, snapshot: Snapshot) -> JsonObject | None:
    """The new status; None if it is unchanged. A new version of the pod cache alone is not a change."""
    record = outcome.record
    status = {**job.status.write(job, outcome), "dlop": record_to_json(record)}
    if status == job.stored_status:
        return None
    return {**status, "dlop": record_to_json(msgspec.structs.replace(record, pods_version=snapshot.pods_version))}


def _update(
    record: Record,
    job: DLJob,
    *,
    phase: Phase,
    started_at: float | None,
    finished_at: float | None = None,
    blocked: Blocked | None = None,
) -> Record:
    return msgspec.structs.replace(
        record,
        observed_generation=job.metadata.generation,
        phase=phase.value,
        started_at="" if started_at is None else format_time(started_at),
        finished_at="" if finished_at is None else format_time(finished_at),
        blocked=blocked,
    )


def _outcome(context: ReconcileContext, record: Record, *, phase: Phase, reason: str, message: str, progress: Progress) -> Outcome:
    outcome = _bare_outcome(record, phase=phase, reason=reason, message=message, progress=progress, now=context.now)
    return replace(outcome, members=tuple(context.members.values())) if context.members else outcome


def _bare_outcome(record: Record, *, phase: Phase, reason: str, message: str, progress: Progress, now: float) -> Outcome:
    """An outcome without the members of the job."""
    return Outcome(
        phase=phase,
        reason=reason,
        message=message,
        progress=progress,
        record=record,
        now=now,
        started_at=parse_time(record.started_at),
        finished_at=parse_time(record.finished_at),
    )
