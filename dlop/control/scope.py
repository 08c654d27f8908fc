"""Everything that is watched in one namespace, or in all: pods, services, jobs, and whatever else jobs own.

Each scope has a gate of its own: no job is looked at before the caches of its scope show what was last written for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from dlop.control.hindsight import Hindsight
from dlop.control.kinds import Kind
from dlop.engine.names import JOB_UID_LABEL
from dlop.kube.cache import Cache
from dlop.kube.client import Client
from dlop.kube.consistency import ReadYourWrites, VersionedCache
from dlop.kube.handlers import Handler
from dlop.kube.informer import Informer, Pace
from dlop.kube.objects import CustomObject, KubeObject, PartialObject, Pod, Service, T
from dlop.kube.resources import PODS, SERVICES, Resource

MakeHandler = Callable[[Resource], Handler[Any]]


class Scope:
    """The informers of one namespace, or of all (None)."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str | None,
        rng: Random,
        pace: Pace,
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
        self._partly_seen: set[Resource] = set()
        self.gate = ReadYourWrites(self._caches, refresh=self._refresh)
        self.hindsight = Hindsight(self.gate)
        self.pods = self._follow(PODS, Pod, on_child(PODS)).cache
        self.services = self._follow(SERVICES, Service, on_child(SERVICES)).cache

    # --- what is watched ---------------------------------------------------------------------------------------------

    def add_others(self, kind: Kind) -> list[Informer[Any]]:
        """Informers for what the jobs of a kind own besides pods and services; only the new ones."""
        wanted = [resource for resource in kind.other_resources if resource not in self._informers]
        return [self._follow(resource, PartialObject, self._on_child(resource), label_selector=JOB_UID_LABEL) for resource in wanted]

    def add_jobs(self, kind: Kind) -> Informer[Any]:
        """The informer of the jobs of a kind."""
        return self._follow(kind.resource, CustomObject, self._on_job(kind.resource))

    def remove_jobs(self, kind: Kind) -> None:
        """The kind is no longer served."""
        self._informers.pop(kind.resource, None)
        self._caches.pop(kind.resource, None)

    def _follow(self, resource: Resource, kind: type[T], handler: Handler[T], *, label_selector: str | None = None) -> Informer[T]:
        informer = Informer(
            self._client,
            resource,
            kind,
            rng=self._rng,
            namespace=self.namespace,
            label_selector=label_selector,
            labels=(JOB_UID_LABEL,),
            handlers=[handler],
            relisted=self._relisted,
            pace=self._pace,
        )
        if label_selector is not None:
            self._partly_seen.add(resource)
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

    def sees_all(self, resource: Resource) -> bool:
        """Whether the cache shows objects of everybody, and not only those that bear the label of a job."""
        return resource in self._informers and resource not in self._partly_seen

    @property
    def informers(self) -> Iterator[Informer[Any]]:
        """All informers, as of now."""
        return iter(tuple(self._informers.values()))

    async def wait_synced(self) -> None:
        """Wait until every cache shows what the server has."""
        await asyncio.gather(*(informer.wait_synced() for informer in self.informers))

    async def _refresh(self, resource: Resource) -> None:
        informer = self._informers.get(resource)
        if informer is not None:
            await informer.refresh()
