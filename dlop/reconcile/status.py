"""From what a pass has found to the status that is written: the phase, the record, and the words of the kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from dlop.api.constants import Reason
from dlop.api.phase import JobResult, Outcome, Phase
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked, Record, describe_failure, plain
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.context import PersistedState, ReconcileContext

if TYPE_CHECKING:
    from dlop.job import DLJob

_LOST = (ReplicaState.RESTARTING, ReplicaState.DISRUPTED)


def started_at(stored: PersistedState, *, now: float) -> float:
    """When the job was first started, or resumed last. Both are told to the second."""
    if stored.started_at is None or stored.phase is Phase.SUSPENDED:
        return float(int(now))
    return stored.started_at


def phase_of(case: ReconcileContext, progress: Progress) -> Phase:
    """Where a job stands that goes on. It is restarting until what was lost is gone and the job runs again."""
    if any(role.count(*_LOST) for role in progress.roles):
        return Phase.RESTARTING
    if case.job.is_running(progress):
        return Phase.RUNNING
    if case.is_idle:
        return Phase.CREATED
    before = case.stored.phase
    return before if before in (Phase.RUNNING, Phase.RESTARTING) else Phase.CREATED


def outcome_of(
    case: ReconcileContext, progress: Progress, record: Record, *, phase: Phase, since: float | None, blocked: Blocked | None = None
) -> Outcome:
    """What is told of a job that has not come to its end."""
    record = _with(record, case.job, phase=phase, started=since, finished=None, blocked=blocked)
    message = describe_failure(record.last_failure) if phase is Phase.RESTARTING and record.last_failure else ""
    return _outcome(record, phase=phase, reason=phase.value, message=message, progress=progress, now=case.now)


def end_of(case: ReconcileContext, progress: Progress, record: Record, *, verdict: JobResult, since: float | None) -> Outcome:
    """What is told of a job that has come to its end."""
    phase = Phase.SUCCEEDED if verdict.succeeded else Phase.FAILED
    record = _with(record, case.job, phase=phase, started=since, finished=case.now, blocked=None)
    return _outcome(record, phase=phase, reason=verdict.reason, message=verdict.message, progress=progress, now=case.now)


def resizing_of(case: ReconcileContext, progress: Progress, record: Record, *, since: float | None, size: str) -> Outcome:
    """What is told of a job that is begun anew because it was scaled."""
    record = _with(record, case.job, phase=Phase.RESTARTING, started=since, finished=None, blocked=None)
    message = f"scaled from {size} to {case.job.size}: all replicas start again, for each is told how many there are"
    return _outcome(record, phase=Phase.RESTARTING, reason=Reason.RESIZED, message=message, progress=progress, now=case.now)


def refusal_of(job: DLJob, stored: PersistedState, *, message: str, now: float) -> Outcome:
    """What is told of a job that is not run, for its spec makes no sense."""
    record = _with(stored.record, job, phase=Phase.INVALID, started=stored.started_at, finished=None, blocked=None)
    return _outcome(record, phase=Phase.INVALID, reason=Reason.INVALID_SPEC, message=message, progress=Progress(roles=()), now=now)


def status_with_block(job: DLJob, stored: PersistedState, blocked: Blocked, *, phase: Phase, now: float) -> JsonObject | None:
    """The stored status, with what is in the way of a job of which nothing else can be told; None when it is stored already."""
    record = _with(stored.record, job, phase=phase, started=stored.started_at, finished=None, blocked=blocked)
    status = {**job.write_block(blocked, now=now), "dlop": plain(record)}
    return None if status == job.stored_status else status


def changed_status(job: DLJob, outcome: Outcome) -> JsonObject | None:
    """The status to write; None when it is stored already."""
    status = {**job.write_status(outcome), "dlop": plain(outcome.record)}
    return None if status == job.stored_status else status


def _with(record: Record, job: DLJob, *, phase: Phase, started: float | None, finished: float | None, blocked: Blocked | None) -> Record:
    return msgspec.structs.replace(
        record,
        observed_generation=job.metadata.generation,
        phase=phase.value,
        started_at="" if started is None else format_time(started),
        finished_at="" if finished is None else format_time(finished),
        blocked=blocked,
    )


def _outcome(record: Record, *, phase: Phase, reason: str, message: str, progress: Progress, now: float) -> Outcome:
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
