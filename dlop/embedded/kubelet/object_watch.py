"""Watches single objects of the API server.

An object that several pods mount is watched once, and only while at least one of them runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import structlog

from dlop.kube.client import Client
from dlop.kube.errors import KubeError
from dlop.kube.resources import Resource
from dlop.kube.retry_backoff import ExponentialBackoff
from dlop.kube.watch import WatchEventType

log = structlog.get_logger(__name__)

WatchKey = tuple[Resource, str, str]
"""Resource, namespace and name."""


@dataclass(slots=True)
class _Watch:
    task: asyncio.Task[None]
    subscribers: list[asyncio.Event] = field(default_factory=list)


class ObjectWatcher:
    def __init__(self, client: Client, *, rng: Random) -> None:
        self._client = client
        self._rng = rng
        self._watches: dict[WatchKey, _Watch] = {}

    @contextmanager
    def watching(self, keys: Iterable[WatchKey]) -> Iterator[asyncio.Event]:
        """An event that is set when one of the objects changes."""
        changed, keys = asyncio.Event(), list(keys)
        for key in keys:
            self._subscribe(key, changed)
        try:
            yield changed
        finally:
            for key in keys:
                self._unsubscribe(key, changed)

    def _subscribe(self, key: WatchKey, changed: asyncio.Event) -> None:
        watch = self._watches.get(key)
        if watch is None:
            watch = _Watch(asyncio.create_task(self._run_watch(key), name=f"watch {key[2]}"))
            self._watches[key] = watch
        watch.subscribers.append(changed)

    def _unsubscribe(self, key: WatchKey, changed: asyncio.Event) -> None:
        watch = self._watches[key]
        watch.subscribers.remove(changed)
        if not watch.subscribers:
            watch.task.cancel()
            del self._watches[key]

    async def _run_watch(self, key: WatchKey) -> None:
        backoff = ExponentialBackoff(rng=self._rng, first_seconds=0.8, cap_seconds=30.0, reset_after_seconds=120.0)
        resource_version = ""
        while True:
            try:
                resource_version = await self._watch_once(key, resource_version)
            except KubeError as error:
                log.info("watch failed, retrying", name=key[2], error=str(error))
            await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def _watch_once(self, key: WatchKey, resource_version: str) -> str:
        """Notify the subscribers of every version other than `resource_version`. Returns the last version."""
        resource, namespace, name = key
        selector = f"metadata.name={name}"
        async with self._client.watch(resource, namespace=namespace, field_selector=selector, bookmarks=False) as events:
            async for event in events:
                new_version = event.decode()["metadata"]["resourceVersion"]
                if event.type is not WatchEventType.DELETED and new_version != resource_version:
                    resource_version = new_version
                    self._notify(key)
        return resource_version

    def _notify(self, key: WatchKey) -> None:
        if watch := self._watches.get(key):
            for changed in watch.subscribers:
                changed.set()
