"""A job as it goes on, looked at a few times a second and at once when it is over.

A large job changes thousands of times, and a look at it costs as much as it has pods: looking after every change would take
longer than running it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from dlop.jobs.errors import OutOfReachError
from dlop.jobs.list_watch import News, follow, merged
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import follow_pods, scope_of
from dlop.jobs.view import JobView, view_of
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, Pod

_PAUSE_SECONDS = 0.1
SETTLING_SECONDS = 2.0
"""How long the pods of a job that is over may take to end, until nobody waits for them any more."""


async def looks_at(client: Client, found: JobHandle) -> AsyncGenerator[JobView, None]:
    """The job with its pods as it is now, and again while it changes, without its history.

    The last look but one is at its end, and the last one at how the rest of its pods ended: they have a few seconds for that.

    Raises:
        OutOfReachError: it was deleted before it was over.
        KubeError: it cannot be watched.
    """
    sight = _Sight(found)
    sources: tuple[AsyncGenerator[News[Any], None], ...] = (follow(client, scope_of(found), CustomObject), follow_pods(client, found))
    async with merged(*sources) as news:
        feeding = asyncio.create_task(sight.feed(news))
        try:
            while True:
                await sight.wait_for_news(feeding)
                yield (view := sight.look())
                if view.is_over:
                    await sight.settle(feeding)
                    yield sight.look()
                    return
                await sight.pause(feeding)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


class _Sight:
    """What is known of the job and its pods."""

    def __init__(self, found: JobHandle) -> None:
        self._found = found
        self._pods: dict[str, Pod] = {}
        self._unended: set[str] = set()
        self._heard: set[int] = set()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._settled = asyncio.Event()

    async def feed(self, news: AsyncGenerator[tuple[int, News[Any]], None]) -> None:
        """Take in what happens, until the job is over or gone."""
        async for number, change in news:
            self._heard.add(number)
            if number == 0:
                self._take_job(change)
            else:
                self._take_pods(change)
            # The first look is a whole one: a job whose pods are not known yet would seem to have none.
            if len(self._heard) > 1:
                self._changed.set()
            self._note_whether_settled()

    def _take_job(self, news: News[CustomObject]) -> None:
        for each in news.there:
            if each.metadata.uid == self._found.uid:
                self._found = JobHandle(self._found.kind, each)
        phase = self._found.phase()
        if phase is not None and phase.is_final:
            self._over.set()
        elif any(each.metadata.uid == self._found.uid for each in news.gone):
            raise OutOfReachError(f"{self._found} was deleted.")

    def _take_pods(self, news: News[Pod]) -> None:
        for pod in news.gone:
            self._unended.discard(pod.metadata.uid)
            # How the pods of a job that is over have ended is worth keeping.
            if self._over.is_set() and _has_ended(pod):
                self._pods[pod.metadata.uid] = pod
            else:
                self._pods.pop(pod.metadata.uid, None)
        for pod in news.there:
            self._pods[pod.metadata.uid] = pod
            if _has_ended(pod):
                self._unended.discard(pod.metadata.uid)
            else:
                self._unended.add(pod.metadata.uid)

    def _note_whether_settled(self) -> None:
        if self._over.is_set() and not self._unended:
            self._settled.set()
        else:
            self._settled.clear()

    def look(self) -> JobView:
        """What is to be seen now."""
        self._changed.clear()
        return view_of(self._found, self._pods.values())

    async def wait_for_news(self, feeding: asyncio.Task[None]) -> None:
        """Wait until something has changed. What has ended the feeding is raised here."""
        await _first(feeding, self._changed)

    async def pause(self, feeding: asyncio.Task[None]) -> None:
        """Let changes gather, unless the job is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE_SECONDS):
                await _first(feeding, self._over)

    async def settle(self, feeding: asyncio.Task[None]) -> None:
        """Wait until all pods have ended, unless they take too long, or were never told to go."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLING_SECONDS):
                await _first(feeding, self._settled)


def _has_ended(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


async def _first(feeding: asyncio.Task[None], event: asyncio.Event) -> None:
    if event.is_set():
        return
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({feeding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
