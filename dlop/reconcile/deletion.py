"""Which pods, services and other children to delete, and when to force-delete a pod.

A pod is not deleted while the stored record claims it; see `dlop/api/record.py`.

Drift: a pod that was rendered from an older spec and has not started is replaced; a running pod keeps its spec. A service is replaced if
its ports have changed. Drift is computed only in passes that see a new generation. The record stores the generation that was seen last,
and is written in the pass that deletes the drifted pods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

from dlop.api.constants import JOB_UID_LABEL, SPOT_ANNOTATION, TEMPLATE_HASH_ANNOTATION
from dlop.api.gang import POD_GROUPS, pod_group_of
from dlop.api.progress import Progress, ReplicaState
from dlop.api.spec import RoleSpec
from dlop.api.spot_replicas import disruptions_of, has_fallen_back
from dlop.api.template_hash import parse_template_hash
from dlop.api.types import ForceDeletion
from dlop.kube.objects import KubeObject, Pod, Service
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Delete
from dlop.reconcile.pod_state import has_started

RETRY_DELETE_AFTER_SECONDS = 5
"""Time for a delete without a grace period to complete."""


def stale_and_accounted_pods(context: ReconcileContext) -> Iterator[Pod]:
    """Pods that are replaced and whose results are stored in the record."""
    yield from context.stale_pods
    yield from context.accounted_pods


def unclaimed_surplus_pods(context: ReconcileContext) -> tuple[Pod, ...]:
    """Pods that the spec does not contain, once the stored record no longer claims them. Their deletion is not a disruption."""
    return context.surplus_pods if context.surplus_pods and _claims_are_released(context) else ()


def _claims_are_released(context: ReconcileContext) -> bool:
    """Whether the stored record claims only desired pods, under their desired names."""
    return context.record_builder().build().started_indexes == context.stored.record.started_indexes


def surplus_services(context: ReconcileContext) -> Iterator[Service]:
    """Services that belong neither to a replica or member nor to the child objects of the kind."""
    children = {create.name for create in context.child_objects if create.resource == SERVICES}
    members = context.job.members
    for service in context.snapshot.services:
        is_of_member = members is not None and members.identify(service.metadata.labels) is not None
        if service.metadata.name not in context.desired_services and service.metadata.name not in children and not is_of_member:
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
    return _child_deletes(context, context.ephemeral_resources, lambda _: True)


def obsolete_deletes(context: ReconcileContext) -> tuple[Delete, ...]:
    """Deletes for children that the job no longer needs and that do not go with it. A PodGroup is kept as long as it has pods."""
    if not context.snapshot.children:
        return ()  # the common case
    return _child_deletes(
        context, context.pruned_resources, lambda ref: ref not in context.desired_children and not _has_members(context, ref)
    )


def _has_members(context: ReconcileContext, ref: tuple[Resource, str]) -> bool:
    return ref[0] in POD_GROUPS and any(pod_group_of(pod) == ref for pod in context.snapshot.pods)


def _child_deletes(
    context: ReconcileContext, resources: Collection[Resource], is_deleted: Callable[[tuple[Resource, str]], bool]
) -> tuple[Delete, ...]:
    return tuple(
        _delete(resource, child)
        for resource, child in context.snapshot.children
        if resource in resources and child.metadata.deletion_timestamp is None and is_deleted((resource, child.metadata.name))
    )


def retried_deletes(context: ReconcileContext) -> tuple[Delete, ...]:
    """Deletes for pods whose deletion was interrupted.

    The API server deletes a pod without a grace period in two steps: it marks the pod as terminating, and then removes it. If the server
    stops or the client disconnects in between, the pod stays until it is deleted again. This includes pods of a deleted job of the same
    name, whose names this job needs. Only finalizers keep a pod legitimately.
    """
    return tuple(
        Delete(PODS, name, uid, grace_seconds=0, is_retry=True) for name, uid, due in _interrupted_deletes(context) if context.now >= due
    )


def next_retried_deletes(context: ReconcileContext) -> Iterator[float]:
    """The times at which interrupted deletes will be retried."""
    return (due for _, _, due in _interrupted_deletes(context) if context.now < due)


def _interrupted_deletes(context: ReconcileContext) -> Iterator[tuple[str, str, float]]:
    """Name and UID of each pod, and the time at which it should be gone."""
    for pod in context.snapshot.all_pods:
        metadata = pod.metadata
        deleted_at = metadata.deletion_timestamp
        if deleted_at is not None and metadata.deletion_grace_period_seconds == 0 and not metadata.finalizers:
            yield metadata.name, metadata.uid, deleted_at.timestamp() + RETRY_DELETE_AFTER_SECONDS
    for conflict in context.snapshot.terminating_conflicts:
        if conflict.resource == PODS and conflict.is_terminating and conflict.grace_seconds == 0 and not conflict.finalizers:
            yield conflict.name, conflict.uid, conflict.since + RETRY_DELETE_AFTER_SECONDS


def force_deletes(context: ReconcileContext, pods: Iterable[Pod]) -> tuple[Delete, ...]:
    """Force deletes for pods whose deletion is overdue, if `--force-deletion` and the state of their nodes allow it."""
    needs_down_node = context.job.options.force_deletion is ForceDeletion.NODE_DOWN
    return tuple(
        replace(_delete(PODS, pod, grace_seconds=0), cause=cause, down_node=pod.spec.node_name if needs_down_node else "")
        for pod, due in _deletion_deadlines(context, pods)
        if context.now >= due and (cause := _force_deletion_cause(context, pod))
    )


def overdue_pods(context: ReconcileContext) -> Iterator[Pod]:
    """Desired pods whose deletion is overdue and that are not force-deleted."""
    for pod, due in _deletion_deadlines(context, context.snapshot.pods):
        if context.now >= due and context.is_desired(PODS, pod.metadata.name) and not _force_deletion_cause(context, pod):
            yield pod


def next_deletion_deadlines(context: ReconcileContext, pods: Iterable[Pod]) -> Iterator[float]:
    """The times at which the deletions of terminating pods become overdue. A node that goes down later causes a pass as well."""
    return (due for _, due in _deletion_deadlines(context, pods) if context.now < due)


def _deletion_deadlines(context: ReconcileContext, pods: Iterable[Pod]) -> Iterator[tuple[Pod, float]]:
    """Terminating pods with a grace period. Without one, see `retried_deletes`."""
    timeout = context.policy.node_lost_seconds
    if timeout is None:
        return
    for pod in pods:
        deletion_timestamp = pod.metadata.deletion_timestamp
        if deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds != 0:
            yield pod, deletion_timestamp.timestamp() + timeout


def _force_deletion_cause(context: ReconcileContext, pod: Pod) -> str:
    """Why an overdue pod is force-deleted; empty if it is not."""
    mode, node = context.job.options.force_deletion, pod.spec.node_name
    if mode is ForceDeletion.NODE_DOWN and node in context.snapshot.down_nodes:
        return f"node {node} {context.snapshot.down_nodes[node]}"
    if mode is ForceDeletion.TIMEOUT:
        timeout = context.policy.node_lost_seconds
        return f"the deletion was not confirmed within {timeout} seconds after the grace period; the node was not checked"
    return ""


def _delete(resource: Resource, child: KubeObject, *, grace_seconds: int | None = None, resource_version: str | None = None) -> Delete:
    return Delete(resource, child.metadata.name, child.metadata.uid, grace_seconds=grace_seconds, resource_version=resource_version)


# --- drift ---------------------------------------------------------------------------------------------------------------


def drifted_pods(context: ReconcileContext, progress: Progress) -> tuple[Pod, ...]:
    """Pods that have not started and would be rendered differently now."""
    if not context.may_have_drifted:
        return ()
    return tuple(
        replica.pod
        for role in progress.roles
        for replica in role.replicas
        if replica.state is ReplicaState.PENDING and replica.pod is not None and _is_drifted(context, replica.pod, role.spec, replica.index)
    )


def pending_spot_pods(context: ReconcileContext, progress: Progress) -> tuple[Pod, ...]:
    """Spot pods that have not started, of roles whose replicas are created on demand according to the stored record."""
    pods: list[Pod] = []
    for role in progress.roles:
        spot = role.spec.spot
        if spot is not None and has_fallen_back(spot, disruptions_of(role.spec, context.stored.record)):
            pending = (each.pod for each in role.replicas if each.state is ReplicaState.PENDING and each.pod is not None)
            pods += [pod for pod in pending if SPOT_ANNOTATION in pod.metadata.annotations and not has_started(pod, role.spec)]
    return tuple(pods)


def drifted_services(context: ReconcileContext) -> Iterator[Service]:
    """Services that would have other ports now. When dlop takes over a job, those of the other operator are kept: its pods use them."""
    if not context.may_have_drifted:
        return
    is_new = not context.stored.record.observed_generation
    for service in context.snapshot.services:
        if is_new and JOB_UID_LABEL not in service.metadata.labels:
            continue
        replica = context.desired_services.get(service.metadata.name)
        body = None if replica is None else context.job.replica(replica.role, replica.index).service()
        if body is not None and _ports(body) != {(port.name, port.port) for port in service.spec.ports}:
            yield service


def _ports(service: JsonObject) -> set[tuple[str, int]]:
    return {(port.get("name", ""), port["port"]) for port in service["spec"].get("ports") or ()}


def _is_drifted(context: ReconcileContext, pod: Pod, role: RoleSpec, index: int) -> bool:
    """A pod of a newer generation never counts as drifted: it was created by an instance whose cache is ahead of this one."""
    generation, digest = parse_template_hash(pod.metadata.annotations.get(TEMPLATE_HASH_ANNOTATION, ""))
    if not digest or generation >= context.job.metadata.generation or has_started(pod, role):
        return False
    body = context.job.replica(role, index, attempt=context.attempts[role.name]).pod()
    return parse_template_hash(body["metadata"]["annotations"][TEMPLATE_HASH_ANNOTATION])[1] != digest
