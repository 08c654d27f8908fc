"""Cleanup of finished jobs: pods and services by clean-pod policy, ephemeral children, and the job itself after its TTL."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import Reason
from dlop.api.phase import Phase
from dlop.api.spec import CleanPodPolicy
from dlop.kube.objects import Pod, Service
from dlop.kube.timestamps import earliest
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.deletion import (
    deletes_of,
    ephemeral_deletes,
    force_deletes,
    next_deletion_deadlines,
    next_retried_deletes,
    retried_deletes,
)
from dlop.reconcile.events import pod_group_events
from dlop.reconcile.kueue import finished_reports
from dlop.reconcile.plan import Event, EventType, Plan
from dlop.reconcile.scale_plans import last_scale_step
from dlop.reconcile.tensorboard import finished_tensorboard_step


def plan_finished(context: ReconcileContext) -> Plan:
    """Plan a pass over a finished job. Its status is not written again."""
    expires_at = _expires_at(context)
    if expires_at is not None and context.now >= expires_at:
        return Plan(delete_job=True)
    policy = context.job.lifecycle.clean_pod_policy(context.job, succeeded=context.stored.phase is Phase.SUCCEEDED)
    pods = tuple(pod for pod in context.snapshot.pods if _is_cleaned(policy, pod))
    companion = context.snapshot.companion
    deleted_pods = pods if companion is None else (*pods, companion)
    overdue = retried_deletes(context) + force_deletes(context, deleted_pods)
    step, tensorboard = last_scale_step(context), finished_tensorboard_step(context)
    deletes = deletes_of(pods, _services_to_clean(context, policy)) + overdue + ephemeral_deletes(context) + step.deletes
    return Plan(
        deletes=deletes + tensorboard.deletes,
        companions=tensorboard.creates,
        reports=step.reports,
        quota_reports=finished_reports(context),
        watch=context.unwatched,
        events=(
            *_events(sum(1 for pod in pods if pod.metadata.deletion_timestamp is None)),
            *pod_group_events(deletes),
            *tensorboard.events,
        ),
        requeue_at=earliest(
            expires_at, tensorboard.requeue_at, *next_retried_deletes(context), *next_deletion_deadlines(context, deleted_pods)
        ),
    )


def _expires_at(context: ReconcileContext) -> float | None:
    seconds = context.policy.ttl_seconds_after_finished
    return None if seconds is None or context.stored.finished_at is None else context.stored.finished_at + seconds


def _is_cleaned(policy: CleanPodPolicy, pod: Pod) -> bool:
    if policy is CleanPodPolicy.RUNNING:
        return pod.status.phase not in ("Succeeded", "Failed")
    return policy is CleanPodPolicy.ALL


def _services_to_clean(context: ReconcileContext, policy: CleanPodPolicy) -> Iterator[Service]:
    """A service is deleted with its pod. If the pod is kept for its logs, the service is kept as well."""
    if policy is CleanPodPolicy.NONE:
        return
    kept = {name for name, pod in context.pods.items() if not _is_cleaned(policy, pod)}
    kept_ranks = {(each.member.role, each.member.rank) for each in context.members.values() if not _is_cleaned(policy, each.pod)}
    members, job = context.job.members, context.job
    for service in context.snapshot.services:
        replica = context.desired_services.get(service.metadata.name)
        if replica is not None:
            is_kept = job.naming.pod_name(job, replica.role, replica.index) in kept
        else:
            member = None if members is None else members.identify(service.metadata.labels)
            is_kept = member is None or (member.role, member.rank) in kept_ranks
        if not is_kept:
            yield service


def _events(deleted: int) -> tuple[Event, ...]:
    if not deleted:
        return ()
    return (Event(EventType.NORMAL, Reason.DELETED_PODS, f"Deleted {deleted} pod{'s' if deleted > 1 else ''} of the finished job"),)
