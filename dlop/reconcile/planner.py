"""The entry point of the planner: one pass over one job. The other modules of this package are its parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlop.api.phase import JobResult, Phase
from dlop.api.record import Blocked
from dlop.api.spec import SpecError
from dlop.kube.timestamps import earliest
from dlop.reconcile import backoff, events, restart
from dlop.reconcile.blocked import blocked_by_unavailable, blocked_without_replicas, find_blocked, next_terminating_report
from dlop.reconcile.cleanup import plan_finished
from dlop.reconcile.code_sync import blocked_without_image
from dlop.reconcile.context import ReconcileContext, persisted_state
from dlop.reconcile.creation import Creates, assume_created, child_patches, exceeded_size_limit, is_settled, plan_creates
from dlop.reconcile.deadline import exceeded_deadline, next_deadline
from dlop.reconcile.deletion import (
    deletes_if_unchanged,
    deletes_of,
    drifted_pods,
    drifted_services,
    force_deletes,
    next_deletion_deadlines,
    next_retried_deletes,
    obsolete_deletes,
    pending_spot_pods,
    retried_deletes,
    stale_and_accounted_pods,
    surplus_services,
    unclaimed_surplus_pods,
)
from dlop.reconcile.elastic import job_demand, with_scale_decision
from dlop.reconcile.gang import blocked_by_gang, is_start_pending, next_admission_report, pod_group_patches
from dlop.reconcile.host_ports import blocked_by_host_ports, with_host_ports
from dlop.reconcile.invalid_spec import plan_invalid, plan_oversized_status
from dlop.reconcile.kueue import QueueStep, queue_step, ready_reports, record_queue, with_placements, workload_deletes
from dlop.reconcile.observe import Observation, observe, with_latest_attempt
from dlop.reconcile.plan import Event, EventType, Plan
from dlop.reconcile.restart import previous_size, restart_for_resize
from dlop.reconcile.scale_plans import ScaleStep, next_scale_step, plans_of_deleted_master
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.status import active_outcome, changed_status, current_phase, finished_outcome, resize_outcome, start_time
from dlop.reconcile.suspend import suspend, suspend_deletes
from dlop.reconcile.tensorboard import NOTHING, tensorboard_step

if TYPE_CHECKING:
    from dlop.job import DLJob


def plan(job: DLJob, snapshot: Snapshot, *, now: float) -> Plan:
    """Plan one pass. Deterministic: the result depends on the arguments only. `now` is in seconds since the epoch."""
    if job.managed_by_other or job.metadata.deletion_timestamp is not None:
        return Plan()
    stored = persisted_state(job)
    if snapshot.rejected_status:
        return plan_oversized_status(job, snapshot, stored, now=now)
    try:
        context = ReconcileContext(job, job.spec, snapshot, stored, now)
    except SpecError as error:
        return plan_invalid(job, snapshot, stored, error, now=now)
    if stored.phase is not None and stored.phase.is_finished:
        return plan_finished(context)
    if context.unrecorded_attempts:
        return Plan(status=with_latest_attempt(context))
    if context.policy.suspend:
        return _suspend(context, observe(context))
    if context.queue and context.unwatched:
        return Plan(watch=context.unwatched)  # it is not known yet whether the cluster has Kueue
    queued = queue_step(context) if context.queue else None
    return _plan_active(context) if queued is None else _wait_in_queue(context, queued)


def _wait_in_queue(context: ReconcileContext, queued: QueueStep) -> Plan:
    """Plan a pass over a job that Kueue has not admitted. Its pods may have ended before they were stopped."""
    oversize = exceeded_size_limit(context) if queued.creates else None
    if oversize is not None:
        return plan_invalid(context.job, context.snapshot, context.stored, oversize, now=context.now)
    observation = observe(context)
    result = context.job.lifecycle.evaluate(context.job, observation.progress)
    if result is None or (result.succeeded and context.is_idle):
        return _suspend(context, observation, queued)
    return _finish(context, observation, result, started_at=context.stored.started_at or context.now)


def _plan_active(context: ReconcileContext) -> Plan:
    """Plan a pass over a job that may have pods."""
    job, snapshot, stored = context.job, context.snapshot, context.stored
    if context.queue:
        context = with_placements(context)
    if snapshot.scale_decision is not None:
        context = with_scale_decision(context)
    if snapshot.assigned_host_port is not None:
        context = with_host_ports(context)
    context, step = (context, ScaleStep()) if job.members is None else next_scale_step(context, job.members)
    oversize = exceeded_size_limit(context)
    return _run(context, step) if oversize is None else plan_invalid(job, snapshot, stored, oversize, now=context.now)


def _suspend(context: ReconcileContext, observation: Observation, queued: QueueStep | None = None) -> Plan:
    """Suspend a job because its user asks for it, or because it waits in a queue."""
    blocked = None if queued is None else find_blocked(context, observation.progress)
    progress = suspend(observation)
    # When a user suspends a job, it may not be known whether the cluster has Kueue.
    if context.queue != context.stored.record.queue and (queued is not None or not context.queue):
        record_queue(context, observation.builder)
    outcome = active_outcome(
        context, progress, observation.builder.build(), phase=Phase.SUSPENDED, started_at=context.stored.started_at, blocked=blocked
    )
    if queued is not None:
        outcome = replace(outcome, reason=queued.reason, message=queued.message)
    status = changed_status(context.job, outcome, context.snapshot)
    # A pod may have finished in the meantime. Its result must be stored before it is deleted.
    deletes = suspend_deletes(context) if status is None else ()
    return Plan(
        deletes=deletes + plans_of_deleted_master(context) + (workload_deletes(context) if queued is None else queued.deletes),
        children=() if queued is None else queued.creates,
        patches=() if queued is None else queued.patches,
        quota_reports=() if queued is None else queued.reports,
        watch=context.unwatched,
        status=status,
        events=(
            *events.phase_events(context.stored.phase, outcome),
            *events.blocked_events(context, outcome),
            *events.delete_events(deletes),
            *(() if queued is None else events.spec_warning_events(context)),
        ),
        requeue_at=earliest(*next_retried_deletes(context), *next_deletion_deadlines(context, context.snapshot.all_pods)),
    )


def _run(context: ReconcileContext, step: ScaleStep) -> Plan:
    observation = observe(context)
    blocked = find_blocked(context, observation.progress)
    started_at = start_time(context.stored, now=context.now)
    result = _evaluate(context, observation, started_at=started_at, blocked=blocked)
    if result is not None:
        return _finish(context, observation, result, started_at=started_at)
    restart.record_restarts(observation.lost_replicas, observation.builder, scope=context.policy.restart_scope, now=context.now)
    size = previous_size(context, observation.progress)
    if size is not None:
        return _resize(context, observation, started_at=started_at, size=size)
    return _continue(context, observation, step, started_at=started_at, blocked=blocked)


def _evaluate(context: ReconcileContext, observation: Observation, *, started_at: float, blocked: Blocked | None) -> JobResult | None:
    """Whether the job has finished. The kind decides first, so a job that has succeeded cannot exceed a limit or deadline."""
    result = context.job.lifecycle.evaluate(context.job, observation.progress)
    if result is not None and not (result.succeeded and context.is_idle):
        return result
    restart.count_lost_replicas(observation.lost_replicas, observation.builder, scope=context.policy.restart_scope)
    exceeded = restart.exceeded_limit(context.policy, observation.builder)
    return exceeded or exceeded_deadline(context, observation.progress, started_at=started_at, blocked=blocked)


def _finish(context: ReconcileContext, observation: Observation, result: JobResult, *, started_at: float) -> Plan:
    """Write the final status only. Cleanup starts once it is stored."""
    observation.builder.backoffs.clear()
    record = observation.builder.build()
    outcome = finished_outcome(context, observation.progress, record, result=result, started_at=started_at)
    return Plan(
        status=changed_status(context.job, outcome, context.snapshot), events=tuple(events.phase_events(context.stored.phase, outcome))
    )


def _resize(context: ReconcileContext, observation: Observation, *, started_at: float, size: str) -> Plan:
    """Write the new attempt, and delete services with other ports. The pods of the old size are deleted once the attempt is stored."""
    restart_for_resize(observation.builder)
    progress = restart.reset_progress(observation.progress)
    record = observation.builder.build()
    outcome = resize_outcome(context, progress, record, started_at=started_at, size=size)
    return Plan(
        deletes=deletes_of((), drifted_services(context)),
        status=changed_status(context.job, outcome, context.snapshot),
        events=(
            *events.phase_events(context.stored.phase, outcome),
            *events.lost_replica_events(observation),
            *events.spot_fallback_events(context, record),
            *events.spec_warning_events(context),
            Event(EventType.NORMAL, outcome.reason, outcome.message),
        ),
    )


def _continue(context: ReconcileContext, observation: Observation, step: ScaleStep, *, started_at: float, blocked: Blocked | None) -> Plan:
    progress = restart.progress_after_restart(observation.progress, observation.lost_replicas, scope=context.policy.restart_scope)
    backoffs = observation.builder.backoffs
    in_backoff = backoff.active(backoffs, now=context.now)
    # Delays of dlop itself are reported like other causes, but the start deadline does not apply to them.
    reported = (
        blocked
        or blocked_without_replicas(context)
        or blocked_by_gang(context, progress)
        or (blocked_by_host_ports(context) if context.awaits_host_ports else None)
        or (next(blocked_without_image(context), None) if step.pods else None)
        or backoff.blocked_by_backoff(context, in_backoff, backoffs)
        or blocked_by_unavailable(context)
    )
    pods, services = [*stale_and_accounted_pods(context)], [*drifted_services(context)]
    if not context.must_store_record:
        pods += unclaimed_surplus_pods(context)
        services += surplus_services(context)
    observation.builder.add_watched(each.qualified_name for each in context.unwatched)
    if context.queue != context.stored.record.queue:
        record_queue(context, observation.builder)
    record = observation.builder.build()
    overdue = retried_deletes(context) + force_deletes(context, context.snapshot.all_pods)
    # The results of overdue pods must be stored in the record before the pods are deleted.
    deletes = deletes_of(pods, services) + (overdue if record == context.stored.record else ()) + obsolete_deletes(context)
    # A pod that a stale cache shows running may have finished, and is kept.
    deletes += deletes_if_unchanged(observation.redundant_pods)
    drift_deletes = deletes_if_unchanged(drifted_pods(context, progress))
    spot_deletes = () if drift_deletes else deletes_if_unchanged(pending_spot_pods(context, progress))
    # Lost replicas must be stored in the record before their replacements are created.
    is_stored = not observation.lost_replicas and not context.must_store_record
    creates = plan_creates(context, progress, in_backoff=in_backoff) if is_stored else Creates()
    may_create_members = is_stored and not context.blocking_resources and not context.lacks_git_sync_image
    if step.pods and may_create_members:
        creates = replace(creates, services=creates.services + step.services, pods=creates.pods + step.pods)
    expected = assume_created(context, progress, creates.pods)
    actual_start = None if is_start_pending(context) else started_at
    phase = current_phase(context, expected)
    tensorboard = tensorboard_step(context, phase) if context.has_tensorboard else NOTHING
    outcome = active_outcome(
        context,
        expected,
        record,
        phase=phase,
        started_at=actual_start,
        blocked=reported,
    )
    return Plan(
        deletes=deletes + drift_deletes + spot_deletes + step.deletes + tensorboard.deletes,
        patches=pod_group_patches(context, progress) + child_patches(context, progress),
        services=creates.services,
        pods=creates.pods,
        children=creates.children,
        companions=tensorboard.creates,
        # A scale plan whose pods are not created in this pass is not reported as succeeded.
        reports=step.reports if may_create_members or not step.pods else (),
        quota_reports=ready_reports(context, phase) if context.queue else (),
        watch=context.unwatched,
        status=changed_status(context.job, outcome, context.snapshot),
        events=(
            *events.phase_events(context.stored.phase, outcome),
            *events.scale_events(context),
            *step.events,
            *events.lost_replica_events(observation),
            *events.spot_fallback_events(context, record),
            *events.blocked_events(context, outcome),
            *events.delete_events(deletes),
            *events.drift_events(drift_deletes),
            *events.pending_spot_events(spot_deletes),
            *events.spec_warning_events(context),
            *events.create_events(creates),
            *tensorboard.events,
        ),
        requeue_at=earliest(
            None if actual_start is None else next_deadline(context, expected, started_at=started_at, blocked=blocked),
            *next_retried_deletes(context),
            *next_deletion_deadlines(context, context.snapshot.all_pods),
            *in_backoff.values(),
            next_admission_report(context, progress),
            next_terminating_report(context),
            tensorboard.requeue_at,
        ),
        demand=job_demand(context, expected) if context.job.options.autoscaler else None,
        settles=not step.is_unfinished
        and not context.unwatched
        and is_settled(context, observation, expected, deletes + overdue + drift_deletes + spot_deletes + tensorboard.deletes),
    )
