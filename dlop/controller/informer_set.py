"""The informers of one namespace, or of all: pods, services, jobs and other resources that jobs own or read.

Each set has its own read-your-writes gate. No job is reconciled before the caches of its set show the last write for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from random import Random
from typing import Any

from dlop.api.constants import (
    GROUP_ANNOTATION,
    JOB_UID_LABEL,
    LAST_APPLIED_ANNOTATION,
    REPLACEMENT_ANNOTATION,
    REQUESTS_ANNOTATION,
    SIZE_ANNOTATION,
    SPOT_ANNOTATION,
    TEMPLATE_HASH_ANNOTATION,
)
from dlop.api.gang import POD_GROUPS
from dlop.api.kueue import flavors_of
from dlop.api.tensorboard import TENSORBOARD_ANNOTATION
from dlop.controller.cluster_capacity import ClusterCapacity
from dlop.controller.kinds import ManagedKind
from dlop.controller.nodes import node_problem
from dlop.controller.record_gate import RecordGate
from dlop.controller.scale_plan_queue import Owner, ScalePlanQueue
from dlop.kube.cache import Cache, CacheChange
from dlop.kube.client import Client
from dlop.kube.informer import Handler, Informer, InformerTimings
from dlop.kube.objects import (
    CustomObject,
    KubeObject,
    Node,
    PartialObject,
    Pod,
    PodGroup,
    PriorityClass,
    ResourceFlavor,
    Service,
    SizedPod,
    T,
    Workload,
)
from dlop.kube.read_your_writes import ReadYourWrites, VersionedCache
from dlop.kube.resources import (
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    SERVICES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)

HandlerFactory = Callable[[Resource], Handler[Any]]

_FULL_TYPES: dict[Resource, type[Any]] = {
    **dict.fromkeys(POD_GROUPS, PodGroup),
    PRIORITY_CLASSES: PriorityClass,
    WORKLOAD_PRIORITY_CLASSES: PriorityClass,
    RESOURCE_FLAVORS: ResourceFlavor,
    NODES: Node,
}
"""Resources watched without a label selector and with more than their metadata. Another operator may own a PodGroup."""


_CHILD_ANNOTATIONS = frozenset(
    {
        GROUP_ANNOTATION,
        REPLACEMENT_ANNOTATION,
        REQUESTS_ANNOTATION,
        SIZE_ANNOTATION,
        SPOT_ANNOTATION,
        TEMPLATE_HASH_ANNOTATION,
        TENSORBOARD_ANNOTATION,
    }
)
"""The annotations of children that are read. The others, such as those of network plugins, are not cached."""


class InformerSet:
    """The informers of one namespace, or of all if `namespace` is None. Iterates over the informers."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str | None,
        rng: Random,
        timings: InformerTimings,
        child_handler: HandlerFactory,
        job_handlers: Callable[[ManagedKind], Sequence[Handler[Any]]],
        on_relist: Callable[[Resource], None],
        plan_changed: Callable[[ManagedKind, Owner], None],
        orphan_labels: Collection[str] = (),
        capacity: ClusterCapacity | None = None,
    ) -> None:
        """`plan_changed` is called with the job of a scale plan. With `capacity`, pods are cached with their resource requests."""
        self.namespace = namespace
        self._client = client
        self._rng = rng
        self._timings = timings
        self._child_handler = child_handler
        self._job_handlers = job_handlers
        self._on_relist = on_relist
        self._informers: dict[Resource, Informer[Any]] = {}
        self._caches: dict[Resource, VersionedCache] = {}
        self._filtered: set[Resource] = set()
        """Resources whose cache is only relied on for objects of jobs."""
        self._not_installed: set[Resource] = set()
        self._on_demand: dict[Resource, bool] = {}
        """Resources that are watched on demand and were checked before, and whether the operator may read them."""
        self.gate = ReadYourWrites(self._caches, refresh=self.refresh)
        self.record_gate = RecordGate(self.gate)
        self._capacity = capacity
        self._plan_changed = plan_changed
        self._orphan_labels = (JOB_UID_LABEL, *orphan_labels)
        self.scale_plans: dict[Resource, ScalePlanQueue] = {}
        """By the resource of the plans."""
        self.pods: Cache[Pod] = self._add_pod_informer(capacity).cache
        self.services = self._add_informer(SERVICES, Service, child_handler(SERVICES)).cache

    # --- adding and removing informers -------------------------------------------------------------------------------

    def add_extra_informers(self, kind: ManagedKind, *, without: Container[Resource] = ()) -> list[Informer[Any]]:
        """Add informers for the extra resources of a kind, except `without`. Returns the new ones; the caller runs them."""
        resources = [resource for resource in kind.extra_resources if resource not in self._informers and resource not in without]
        return [self._add_extra_informer(resource, kind) for resource in resources]

    def add_on_demand_informer(self, resource: Resource) -> Informer[Any] | None:
        """Add an informer for a resource of child objects, or for one that is read for them. None if it is watched already."""
        self._on_demand[resource] = True
        if resource in self._informers:
            return None
        if resource in _FULL_TYPES:
            return self._add_full_informer(resource)
        self._filtered.add(resource)
        kind = Workload if resource == WORKLOADS else PartialObject
        return self._add_informer(resource, kind, self._child_handler(resource), label_selector=JOB_UID_LABEL)

    def add_legacy_informer(self, resource: Resource) -> Informer[Any]:
        """Add an informer for children left over from an earlier configuration. Only their metadata is kept."""
        return self._add_informer(resource, PartialObject, self._child_handler(resource), label_selector=JOB_UID_LABEL)

    def add_job_informer(self, kind: ManagedKind) -> Informer[Any]:
        # Frameworks may read the annotations of their jobs, and PodGroups get them.
        return self._add_informer(
            kind.resource, CustomObject, *self._job_handlers(kind), keep_annotation=lambda name: name != LAST_APPLIED_ANNOTATION
        )

    def remove_job_informer(self, kind: ManagedKind) -> None:
        self._informers.pop(kind.resource, None)
        self._caches.pop(kind.resource, None)

    def _add_extra_informer(self, resource: Resource, kind: ManagedKind) -> Informer[Any]:
        if kind.members is not None and resource in kind.plan_resources:
            self.scale_plans[resource] = ScalePlanQueue(kind.members, on_change=lambda owner: self._plan_changed(kind, owner))
            return self._add_informer(resource, CustomObject, self.scale_plans[resource].on_plan)
        if resource in _FULL_TYPES:
            return self._add_full_informer(resource)
        self._filtered.add(resource)
        label = None if resource in kind.ephemeral_resources else JOB_UID_LABEL
        return self._add_informer(resource, PartialObject, self._child_handler(resource), label_selector=label)

    def _add_full_informer(self, resource: Resource) -> Informer[Any]:
        handlers: dict[Resource, list[Handler[Any]]] = {NODES: self._node_handlers(), RESOURCE_FLAVORS: [self._on_flavor]}
        return self._add_informer(resource, _FULL_TYPES[resource], *handlers.get(resource, [self._child_handler(resource)]))

    def _add_pod_informer(self, capacity: ClusterCapacity | None) -> Informer[Any]:
        handler = self._child_handler(PODS)
        if capacity is None:
            return self._add_informer(PODS, Pod, handler)
        return self._add_informer(PODS, SizedPod, handler, capacity.on_pod)

    def _node_handlers(self) -> list[Handler[Any]]:
        return [self._on_node] if self._capacity is None else [self._on_node, self._capacity.on_node]

    def _add_informer(
        self,
        resource: Resource,
        kind: type[T],
        *handlers: Handler[T],
        label_selector: str | None = None,
        keep_annotation: Callable[[str], bool] = _CHILD_ANNOTATIONS.__contains__,
    ) -> Informer[T]:
        informer = Informer(
            self._client,
            resource,
            kind,
            rng=self._rng,
            namespace=self.namespace if resource.namespaced else None,
            label_selector=label_selector,
            labels=self._orphan_labels,
            keep_annotation=keep_annotation,
            handlers=handlers,
            on_relist=self._on_relist,
            timings=self._timings,
        )
        self._informers[resource] = informer
        self._caches[resource] = informer.cache
        return informer

    def _on_node(self, change: CacheChange[Node]) -> None:
        """Reconcile the jobs with terminating pods on a node that goes down."""
        if change.initial or node_problem(change.new) in ("", "" if change.old is None else node_problem(change.old)):
            return
        on_pod = self._child_handler(PODS)
        for pod in self.pods:
            if pod.spec.node_name == change.object.metadata.name and pod.metadata.deletion_timestamp is not None:
                on_pod(CacheChange(None, pod))

    def _on_flavor(self, change: CacheChange[ResourceFlavor]) -> None:
        """Reconcile the jobs that were admitted to a ResourceFlavor before it was known."""
        workloads: Cache[Workload] | None = self.cache(WORKLOADS)
        if change.old is None and workloads is not None:
            on_workload = self._child_handler(WORKLOADS)
            for workload in workloads:
                if change.object.metadata.name in flavors_of(workload):
                    on_workload(CacheChange(None, workload))

    # --- reading -----------------------------------------------------------------------------------------------------

    def cache(self, resource: Resource) -> Cache[Any] | None:
        """The cache of a resource; None if it is not watched."""
        informer = self._informers.get(resource)
        return None if informer is None else informer.cache

    def job(self, resource: Resource, *, namespace: str, name: str) -> CustomObject | None:
        cache: Cache[CustomObject] | None = self.cache(resource)
        return None if cache is None else cache.get(name, namespace=namespace)

    def child(self, resource: Resource, *, namespace: str, name: str) -> KubeObject | None:
        """A cached object of any owner; None if it is not in the cache or the resource is not watched."""
        cache: Cache[KubeObject] | None = self.cache(resource)
        return None if cache is None else cache.get(name, namespace=namespace)

    def satisfies_expectations(self, resource: Resource) -> bool:
        """Whether watch events of objects of the resource satisfy expectations. Scale plans do not have their job as controller."""
        return resource in self._informers and resource not in self.scale_plans

    def is_synced(self, resource: Resource) -> bool:
        """Whether the resource is watched and its cache is synced. False if the operator may not read it."""
        informer = self._informers.get(resource)
        return informer is not None and informer.synced

    def set_not_installed(self, resources: Iterable[Resource], *, checked: Iterable[Resource]) -> None:
        """Mark `resources` as not served by the API server, and the rest of `checked` as served."""
        self._not_installed = (self._not_installed - set(checked)) | set(resources)

    def set_unreadable(self, resource: Resource, *, is_installed: bool) -> None:
        """Mark a resource that is watched on demand as not readable."""
        self._on_demand[resource] = False
        self.set_not_installed(() if is_installed else (resource,), checked=(resource,))

    def is_unchecked(self, resource: Resource) -> bool:
        """Whether a resource is to be watched on demand, and it is not known yet whether the operator can read it."""
        return self._on_demand.get(resource, True) and resource not in self._not_installed

    def is_not_installed(self, resource: Resource) -> bool:
        return resource in self._not_installed and resource not in self._informers

    def watches_all(self, resource: Resource) -> bool:
        """Whether the cache shows objects of all owners, and not only those of jobs."""
        return resource in self._informers and resource not in self._filtered

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(tuple(self._informers.values()))

    async def wait_synced(self, resources: Collection[Resource] = (PODS, SERVICES)) -> None:
        """Wait until the caches of these resources are synced. Ignores resources that are not watched."""
        informers = [informer for informer in self if informer.resource in resources]
        await asyncio.gather(*(informer.wait_synced() for informer in informers))

    async def refresh(self, resource: Resource) -> None:
        """List a resource again. Does nothing if it is not watched.

        Raises:
            KubeError: the list failed.
        """
        informer = self._informers.get(resource)
        if informer is not None:
            await informer.refresh()
