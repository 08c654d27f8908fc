"""Builds the snapshot of a job from the caches. The cost depends on the size of the job only.

The uid of the controller reference alone decides whether an object belongs to a job. An object without a controller that
carries the job's labels is an orphan. It is adopted after a read confirms that the job still exists. An object of another
owner that holds a name the job needs is a name conflict and is left alone. If a deleted job of the same name owns it, the
job waits until it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.gang import DEFAULT_PRIORITY_CLASS
from dlop.api.kueue import flavors_of
from dlop.api.tensorboard import is_tensorboard, tensorboard_name
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_state import JobState, JobStates
from dlop.controller.kinds import ManagedKind
from dlop.controller.nodes import down_nodes
from dlop.kube.cache import Cache
from dlop.kube.objects import (
    CustomObject,
    KubeObject,
    Node,
    OwnerReference,
    PartialObject,
    Pod,
    PriorityClass,
    ResourceFlavor,
    T,
    Workload,
)
from dlop.kube.resources import NODES, PODS, PRIORITY_CLASSES, RESOURCE_FLAVORS, SERVICES, WORKLOAD_PRIORITY_CLASSES, Resource
from dlop.policies.members import Members
from dlop.reconcile.snapshot import NameConflict, Snapshot, TerminatingConflict


@dataclass(frozen=True, slots=True)
class Orphan:
    resource: Resource
    child: KubeObject


def build_snapshot(
    informers: InformerSet,
    kind: ManagedKind,
    job_object: CustomObject,
    *,
    job_states: JobStates,
    removed: Collection[str] = (),
) -> tuple[Snapshot, tuple[Orphan, ...]]:
    """The snapshot of a job, and the orphans to adopt before it is used. Objects with the UIDs in `removed` are gone."""
    uid = job_object.metadata.uid
    state = job_states.get(uid)
    conflicts = _Conflicts() if state is None else _find_conflicts(informers, job_object, state, job_states)
    unsynced = [resource for resource in kind.needed_resources if not informers.is_synced(resource)]
    unwatched = tuple(resource for resource in unsynced if resource in kind.on_demand_resources and informers.is_unchecked(resource))
    pods = _remaining(informers.pods.owned_by(uid), removed)
    companion = _companion(informers, job_object, removed)
    children = _owned_children(informers, kind, uid, removed)
    snapshot = Snapshot(
        pods=pods if companion is None else tuple(pod for pod in pods if pod is not companion),
        companion=companion,
        pods_version=str(informers.pods.resource_version),
        services=_remaining(informers.services.owned_by(uid), removed),
        children=children,
        forbidden=tuple(resource for resource in unsynced if resource not in unwatched and not informers.is_not_installed(resource)),
        not_installed=tuple(resource for resource in unsynced if informers.is_not_installed(resource)),
        unwatched=unwatched,
        priorities=_priorities(informers, PRIORITY_CLASSES),
        workload_priorities=_priorities(informers, WORKLOAD_PRIORITY_CLASSES),
        flavors=_flavors(informers, children),
        down_nodes=_down_nodes(informers, pods),
        name_conflicts=tuple(conflicts.names),
        terminating_conflicts=tuple(conflicts.terminating),
        shared=frozenset() if state is None else frozenset(state.shared),
        rejected_writes=() if state is None else tuple(state.rejected_writes.values()),
        rejected_status="" if state is None else state.rejected_status,
        **_scale_plans(informers, kind, job_object),
        assigned_host_port=None,
        scale_decision=None if state is None else state.scale_decision,
    )
    return snapshot, (*conflicts.orphans, *_labelled_orphans(informers, kind, job_object))


def _scale_plans(informers: InformerSet, kind: ManagedKind, job_object: CustomObject) -> dict[str, tuple[CustomObject, ...]]:
    """The fields of the snapshot about scale plans; empty for kinds without them."""
    owner = (job_object.metadata.namespace, job_object.metadata.name)
    queues = [informers.scale_plans[resource] for resource in kind.plan_resources if resource in informers.scale_plans]
    return {
        "scale_plans": tuple(plan for queue in queues for plan in queue.first(owner)),
        "failed_scale_plans": tuple(plan for queue in queues for plan in queue.failed(owner)),
    }


def _remaining(children: Iterable[T], removed: Collection[str]) -> tuple[T, ...]:
    return tuple(child for child in children if child.metadata.uid not in removed) if removed else tuple(children)


def _companion(informers: InformerSet, job_object: CustomObject, removed: Collection[str]) -> Pod | None:
    """The pod of the TensorBoard of a job. It is found by name, because most jobs have none."""
    metadata = job_object.metadata
    pod = informers.pods.get(tensorboard_name(metadata.name), namespace=metadata.namespace)
    if pod is None or pod.metadata.uid in removed or not is_tensorboard(pod.metadata):
        return None
    owner = pod.metadata.controller
    return pod if owner is not None and owner.uid == metadata.uid else None


def _owned_children(
    informers: InformerSet, kind: ManagedKind, uid: str, removed: Collection[str]
) -> tuple[tuple[Resource, PartialObject], ...]:
    owned: list[tuple[Resource, PartialObject]] = []
    for resource in kind.child_resources + kind.legacy_resources:
        cache = informers.cache(resource)
        owned += [] if cache is None else [(resource, child) for child in _remaining(cache.owned_by(uid), removed)]
    return tuple(owned)


def _priorities(informers: InformerSet, resource: Resource) -> dict[str, int]:
    """Values of the priority classes by name; empty if they are not watched."""
    cache: Cache[PriorityClass] | None = informers.cache(resource)
    if cache is None:
        return {}
    # With several global defaults the API server uses the lowest one.
    default = min((priority.value for priority in cache if priority.global_default), default=0)
    return {DEFAULT_PRIORITY_CLASS: default, **{priority.metadata.name: priority.value for priority in cache}}


def _flavors(informers: InformerSet, children: Iterable[tuple[Resource, PartialObject]]) -> dict[str, ResourceFlavor]:
    """The known ResourceFlavors of the Workloads among the children of a job."""
    names = [name for _, child in children if isinstance(child, Workload) for name in flavors_of(child)]
    cached = ((name, informers.child(RESOURCE_FLAVORS, namespace="", name=name)) for name in names)
    return {name: flavor for name, flavor in cached if isinstance(flavor, ResourceFlavor)}


def _down_nodes(informers: InformerSet, pods: tuple[Pod, ...]) -> dict[str, str]:
    """Empty where nodes are not watched or cannot be read."""
    cache: Cache[Node] | None = informers.cache(NODES) if informers.is_synced(NODES) else None
    return {} if cache is None else down_nodes(cache, pods)


def _labelled_orphans(informers: InformerSet, kind: ManagedKind, job_object: CustomObject) -> tuple[Orphan, ...]:
    if job_object.metadata.deletion_timestamp is not None:
        return ()
    orphans: list[Orphan] = []
    for resource in (PODS, SERVICES, *kind.child_resources):
        cache = informers.cache(resource)
        if cache is None:
            continue
        labelled = cache.orphans(JOB_UID_LABEL, job_object.metadata.uid, namespace=job_object.metadata.namespace)
        orphans += [Orphan(resource, child) for child in labelled if _is_adoptable(child)]
    if kind.members is not None:
        created = informers.pods.orphans(kind.members.name_label, job_object.metadata.name, namespace=job_object.metadata.namespace)
        orphans += [Orphan(PODS, pod) for pod in created if _is_adoptable(pod) and _is_member(pod, kind.members, job_object)]
    return tuple(orphans)


def _is_member(pod: Pod, members: Members[Any], job_object: CustomObject) -> bool:
    """Whether the master of the job created a pod: it is a member, and has an owner reference to the job, which is not its controller."""
    return _is_owned(pod, job_object) and members.identify(pod.metadata.labels) is not None


# --- name conflicts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Conflicts:
    """Objects that hold names the job needs."""

    names: list[NameConflict] = field(default_factory=list)
    terminating: list[TerminatingConflict] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)


def _find_conflicts(informers: InformerSet, job_object: CustomObject, state: JobState, job_states: JobStates) -> _Conflicts:
    """Check the recorded conflicts against the caches and clear those that are resolved."""
    conflicts = _Conflicts()
    for (resource, name), labels in list(state.name_conflicts.items()):
        child = informers.child(resource, namespace=job_object.metadata.namespace, name=name)
        owner = None if child is None else child.metadata.controller
        if child is None or (owner is not None and owner.uid == job_object.metadata.uid):
            job_states.clear_conflict(job_object.metadata.uid, resource, name)
        elif owner is None and _is_adoptable(child) and (_has_labels(child, labels) or _is_owned(child, job_object)):
            conflicts.orphans.append(Orphan(resource, child))
        elif owner is not None and state.key.is_referenced_by(owner):
            conflicts.terminating.append(_terminating_conflict(resource, child, owner, job_object))
        else:
            conflicts.names.append(NameConflict(resource, name, _describe(owner)))
    return conflicts


def _terminating_conflict(resource: Resource, child: KubeObject, owner: OwnerReference, job_object: CustomObject) -> TerminatingConflict:
    deleted_at = child.metadata.deletion_timestamp
    since = deleted_at or job_object.metadata.creation_timestamp
    return TerminatingConflict(
        resource=resource,
        name=child.metadata.name,
        owner=_describe(owner),
        uid=child.metadata.uid,
        finalizers=child.metadata.finalizers,
        grace_seconds=child.metadata.deletion_grace_period_seconds,
        is_terminating=deleted_at is not None,
        since=0.0 if since is None else since.timestamp(),
    )


def _is_adoptable(child: KubeObject) -> bool:
    return child.metadata.controller is None and child.metadata.deletion_timestamp is None


def _is_owned(child: KubeObject, job_object: CustomObject) -> bool:
    """Whether an object has an owner reference to the job, which may not be its controller."""
    return any(owner.uid == job_object.metadata.uid for owner in child.metadata.owner_references)


def _has_labels(child: KubeObject, labels: Mapping[str, str]) -> bool:
    return bool(labels) and all(child.metadata.labels.get(name) == value for name, value in labels.items())


def _describe(owner: OwnerReference | None) -> str:
    return "" if owner is None else f"{owner.kind} {owner.name}"
