"""One pass over one job: what is known goes in, a plan comes out. Everything else in this package is a part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlop.api.phase import JobResult, Phase
from dlop.api.record import Blocked, Record
from dlop.api.spec import SpecError
from dlop.kube.timestamps import earliest
from dlop.reconcile import backoff, events, restart
from dlop.reconcile.blocked import find_blocked, next_terminating_conflict, nothing_to_run
from dlop.reconcile.children import to_change
from dlop.reconcile.cleanup import plan_finished
from dlop.reconcile.context import ReconcileContext, persisted_state
from dlop.reconcile.creation import Creations, nothing_is_left, to_create, when_created
from dlop.reconcile.deadline import missed, next_deadline
from dlop.reconcile.deletion import (
    deletions,
    deletions_if_unchanged,
    next_overdue,
    outdated_and_written_off,
    overdue,
    passed,
    surplus_pods,
    surplus_services,
)
from dlop.reconcile.drift import outdated_by_edits, services_outdated_by_edits
from dlop.reconcile.gang.admission import is_yet_to_start, told_next, waiting_for_group
from dlop.reconcile.gang.podgroup import group_to_change
from dlop.reconcile.invalid_spec import plan_invalid
from dlop.reconcile.observe import Observation, observe, with_latest_attempt
from dlop.reconcile.plan import Event, EventType, Plan
from dlop.reconcile.resize import previous_size, restart_for_resize
from dlop.reconcile.restart import exceeded
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.status import changed_status, end_of, outcome_of, phase_of, resizing_of, started_at
from dlop.reconcile.suspend import hold, to_take_away

if TYPE_CHECKING:
    from dlop.job import DLJob


def plan(job: DLJob, snapshot: Snapshot, *, now: float) -> Plan:
    """What is to be done about a job now. The same question always has the same answer."""
    if job.managed_elsewhere or job.metadata.deletion_timestamp is not None:
        return Plan()
    stored = persisted_state(job)
    try:
        case = ReconcileContext(job, job.spec, snapshot, stored, now)
    except SpecError as error:
        return plan_invalid(job, snapshot, stored, error, now=now)
    if stored.phase is not None and stored.phase.is_end:
        return plan_finished(case)
    if case.missed_attempts:
        return Plan(status=with_latest_attempt(case))
    return _suspend(case) if case.policy.suspend else _run(case)


def _suspend(case: ReconcileContext) -> Plan:
    account = observe(case)
    progress = hold(account)
    outcome = outcome_of(case, progress, _closed(case, account), phase=Phase.SUSPENDED, since=case.stored.started_at)
    status = changed_status(case.job, outcome)
    # A pod may have finished in the meantime: what it tells is written down before it goes.
    gone = to_take_away(case) if status is None else ()
    return Plan(
        deletions=gone,
        status=status,
        events=(*events.of_phase(case.stored.phase, outcome), *events.of_deletions(gone)),
        look_again_at=earliest(*next_overdue(case, case.snapshot.pods)),
    )


def _run(case: ReconcileContext) -> Plan:
    account = observe(case)
    blocked = find_blocked(case, account.progress)
    since = started_at(case.stored, now=case.now)
    verdict = _verdict(case, account, since=since, blocked=blocked)
    if verdict is not None:
        return _end(case, account, verdict, since=since)
    restart.start_again(account.losses, account.ledger, scope=case.policy.restart_scope, now=case.now)
    if size := previous_size(case, account.progress):
        return _begin_anew(case, account, since=since, size=size)
    return _go_on(case, account, since=since, blocked=blocked)


def _verdict(case: ReconcileContext, account: Observation, *, since: float, blocked: Blocked | None) -> JobResult | None:
    """The kind goes first: a job that is done is done, however late. What then has to be started again uses up the limits."""
    judged = case.job.judge(account.progress)
    if judged is not None and not (judged.succeeded and case.is_idle):
        return judged
    restart.count(account.losses, account.ledger, scope=case.policy.restart_scope)
    return exceeded(case.policy, account.ledger) or missed(case, account.progress, started_at=since, blocked=blocked)


def _end(case: ReconcileContext, account: Observation, verdict: JobResult, *, since: float) -> Plan:
    """Write down the end, and nothing else: cleaning up begins when it is stored."""
    account.ledger.retries.clear()
    outcome = end_of(case, account.progress, _closed(case, account), verdict=verdict, since=since)
    return Plan(status=changed_status(case.job, outcome), events=tuple(events.of_phase(case.stored.phase, outcome)))


def _begin_anew(case: ReconcileContext, account: Observation, *, since: float, size: str) -> Plan:
    """Give up what knows an old size of the job, and nothing else: making room begins when that is stored."""
    restart_for_resize(account.ledger)
    progress = restart.from_the_start(account.progress)
    outcome = resizing_of(case, progress, _closed(case, account), since=since, size=size)
    begun_anew = Event(EventType.NORMAL, outcome.reason, outcome.message)
    told = (*events.of_phase(case.stored.phase, outcome), *events.of_losses(account), *events.of_remarks(case), begun_anew)
    return Plan(status=changed_status(case.job, outcome), events=told)


def _go_on(case: ReconcileContext, account: Observation, *, since: float, blocked: Blocked | None) -> Plan:
    progress = restart.started_again(account.progress, account.losses, scope=case.policy.restart_scope)
    resting = backoff.resting(account.ledger.retries, now=case.now)
    # What dlop itself waits for is told like anything in the way, but no deadline runs meanwhile.
    told = blocked or nothing_to_run(case) or waiting_for_group(case, progress) or backoff.explained(case, resting, account.ledger.retries)
    pods = (*outdated_and_written_off(case), *surplus_pods(case))
    services = (*surplus_services(case), *services_outdated_by_edits(case))
    gone = deletions(pods, services) + overdue(case, case.snapshot.pods) + passed(case)
    edited = deletions_if_unchanged(outdated_by_edits(case, progress))
    # What was lost has to be written down before anything takes its place.
    new = to_create(case, progress, resting=resting) if not account.losses else Creations()
    then = when_created(case, progress, new.pods)
    began = None if is_yet_to_start(case) else since
    outcome = outcome_of(case, then, _closed(case, account), phase=phase_of(case, then), since=began, blocked=told)
    return Plan(
        deletions=gone + edited,
        changes=group_to_change(case, progress) + to_change(case, progress),
        services=new.services,
        pods=new.pods,
        others=new.others,
        status=changed_status(case.job, outcome),
        events=(
            *events.of_phase(case.stored.phase, outcome),
            *events.of_losses(account),
            *events.of_block(case, outcome),
            *events.of_deletions(gone),
            *events.of_edits(edited),
            *events.of_remarks(case),
            *events.of_creations(new),
        ),
        look_again_at=earliest(
            None if began is None else next_deadline(case, then, started_at=since, blocked=blocked),
            *next_overdue(case, case.snapshot.pods),
            *resting.values(),
            told_next(case, progress),
            next_terminating_conflict(case),
        ),
        is_complete=nothing_is_left(case, account, then, gone + edited),
    )


def _closed(case: ReconcileContext, account: Observation) -> Record:
    return account.ledger.close(living=(pod.metadata.uid for pod in case.snapshot.pods))
