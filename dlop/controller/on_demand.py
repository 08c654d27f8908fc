"""Informers for resources of child objects that few jobs need. Each is started when the first job needs it, and then runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random

import structlog

from dlop.controller.informer_set import InformerSet
from dlop.controller.kinds import JobKey
from dlop.controller.read_access import check_read_access
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, KubeError, NotFoundError
from dlop.kube.resources import Resource
from dlop.kube.retry_backoff import ExponentialBackoff

log = structlog.get_logger(__name__)


class OnDemandInformers:
    """Jobs that need a resource wait for its informer. Where the operator cannot read it, they are blocked, and it tries again."""

    def __init__(self, client: Client, informer_sets: Sequence[InformerSet], *, enqueue: Callable[[JobKey], None], rng: Random) -> None:
        self._client = client
        self._informer_sets = informer_sets
        self._enqueue = enqueue
        self._rng = rng
        self._waiting: dict[Resource, set[JobKey]] = {}
        self._new_resources: asyncio.Queue[Resource] = asyncio.Queue()

    def request(self, resource: Resource, key: JobKey) -> None:
        """Start watching a resource, and enqueue the job when its cache is synced, or when it is known that it cannot be read."""
        if resource not in self._waiting:
            self._waiting[resource] = set()
            self._new_resources.put_nowait(resource)
        self._waiting[resource].add(key)

    async def run(self) -> None:
        """Start and run the informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                resource = await self._new_resources.get()
                group.create_task(self._start(resource, group), name=f"start informer of {resource.plural}")

    async def _start(self, resource: Resource, group: asyncio.TaskGroup) -> None:
        await self._wait_until_readable(resource)
        for informers in self._informer_sets:
            informer = informers.add_on_demand_informer(resource)
            if informer is not None:
                group.create_task(informer.run(), name=f"informer of {resource.plural}")
        for informers in self._informer_sets:
            await informers.wait_synced((resource,))
        waiting, self._waiting[resource] = self._waiting[resource], set()
        self._enqueue_all(waiting)

    async def _wait_until_readable(self, resource: Resource) -> None:
        """Wait for the permission to read a resource. Meanwhile, the jobs that need it report what is missing."""
        delays, reported = self._backoff_delays(), ""
        while (error := await self._access_error(resource)) is not None:
            if isinstance(error, ForbiddenError | NotFoundError) and str(error) != reported:
                reported = str(error)
                log.info("cannot read resource; jobs that need it are blocked", resource=resource.qualified_name, error=reported)
                for informers in self._informer_sets:
                    informers.set_unreadable(resource, is_installed=not isinstance(error, NotFoundError))
                self._enqueue_all(self._waiting[resource])
            await asyncio.sleep(next(delays))

    async def _access_error(self, resource: Resource) -> KubeError | None:
        try:
            for informers in self._informer_sets:
                await check_read_access(self._client, resource, namespace=informers.namespace)
        except KubeError as error:
            return error
        return None

    def _enqueue_all(self, keys: set[JobKey]) -> None:
        for key in keys:
            self._enqueue(key)

    def _backoff_delays(self) -> Iterator[float]:
        backoff = ExponentialBackoff(rng=self._rng, first_seconds=5.0, cap_seconds=60.0, reset_after_seconds=600.0)
        while True:
            yield backoff.delay_seconds(now=asyncio.get_running_loop().time())
