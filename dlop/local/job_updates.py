"""Views of a job, built a few times a second, and immediately when the job has finished.

A large job has thousands of changes, and the cost of a view grows with the number of pods. A view for every change would take
longer than the job.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any

from dlop.jobs.errors import WaitFailedError
from dlop.jobs.list_watch import ChangeSet, list_and_watch, merge
from dlop.jobs.lookup import JobHandle
from dlop.jobs.queries import job_scope, watch_pods
from dlop.jobs.view import JobView, build_view
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, Pod

_INTERVAL_SECONDS = 0.1
SETTLING_SECONDS = 2.0
"""Time that the pods of a finished job have to terminate."""


async def watch_job_updates(client: Client, job: JobHandle) -> AsyncGenerator[JobView, None]:
    """The view of the job, now and while it changes, without its history.

    The second to last view is the first of the finished job. The last one is built when its pods have terminated, or after
    `SETTLING_SECONDS`.

    Raises:
        WaitFailedError: the job was deleted before it finished.
        KubeError: the job cannot be watched.
    """
    observer = _JobObserver(job)
    sources: tuple[AsyncGenerator[ChangeSet[Any], None], ...] = (
        list_and_watch(client, job_scope(job), CustomObject),
        watch_pods(client, job),
    )
    async with merge(*sources) as changes:
        watching = asyncio.create_task(observer.watch(changes))
        try:
            while True:
                await observer.wait_for_change(watching)
                yield (view := observer.take_view())
                if view.is_finished:
                    await observer.wait_until_settled(watching)
                    yield observer.take_view()
                    return
                await observer.wait_interval(watching)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


class _JobObserver:
    def __init__(self, job: JobHandle) -> None:
        self._job = job
        self._pods: dict[str, Pod] = {}
        self._active_pods: set[str] = set()
        self._seen_sources: set[int] = set()
        self._changed = asyncio.Event()
        self._finished = asyncio.Event()
        self._settled = asyncio.Event()

    async def watch(self, changes: AsyncGenerator[tuple[int, ChangeSet[Any]], None]) -> None:
        """Process changes. Raises WaitFailedError if the job is deleted."""
        async for source, change_set in changes:
            self._seen_sources.add(source)
            if source == 0:
                self._update_job(change_set)
            else:
                self._update_pods(change_set)
            # Before the pods are listed, the job would seem to have none.
            if len(self._seen_sources) > 1:
                self._changed.set()
            self._update_settled()

    def _update_job(self, change_set: ChangeSet[CustomObject]) -> None:
        for item in change_set.upserted:
            if item.metadata.uid == self._job.uid:
                self._job = JobHandle(self._job.kind, item)
        phase = self._job.phase()
        if phase is not None and phase.is_final:
            self._finished.set()
        elif any(item.metadata.uid == self._job.uid for item in change_set.deleted):
            raise WaitFailedError(f"{self._job} was deleted.")

    def _update_pods(self, change_set: ChangeSet[Pod]) -> None:
        for pod in change_set.deleted:
            self._active_pods.discard(pod.metadata.uid)
            # Keep the final states of the pods of a finished job.
            if self._finished.is_set() and _has_terminated(pod):
                self._pods[pod.metadata.uid] = pod
            else:
                self._pods.pop(pod.metadata.uid, None)
        for pod in change_set.upserted:
            self._pods[pod.metadata.uid] = pod
            if _has_terminated(pod):
                self._active_pods.discard(pod.metadata.uid)
            else:
                self._active_pods.add(pod.metadata.uid)

    def _update_settled(self) -> None:
        if self._finished.is_set() and not self._active_pods:
            self._settled.set()
        else:
            self._settled.clear()

    def take_view(self) -> JobView:
        self._changed.clear()
        return build_view(self._job, self._pods.values())

    async def wait_for_change(self, watching: asyncio.Task[None]) -> None:
        """Raises the error of `watching` if that fails."""
        await _wait_unless_failed(watching, self._changed)

    async def wait_interval(self, watching: asyncio.Task[None]) -> None:
        """Let changes accumulate, unless the job has finished."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_INTERVAL_SECONDS):
                await _wait_unless_failed(watching, self._finished)

    async def wait_until_settled(self, watching: asyncio.Task[None]) -> None:
        """Wait until all pods have terminated, up to `SETTLING_SECONDS`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLING_SECONDS):
                await _wait_unless_failed(watching, self._settled)


def _has_terminated(pod: Pod) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")


async def _wait_unless_failed(watching: asyncio.Task[None], event: asyncio.Event) -> None:
    if event.is_set():
        return
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
