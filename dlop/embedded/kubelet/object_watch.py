"""Follows single objects of the server for those who want to know when they change.

However many pods mount a config map, it is watched once, and only while one of them runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import structlog

from dlop.kube.backoff import Backoff
from dlop.kube.client import Client
from dlop.kube.errors import KubeError
from dlop.kube.resources import Resource
from dlop.kube.watch import WatchEventType

log = structlog.get_logger(__name__)

Followed = tuple[Resource, str, str]
"""What is followed: resource, namespace, name."""


@dataclass(slots=True)
class _Watcher:
    """One object, and those who follow it."""

    task: asyncio.Task[None]
    followers: list[asyncio.Event] = field(default_factory=list)


class Watchers:
    """The objects that are followed."""

    def __init__(self, client: Client, *, rng: Random) -> None:
        self._client = client
        self._rng = rng
        self._watchers: dict[Followed, _Watcher] = {}

    @contextmanager
    def following(self, objects: Iterable[Followed]) -> Iterator[asyncio.Event]:
        """An event that is set when one of the objects changes."""
        changed, followed = asyncio.Event(), list(objects)
        for each in followed:
            self._follow(each, changed)
        try:
            yield changed
        finally:
            for each in followed:
                self._leave(each, changed)

    def _follow(self, followed: Followed, changed: asyncio.Event) -> None:
        watcher = self._watchers.get(followed)
        if watcher is None:
            watcher = _Watcher(asyncio.create_task(self._watch(followed), name=f"watch {followed[2]}"))
            self._watchers[followed] = watcher
        watcher.followers.append(changed)

    def _leave(self, followed: Followed, changed: asyncio.Event) -> None:
        watcher = self._watchers[followed]
        watcher.followers.remove(changed)
        if not watcher.followers:
            watcher.task.cancel()
            del self._watchers[followed]

    async def _watch(self, followed: Followed) -> None:
        backoff = Backoff(rng=self._rng, first_seconds=0.8, cap_seconds=30.0, reset_after_seconds=120.0)
        version = ""
        while True:
            try:
                version = await self._watch_once(followed, version)
            except KubeError as error:
                log.info("an object cannot be followed", name=followed[2], error=str(error))
            await asyncio.sleep(backoff.delay_seconds(now=asyncio.get_running_loop().time()))

    async def _watch_once(self, followed: Followed, version: str) -> str:
        """Tell the followers of every state but the one that they know. Says which state was the last."""
        resource, namespace, name = followed
        selector = f"metadata.name={name}"
        async with self._client.watch(resource, namespace=namespace, field_selector=selector, bookmarks=False) as events:
            async for event in events:
                found = event.decode()["metadata"]["resourceVersion"]
                if event.type is not WatchEventType.DELETED and found != version:
                    version = found
                    self._tell(followed)
        return version

    def _tell(self, followed: Followed) -> None:
        if watcher := self._watchers.get(followed):
            for changed in watcher.followers:
                changed.set()
