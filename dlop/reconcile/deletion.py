"""Which pods, services and other children to delete, and when to force-delete a pod.

A pod is not deleted while the stored record claims it; see `dlop/api/record.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dlop.api.gang import POD_GROUPS, pod_group_of
from dlop.kube.objects import KubeObject, Pod, Service
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Delete


def stale_and_accounted_pods(context: ReconcileContext) -> Iterator[Pod]:
    """Pods that are replaced and whose results are stored in the record."""
    accounted = frozenset(context.stored.record.accounted_pods)
    yield from context.stale_pods
    yield from (pod for pod in context.snapshot.pods if pod.metadata.uid in accounted and pod not in context.stale_pods)


def unclaimed_surplus_pods(context: ReconcileContext) -> tuple[Pod, ...]:
    """Pods that the spec does not contain, once the stored record no longer claims them. Their deletion is not a disruption.

    Accounted pods are deleted anyway and not listed here.
    """
    if not context.surplus_pods or not _claims_are_released(context):
        return ()
    accounted = frozenset(context.stored.record.accounted_pods)
    return tuple(pod for pod in context.surplus_pods if pod.metadata.uid not in accounted)


def _claims_are_released(context: ReconcileContext) -> bool:
    """Whether the stored record claims only desired pods, under their desired names."""
    return context.record_builder().build(live_uids=()).started_indexes == context.stored.record.started_indexes


def surplus_services(context: ReconcileContext) -> Iterator[Service]:
    """Services that belong neither to a replica nor to the child objects of the kind."""
    children = {create.name for create in context.child_objects if create.resource == SERVICES}
    for service in context.snapshot.services:
        if service.metadata.name not in context.desired_services and service.metadata.name not in children:
            yield service


def deletes_of(pods: Iterable[Pod], services: Iterable[KubeObject] = ()) -> tuple[Delete, ...]:
    """Deletes for these objects, except those that are terminating already."""
    objects = [*((PODS, pod) for pod in pods), *((SERVICES, service) for service in services)]
    return tuple(_delete(resource, child) for resource, child in objects if child.metadata.deletion_timestamp is None)


def deletes_if_unchanged(pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """Deletes for these pods with their resource versions as preconditions."""
    return tuple(_delete(PODS, pod, resource_version=pod.metadata.resource_version or None) for pod in pods)


def ephemeral_deletes(context: ReconcileContext) -> tuple[Delete, ...]:
    """Deletes for all ephemeral children, for a job that is suspended or finished."""
    return _child_deletes(context, lambda _: True)


def obsolete_deletes(context: ReconcileContext) -> tuple[Delete, ...]:
    """Deletes for ephemeral children that the job no longer needs. A PodGroup is kept as long as it has pods."""
    return _child_deletes(context, lambda ref: ref not in context.desired_children and not _has_members(context, ref))


def _has_members(context: ReconcileContext, ref: tuple[Resource, str]) -> bool:
    return ref[0] in POD_GROUPS and any(pod_group_of(pod) == ref for pod in context.snapshot.pods)


def _child_deletes(context: ReconcileContext, is_deleted: Callable[[tuple[Resource, str]], bool]) -> tuple[Delete, ...]:
    resources = context.ephemeral_resources
    return tuple(
        _delete(resource, child)
        for resource, child in context.snapshot.children
        if resource in resources and child.metadata.deletion_timestamp is None and is_deleted((resource, child.metadata.name))
    )


def force_deletes(context: ReconcileContext, pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """Force deletes for terminating pods whose nodes have not confirmed the deletion in time."""
    return tuple(_delete(PODS, pod, grace_seconds=0) for pod, due in _force_delete_times(context, pods) if context.now >= due)


def next_force_deletes(context: ReconcileContext, pods: Iterable[Pod]) -> Iterator[float]:
    """The times at which terminating pods will be force-deleted."""
    return (due for _, due in _force_delete_times(context, pods) if context.now < due)


def _force_delete_times(context: ReconcileContext, pods: Iterable[Pod]) -> Iterator[tuple[Pod, float]]:
    """Terminating pods. One that was force-deleted already is skipped, because only finalizers keep it."""
    timeout = context.policy.node_lost_seconds
    if timeout is None:
        return
    for pod in pods:
        deletion_timestamp = pod.metadata.deletion_timestamp
        if deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds != 0:
            yield pod, deletion_timestamp.timestamp() + timeout


def _delete(resource: Resource, child: KubeObject, *, grace_seconds: int | None = None, resource_version: str | None = None) -> Delete:
    return Delete(resource, child.metadata.name, child.metadata.uid, grace_seconds=grace_seconds, resource_version=resource_version)
