"""Queues of Kueue: a job is suspended until Kueue admits its Workload, and again when Kueue evicts it.

The Workload is created and deleted while the job has no pods, so that no pod runs without quota.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dlop.api.child_objects import Create
from dlop.api.constants import TEMPLATE_HASH_ANNOTATION, Reason
from dlop.api.kueue import finished_status, holds_quota, is_admitted, is_finished, placements, ready_status, released_status, true_condition
from dlop.api.phase import Phase
from dlop.api.record import RecordBuilder
from dlop.api.template_hash import parse_template_hash
from dlop.kube.objects import Workload
from dlop.kube.resources import WORKLOADS
from dlop.kube.types import JsonObject
from dlop.policies.kueue import quota_hash, workload_create, workload_ref
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Delete, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStep:
    """What one pass does for a job that waits in its queue."""

    reason: str
    message: str
    creates: tuple[Create, ...] = ()
    deletes: tuple[Delete, ...] = ()
    reports: tuple[Report, ...] = ()


def queue_step(context: ReconcileContext) -> QueueStep | None:
    """The next step of a job with a queue; None if it may run."""
    workload, has_pods = context.workload, bool(context.snapshot.pods)
    if context.unreadable_for_queue:
        # What Kueue has decided is not known. The job is blocked, and the pods that it has continue.
        return None if has_pods else _waiting(context)
    if workload is None:
        return _waiting(context) if has_pods else replace(_waiting(context), creates=tuple(_creates(context)))
    if _is_obsolete(context, workload):
        return _waiting(context) if has_pods else replace(_waiting(context), deletes=workload_deletes(context))
    if evicted := true_condition(workload, "Evicted"):
        message = f"Kueue has evicted the job ({evicted.get('reason')}): {evicted.get('message')}"
        reports = _report(workload, released_status(workload, now=context.now)) if holds_quota(workload) and not has_pods else ()
        return QueueStep(reason=Reason.EVICTED, message=message, reports=reports)
    return None if is_admitted(workload) else _waiting(context)


def _waiting(context: ReconcileContext) -> QueueStep:
    return QueueStep(reason=Reason.QUEUED, message=f"the job waits in the queue {context.queue} until Kueue admits it")


def _creates(context: ReconcileContext) -> Iterator[Create]:
    if workload_ref(context.job) not in context.name_conflicts:
        snapshot = context.snapshot
        yield workload_create(context.job, priorities=snapshot.priorities, workload_priorities=snapshot.workload_priorities)


def _is_obsolete(context: ReconcileContext, workload: Workload) -> bool:
    """Whether the Workload asks for other quota than the job needs now, or has ended before the job."""
    _, digest = parse_template_hash(workload.metadata.annotations.get(TEMPLATE_HASH_ANNOTATION, ""))
    return workload.metadata.deletion_timestamp is not None or is_finished(workload) or digest != quota_hash(context.job)


def workload_deletes(context: ReconcileContext) -> tuple[Delete, ...]:
    """The delete of the Workload of a job without pods that leaves its queue."""
    workload = context.workload
    if workload is None or workload.metadata.deletion_timestamp is not None or context.snapshot.pods:
        return ()
    return (Delete(WORKLOADS, workload.metadata.name, workload.metadata.uid),)


def record_queue(context: ReconcileContext, builder: RecordBuilder) -> None:
    """Record the queue of the job, and that it may have a Workload."""
    builder.queue = context.queue
    if context.queue:
        builder.add_watched((WORKLOADS.qualified_name,))


def with_placements(context: ReconcileContext) -> ReconcileContext:
    """The context of an admitted job, whose pods run where Kueue has admitted them."""
    by_pod_set = None if context.workload is None else placements(context.workload, context.snapshot.flavors)
    if by_pod_set is None:
        return replace(context, awaits_flavors=True)
    job = context.job.with_placements(by_pod_set)
    return replace(context, job=job, spec=job.spec)


def ready_reports(context: ReconcileContext, phase: Phase) -> tuple[Report, ...]:
    """Tells Kueue whether an admitted job runs. Only a stored phase proves that it does not: the cache of pods may be stale."""
    workload = context.workload
    is_known = phase is Phase.RUNNING or phase is context.stored.phase is Phase.RESTARTING
    if not context.queue or workload is None or not is_known or not is_admitted(workload):
        return ()
    return _report(workload, ready_status(workload, is_running=phase is Phase.RUNNING, now=context.now))


def finished_reports(context: ReconcileContext) -> tuple[Report, ...]:
    """Returns the quota of a finished job."""
    workload, phase = context.workload, context.stored.phase
    if workload is None or phase is None or workload.metadata.deletion_timestamp is not None:
        return ()
    succeeded = phase is Phase.SUCCEEDED
    message = f"{context.job.job_type.kind} {context.job.metadata.name} has {'succeeded' if succeeded else 'failed'}"
    return _report(workload, finished_status(workload, succeeded=succeeded, message=message, now=context.now))


def _report(workload: Workload, status: JsonObject | None) -> tuple[Report, ...]:
    """The other conditions of the Workload are part of the patch, so it must not have changed."""
    metadata = workload.metadata
    if status is None:
        return ()
    return (Report(WORKLOADS, metadata.name, metadata.uid, status, resource_version=metadata.resource_version),)
