"""Queues of Kueue: a job is suspended until Kueue admits its Workload, and again when Kueue evicts it.

The operator creates and deletes the Workload while the job has no pods, and returns its quota when the last pod is gone. A Workload that
is deleted by hand returns its quota at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlop.api.child_objects import Create
from dlop.api.constants import TEMPLATE_HASH_ANNOTATION, Reason
from dlop.api.kueue import finished_status, holds_quota, is_admitted, is_finished, placements, ready_status, released_status, true_condition
from dlop.api.phase import Phase
from dlop.api.record import RecordBuilder
from dlop.api.template_hash import parse_template_hash
from dlop.kube.objects import Workload
from dlop.kube.resources import WORKLOADS
from dlop.kube.types import JsonObject
from dlop.policies.kueue import quota_hash, workload_create, workload_priority, workload_ref
from dlop.reconcile.blocked import describe_terminating
from dlop.reconcile.context import ReconcileContext, persisted_state
from dlop.reconcile.plan import Delete, Patch, Report
from dlop.reconcile.snapshot import Snapshot

if TYPE_CHECKING:
    from dlop.job import DLJob


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStep:
    """What one pass does for a job that waits in its queue."""

    reason: str
    message: str
    creates: tuple[Create, ...] = ()
    patches: tuple[Patch, ...] = ()
    deletes: tuple[Delete, ...] = ()
    reports: tuple[Report, ...] = ()


def queue_step(context: ReconcileContext) -> QueueStep | None:
    """The next step of a job with a queue; None if it may run."""
    workload, has_pods = context.workload, bool(context.snapshot.pods)
    if context.unreadable_for_queue:
        # What Kueue has decided is not known. The job is blocked, and the pods that it has continue.
        return None if has_pods else _waiting(context)
    if workload is None:
        if not context.job.total_replicas:
            return None  # it needs no quota
        return _waiting(context) if has_pods else replace(_waiting(context), creates=tuple(_creates(context)))
    if is_admitted(workload) and not _is_obsolete(context, workload):
        return None
    step = _stopping(context, workload)
    if has_pods:
        return step
    step = replace(step, reports=release_reports(workload, now=context.now))
    if _is_obsolete(context, workload):
        return replace(step, deletes=workload_deletes(context))
    return replace(step, patches=_priority_patches(context, workload))


def waits_in_queue(job: DLJob, snapshot: Snapshot) -> bool:
    """Whether a job with a valid spec waits until Kueue admits it, or until it is known whether the cluster has Kueue."""
    context = ReconcileContext(job, job.spec, snapshot, persisted_state(job), now=0.0)
    return bool(context.queue) and (bool(context.unwatched) or queue_step(context) is not None)


def _stopping(context: ReconcileContext, workload: Workload) -> QueueStep:
    """The step of a job that is not admitted, or no longer."""
    evicted = true_condition(workload, "Evicted")
    if workload.metadata.deletion_timestamp is not None:
        subject = f"workload {workload.metadata.name} {describe_terminating(WORKLOADS, workload.metadata.finalizers)}"
        return replace(_waiting(context), message=f"{subject}; then the job waits in the queue {context.queue}")
    if not evicted or _is_obsolete(context, workload):
        return _waiting(context)
    return QueueStep(reason=Reason.EVICTED, message=f"Kueue has evicted the job ({evicted.get('reason')}): {evicted.get('message')}")


def _waiting(context: ReconcileContext) -> QueueStep:
    return QueueStep(reason=Reason.QUEUED, message=f"the job waits in the queue {context.queue} until Kueue admits it")


def _creates(context: ReconcileContext) -> Iterator[Create]:
    if workload_ref(context.job) not in context.name_conflicts:
        snapshot = context.snapshot
        yield workload_create(context.job, priorities=snapshot.priorities, workload_priorities=snapshot.workload_priorities)


def _priority_patches(context: ReconcileContext, workload: Workload) -> tuple[Patch, ...]:
    """The patch of the priority of a Workload that waits. Kueue restricts later changes."""
    snapshot = context.snapshot
    priority = workload_priority(context.job, priorities=snapshot.priorities, workload_priorities=snapshot.workload_priorities)
    current = {"priority": workload.spec.priority, "priorityClassRef": workload.spec.priority_class_ref}
    patch = {name: priority.get(name) for name, value in current.items() if priority.get(name) != value}
    if not patch or holds_quota(workload):
        return ()
    return (Patch(WORKLOADS, workload.metadata.uid, {"metadata": {"name": workload.metadata.name}, "spec": patch}),)


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


def release_reports(workload: Workload, *, now: float) -> tuple[Report, ...]:
    """Returns the quota of a Workload that was evicted, or that finalizers keep. The job has no pods."""
    is_lost = true_condition(workload, "Evicted") or workload.metadata.deletion_timestamp is not None
    return _report(workload, released_status(workload, now=now)) if is_lost and holds_quota(workload) and not is_finished(workload) else ()


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
    """Reports whether a job with a queue runs. Only a stored phase proves that it does not: the cache of pods may be stale."""
    workload = context.workload
    is_known = phase is Phase.RUNNING or phase is context.stored.phase is Phase.RESTARTING
    if workload is None or not is_known or not is_admitted(workload):
        return ()
    return _report(workload, ready_status(workload, is_running=phase is Phase.RUNNING, now=context.now))


def finished_reports(context: ReconcileContext) -> tuple[Report, ...]:
    """Returns the quota of a finished job."""
    workload, phase = context.workload, context.stored.phase
    if workload is None or phase is None:
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
