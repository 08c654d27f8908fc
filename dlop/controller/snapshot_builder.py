"""From the caches to a snapshot: all that is known of one job's children. It costs as much as the job is large.

What belongs to a job is decided by the uid of the controller reference alone. An object without a controller that bears
the job's labels is an orphan: it is adopted, after a look at the server that the job is still there. An object of
somebody else with a name that the job needs is reported and left alone; one of a deleted job of the same name is waited for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.gang import DEFAULT_CLASS
from dlop.controller.informer_set import InformerSet
from dlop.controller.job_state import JobState, JobStates
from dlop.controller.kinds import ManagedKind
from dlop.kube.cache import Cache
from dlop.kube.objects import CustomObject, KubeObject, OwnerReference, PartialObject, PriorityClass
from dlop.kube.resources import PODS, PRIORITY_CLASSES, SERVICES, Resource
from dlop.reconcile.snapshot import NameConflict, Snapshot, TerminatingConflict


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object that seems to be the job's and says so no more."""

    resource: Resource
    found: KubeObject


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a pass begins with."""

    snapshot: Snapshot
    orphans: tuple[Orphan, ...]


def gather(scope: InformerSet, kind: ManagedKind, found: CustomObject, *, memories: JobStates) -> Gathered:
    """Everything that is known of a job's children."""
    uid = found.metadata.uid
    memory = memories.find(uid)
    taken = _Taken() if memory is None else _taken_names(scope, found, memory, memories)
    snapshot = Snapshot(
        pods=tuple(scope.pods.owned_by(uid)),
        services=tuple(scope.services.owned_by(uid)),
        others=_others(scope, kind, uid),
        unreadable=tuple(resource for resource in kind.other_resources if not scope.shows(resource)),
        unserved=tuple(resource for resource in kind.other_resources if scope.is_unserved(resource)),
        priorities=_priorities(scope, kind),
        foreign=tuple(taken.foreign),
        leftovers=tuple(taken.leftovers),
        lent=frozenset() if memory is None else frozenset(memory.lent),
        refusals=() if memory is None else tuple(memory.refusals.values()),
    )
    return Gathered(snapshot, (*taken.orphans, *_labelled_orphans(scope, kind, found)))


def _others(scope: InformerSet, kind: ManagedKind, uid: str) -> tuple[tuple[Resource, PartialObject], ...]:
    owned: list[tuple[Resource, PartialObject]] = []
    for resource in kind.other_resources + kind.former_resources:
        cache = scope.cache(resource)
        owned += [] if cache is None else [(resource, child) for child in cache.owned_by(uid)]
    return tuple(owned)


def _priorities(scope: InformerSet, kind: ManagedKind) -> dict[str, int]:
    """The values of priority classes, where jobs of the kind care."""
    cache: Cache[PriorityClass] | None = scope.cache(PRIORITY_CLASSES) if PRIORITY_CLASSES in kind.seen_resources else None
    if cache is None:
        return {}
    # If there are several defaults, the API server takes the lowest.
    default = min((each.value for each in cache if each.global_default), default=0)
    return {DEFAULT_CLASS: default, **{each.metadata.name: each.value for each in cache}}


def _labelled_orphans(scope: InformerSet, kind: ManagedKind, found: CustomObject) -> tuple[Orphan, ...]:
    if found.metadata.deletion_timestamp is not None:
        return ()
    orphans: list[Orphan] = []
    for resource in (PODS, SERVICES, *kind.other_resources):
        cache = scope.cache(resource)
        if cache is None:
            continue
        labelled = cache.labelled(JOB_UID_LABEL, found.metadata.uid, namespace=found.metadata.namespace)
        orphans += [Orphan(resource, child) for child in labelled if _is_ownerless(child)]
    return tuple(orphans)


# --- names that are taken ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Taken:
    """Who has the names that are taken."""

    foreign: list[NameConflict] = field(default_factory=list)
    leftovers: list[TerminatingConflict] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)


def _taken_names(scope: InformerSet, found: CustomObject, memory: JobState, memories: JobStates) -> _Taken:
    taken = _Taken()
    for (resource, name), labels in list(memory.taken.items()):
        child = scope.child(resource, namespace=found.metadata.namespace, name=name)
        owner = None if child is None else child.metadata.controller
        if child is None or (owner is not None and owner.uid == found.metadata.uid):
            memories.is_free(found.metadata.uid, resource, name)
        elif owner is None and _is_ownerless(child) and _bears(child, labels):
            taken.orphans.append(Orphan(resource, child))
        elif owner is not None and memory.key.is_named_by(owner):
            taken.leftovers.append(_leftover(resource, child, owner, found))
        else:
            taken.foreign.append(NameConflict(resource, name, _described(owner)))
    return taken


def _leftover(resource: Resource, child: KubeObject, owner: OwnerReference, found: CustomObject) -> TerminatingConflict:
    leaving = child.metadata.deletion_timestamp
    since = leaving or found.metadata.creation_timestamp
    return TerminatingConflict(
        resource=resource,
        name=child.metadata.name,
        owner=_described(owner),
        finalizers=child.metadata.finalizers,
        is_leaving=leaving is not None,
        since=0.0 if since is None else since.timestamp(),
    )


def _is_ownerless(child: KubeObject) -> bool:
    return child.metadata.controller is None and child.metadata.deletion_timestamp is None


def _bears(child: KubeObject, labels: Mapping[str, str]) -> bool:
    return bool(labels) and all(child.metadata.labels.get(name) == value for name, value in labels.items())


def _described(owner: OwnerReference | None) -> str:
    return "" if owner is None else f"{owner.kind} {owner.name}"
