"""What is left to do for a job that has come to its end: take away what it no longer needs, and itself after a while."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.api.constants import Reason
from dlop.api.spec import CleanPodPolicy
from dlop.kube.objects import Pod, Service
from dlop.kube.timestamps import earliest
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.deletion import deletions, next_overdue, overdue, passing
from dlop.reconcile.events import of_groups
from dlop.reconcile.plan import Event, EventType, Plan


def plan_finished(case: ReconcileContext) -> Plan:
    """Clean up, and delete the job when its time has come. The status is never touched again."""
    expires_at = _expires_at(case)
    if expires_at is not None and case.now >= expires_at:
        return Plan(delete_job=True)
    pods = tuple(_pods_to_go(case))
    gone = deletions(pods, _services_to_go(case)) + overdue(case, pods) + passing(case)
    return Plan(
        deletions=gone,
        events=(*_events(sum(1 for pod in pods if pod.metadata.deletion_timestamp is None)), *of_groups(gone)),
        look_again_at=earliest(expires_at, *next_overdue(case, pods)),
    )


def _expires_at(case: ReconcileContext) -> float | None:
    seconds = case.policy.ttl_seconds_after_finished
    return None if seconds is None or case.stored.finished_at is None else case.stored.finished_at + seconds


def _pods_to_go(case: ReconcileContext) -> Iterator[Pod]:
    for pod in case.snapshot.pods:
        if _goes(case.policy.clean_pod_policy, pod):
            yield pod


def _goes(policy: CleanPodPolicy, pod: Pod) -> bool:
    if policy is CleanPodPolicy.RUNNING:
        return pod.status.phase not in ("Succeeded", "Failed")
    return policy is CleanPodPolicy.ALL


def _services_to_go(case: ReconcileContext) -> Iterator[Service]:
    """A service goes with its pod; where the pod stays for its logs, so does the service."""
    if case.policy.clean_pod_policy is CleanPodPolicy.NONE:
        return
    staying = {name for name, pod in case.pods.items() if not _goes(case.policy.clean_pod_policy, pod)}
    for service in case.snapshot.services:
        replica = case.service_names.get(service.metadata.name)
        if replica is not None and case.job.replica_name(replica.role, replica.index) not in staying:
            yield service


def _events(deleted: int) -> tuple[Event, ...]:
    if not deleted:
        return ()
    return (Event(EventType.NORMAL, Reason.DELETED_PODS, f"Deleted {deleted} pod{'s' if deleted > 1 else ''} of the finished job"),)
