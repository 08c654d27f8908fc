"""Which pods, services and other objects have to go, and when one has to go by force.

Nothing is deleted that the stored record still counts on: see `record.py`.

What is there and no longer asked for: replicas beyond the asked number, roles that were taken out of the spec.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dlop.api.gang import POD_GROUPS, group_of
from dlop.kube.objects import KubeObject, Pod, Service
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Delete


def outdated_and_written_off(case: ReconcileContext) -> Iterator[Pod]:
    """Pods that are to be replaced, now that their end has been written down."""
    written_off = frozenset(case.stored.record.written_off)
    yield from case.outdated
    yield from (pod for pod in case.snapshot.pods if pod.metadata.uid in written_off and pod not in case.outdated)


def deletions(pods: Iterable[Pod], services: Iterable[KubeObject] = ()) -> tuple[Delete, ...]:
    """To delete these, save those that are being deleted already."""
    found = [*((PODS, pod) for pod in pods), *((SERVICES, service) for service in services)]
    return tuple(_deletion(resource, each) for resource, each in found if each.metadata.deletion_timestamp is None)


def passing(case: ReconcileContext) -> tuple[Delete, ...]:
    """To delete those other objects that are only for a job that goes on."""
    return _others(case, lambda _: True)


def passed(case: ReconcileContext) -> tuple[Delete, ...]:
    """To delete those of them that the job does not ask for any more. A group goes after its last pod, which may yet have to be placed."""
    return _others(case, lambda place: place not in case.other_places and not _has_members(case, place))


def _has_members(case: ReconcileContext, place: tuple[Resource, str]) -> bool:
    return place[0] in POD_GROUPS and any(group_of(pod) == place for pod in case.snapshot.pods)


def _others(case: ReconcileContext, goes: Callable[[tuple[Resource, str]], bool]) -> tuple[Delete, ...]:
    resources = case.passing_resources
    found = ((resource, each) for resource, each in case.snapshot.others if resource in resources)
    return tuple(
        _deletion(resource, each)
        for resource, each in found
        if each.metadata.deletion_timestamp is None and goes((resource, each.metadata.name))
    )


def deletions_if_unchanged(pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """To delete these, save those to which anything happens in the meantime."""
    return tuple(_deletion(PODS, pod, resource_version=pod.metadata.resource_version or None) for pod in pods)


def overdue(case: ReconcileContext, pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """To remove by force those pods whose nodes do not say that they are gone, long after they should be."""
    return tuple(_deletion(PODS, pod, grace_seconds=0) for pod, due in _dues(case, pods) if case.now >= due)


def next_overdue(case: ReconcileContext, pods: Iterable[Pod]) -> Iterator[float]:
    """When pods that are on their way out become overdue."""
    return (due for _, due in _dues(case, pods) if case.now < due)


def _dues(case: ReconcileContext, pods: Iterable[Pod]) -> Iterator[tuple[Pod, float]]:
    """Pods that are on their way out. Where force was used already, what is left are finalizers of somebody else."""
    patience = case.policy.node_lost_seconds
    if patience is None:
        return
    for pod in pods:
        leaving_until = pod.metadata.deletion_timestamp
        if leaving_until is not None and pod.metadata.deletion_grace_period_seconds != 0:
            yield pod, leaving_until.timestamp() + patience


def _deletion(resource: Resource, found: KubeObject, *, grace_seconds: int | None = None, resource_version: str | None = None) -> Delete:
    return Delete(resource, found.metadata.name, found.metadata.uid, grace_seconds=grace_seconds, resource_version=resource_version)


def surplus_pods(case: ReconcileContext) -> tuple[Pod, ...]:
    """Pods that the spec does not ask for, once the stored record no longer claims them: their deletion is not a disruption.

    Pods that are accounted for are deleted anyway.
    """
    if not case.surplus or not _claims_are_released(case):
        return ()
    accounted = frozenset(case.stored.record.written_off)
    return tuple(pod for pod in case.surplus if pod.metadata.uid not in accounted)


def surplus_services(case: ReconcileContext) -> Iterator[Service]:
    """Services that neither a replica nor the kind asks for."""
    others = {creation.name for creation in case.other_objects if creation.resource == SERVICES}
    for service in case.snapshot.services:
        if service.metadata.name not in case.service_names and service.metadata.name not in others:
            yield service


def _claims_are_released(case: ReconcileContext) -> bool:
    """Whether the stored record claims only pods that the spec asks for, under the names that it asks for."""
    return case.record_builder().close(living=()).started == case.stored.record.started
