"""Everything that is watched in one namespace, or in all: pods, services, jobs, and whatever else jobs own.

Each scope has a gate of its own: no job is looked at before the caches of its scope show what was last written for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from random import Random
from typing import Any

from dlop.api.constants import JOB_UID_LABEL
from dlop.api.gang import POD_GROUPS
from dlop.controller.kinds import ManagedKind
from dlop.controller.record_gate import RecordGate
from dlop.kube.cache import Cache
from dlop.kube.client import Client
from dlop.kube.informer import Handler, Informer, InformerTimings
from dlop.kube.objects import CustomObject, KubeObject, PartialObject, Pod, PodGroup, PriorityClass, Service, T
from dlop.kube.read_your_writes import ReadYourWrites, VersionedCache
from dlop.kube.resources import PODS, PRIORITY_CLASSES, SERVICES, Resource

MakeHandler = Callable[[Resource], Handler[Any]]

_SEEN_WHOLE: dict[Resource, type[Any]] = {**dict.fromkeys(POD_GROUPS, PodGroup), PRIORITY_CLASSES: PriorityClass}
"""What is followed whoever made it, with more than its metadata. A PodGroup may have been made by another operator."""


class InformerSet:
    """The informers of one namespace, or of all (None)."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str | None,
        rng: Random,
        pace: InformerTimings,
        on_child: MakeHandler,
        on_job: MakeHandler,
        relisted: Callable[[Resource], None],
    ) -> None:
        self.namespace = namespace
        self._client = client
        self._rng = rng
        self._pace = pace
        self._on_child = on_child
        self._on_job = on_job
        self._relisted = relisted
        self._informers: dict[Resource, Informer[Any]] = {}
        self._caches: dict[Resource, VersionedCache] = {}
        self._only_of_jobs: set[Resource] = set()
        self._unserved: set[Resource] = set()
        self.gate = ReadYourWrites(self._caches, refresh=self._refresh)
        self.hindsight = RecordGate(self.gate)
        self.pods = self._follow(PODS, Pod, on_child(PODS)).cache
        self.services = self._follow(SERVICES, Service, on_child(SERVICES)).cache

    # --- what is watched ---------------------------------------------------------------------------------------------

    def add_others(self, kind: ManagedKind, *, without: Container[Resource] = ()) -> list[Informer[Any]]:
        """Informers for what the jobs of a kind have to do with besides pods and services; only the new ones."""
        wanted = [resource for resource in kind.all_others if resource not in self._informers and resource not in without]
        return [self._follow_other(resource, whoever_made_it=resource in kind.passing_resources) for resource in wanted]

    def add_former(self, resource: Resource) -> Informer[Any]:
        """The informer of what jobs own from an earlier time: all that matters is that it is there."""
        return self._follow(resource, PartialObject, self._on_child(resource), label_selector=JOB_UID_LABEL)

    def add_jobs(self, kind: ManagedKind) -> Informer[Any]:
        """The informer of the jobs of a kind."""
        return self._follow(kind.resource, CustomObject, self._on_job(kind.resource))

    def remove_jobs(self, kind: ManagedKind) -> None:
        """The kind is no longer served."""
        self._informers.pop(kind.resource, None)
        self._caches.pop(kind.resource, None)

    def _follow_other(self, resource: Resource, *, whoever_made_it: bool) -> Informer[Any]:
        """By the label of the jobs, unless others make such objects too, and it matters what is in them or that they go."""
        shape = _SEEN_WHOLE.get(resource)
        if shape is not None:
            return self._follow(resource, shape, self._on_child(resource))
        self._only_of_jobs.add(resource)
        label = None if whoever_made_it else JOB_UID_LABEL
        return self._follow(resource, PartialObject, self._on_child(resource), label_selector=label)

    def _follow(self, resource: Resource, kind: type[T], handler: Handler[T], *, label_selector: str | None = None) -> Informer[T]:
        informer = Informer(
            self._client,
            resource,
            kind,
            rng=self._rng,
            namespace=self.namespace if resource.namespaced else None,
            label_selector=label_selector,
            labels=(JOB_UID_LABEL,),
            handlers=[handler],
            relisted=self._relisted,
            pace=self._pace,
        )
        self._informers[resource] = informer
        self._caches[resource] = informer.cache
        return informer

    # --- what is known -----------------------------------------------------------------------------------------------

    def cache(self, resource: Resource) -> Cache[Any] | None:
        """The cache of a resource, if it is watched."""
        informer = self._informers.get(resource)
        return None if informer is None else informer.cache

    def job(self, resource: Resource, *, namespace: str, name: str) -> CustomObject | None:
        """One job."""
        cache: Cache[CustomObject] | None = self.cache(resource)
        return None if cache is None else cache.get(name, namespace=namespace)

    def child(self, resource: Resource, *, namespace: str, name: str) -> KubeObject | None:
        """One object that may belong to a job, as far as it is watched."""
        cache: Cache[KubeObject] | None = self.cache(resource)
        return None if cache is None else cache.get(name, namespace=namespace)

    def shows(self, resource: Resource) -> bool:
        """Whether the cache of a resource shows what the server has. It does not where the operator may not read it."""
        informer = self._informers.get(resource)
        return informer is not None and informer.synced

    def note_unserved(self, resources: Iterable[Resource], *, of: Iterable[Resource]) -> None:
        """The server says of these that it does not know them, and of the rest of those that were asked for that it does."""
        self._unserved = (self._unserved - set(of)) | set(resources)

    def is_unserved(self, resource: Resource) -> bool:
        """Whether the server does not know a resource, as far as one can tell."""
        return resource in self._unserved and resource not in self._informers

    def path(self, resource: Resource) -> str:
        """Where objects of a resource are listed that this scope has to do with."""
        return resource.path(namespace=self.namespace if resource.namespaced else None)

    def sees_all(self, resource: Resource) -> bool:
        """Whether the cache is asked about objects of everybody, and not only about those of jobs."""
        return resource in self._informers and resource not in self._only_of_jobs

    @property
    def informers(self) -> Iterator[Informer[Any]]:
        """All informers, as of now."""
        return iter(tuple(self._informers.values()))

    async def wait_synced(self, resources: Collection[Resource] | None = None) -> None:
        """Wait until every cache shows what the server has, or only those of these resources, as far as there are any."""
        wanted = [each for each in self.informers if resources is None or each.resource in resources]
        await asyncio.gather(*(informer.wait_synced() for informer in wanted))

    async def _refresh(self, resource: Resource) -> None:
        informer = self._informers.get(resource)
        if informer is not None:
            await informer.refresh()
