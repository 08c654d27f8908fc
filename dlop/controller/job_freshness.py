"""Checks that a new leader does not act on a stale job cache.

A status write fails if the job is stale, but creates and deletes do not: with a record that an earlier leader has replaced since, a
pass would create a lost pod again without counting the loss. The cache may be stale if its watch was interrupted when this operator
became the leader. Therefore jobs are read from the server until the cache has reached the version that the server had at that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing

from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey
from dlop.kube.cache import parse_resource_version
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource


async def current_version(client: Client, resource: Resource, *, namespace: str | None) -> str:
    """The current resource version of the server, by a consistent read of at most one object."""
    async with aclosing(client.pages(resource, namespace=namespace, page_size=1)) as pages:
        page = await anext(pages)
    return page.resource_version


class JobFreshness:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = asyncio.Lock()
        self._required: dict[tuple[Resource, str | None], int] = {}
        """By kind and watched namespace, the version that the cache must have reached."""

    def start_term(self) -> None:
        """Forget the required versions, because this operator became the leader."""
        self._required.clear()

    async def is_current(self, informers: InformerSet, key: JobKey, job_object: CustomObject) -> bool:
        """Whether the job includes all records of earlier leaders."""
        if await self.has_caught_up(informers, key.resource):
            return True
        try:
            live = await self._client.get(key.resource, key.name, namespace=key.namespace)
        except NotFoundError:
            return False
        return bool(live["metadata"]["resourceVersion"] == job_object.metadata.resource_version)

    async def exists(self, key: JobKey, uid: str) -> bool:
        """Whether the server has the job.

        Raises:
            KubeError: it is not known.
        """
        try:
            live = await self._client.get(key.resource, key.name, namespace=key.namespace)
        except NotFoundError:
            return False
        return bool(live["metadata"]["uid"] == uid)

    async def has_caught_up(self, informers: InformerSet, resource: Resource) -> bool:
        """Whether the cache shows all that earlier leaders have written."""
        cache = informers.cache(resource)
        return cache is not None and cache.resource_version >= await self._required_version(resource, informers.namespace)

    async def catch_up(self, informers: InformerSet, resources: Iterable[Resource]) -> None:
        """Refresh the caches that do not show all that earlier leaders have written. Those that are not synced yet are skipped.

        Raises:
            KubeError: a cache could not be refreshed.
        """
        await asyncio.gather(*(self._catch_up(informers, resource) for resource in resources if informers.is_synced(resource)))

    async def _catch_up(self, informers: InformerSet, resource: Resource) -> None:
        if not await self.has_caught_up(informers, resource):
            await informers.refresh(resource)

    async def _required_version(self, resource: Resource, namespace: str | None) -> int:
        if (resource, namespace) not in self._required:
            async with self._lock:
                if (resource, namespace) not in self._required:
                    version = await current_version(self._client, resource, namespace=namespace)
                    self._required[resource, namespace] = parse_resource_version(version)
        return self._required[resource, namespace]
