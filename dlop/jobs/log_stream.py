"""Follow the logs of all replicas of a job until the job has finished.

Each pod has its own reader, and so does its replacement. When the job has finished, readers of terminating pods read to the end
of the log. Readers of pods that keep running read what is available and stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from dlop.jobs.list_watch import ChangeSet, list_and_watch, merge
from dlop.jobs.log_lines import LogLine
from dlop.jobs.logs import LogSelector, select_replicas, validate_selector
from dlop.jobs.lookup import JobHandle
from dlop.jobs.pod_log_reader import Lines, PodLogReader
from dlop.jobs.queries import job_scope, watch_pods
from dlop.jobs.replicas import ReplicaView
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, Pod

MAX_STREAMS = 200
"""Logs followed at the same time. It leaves connections of the client for other requests."""
_QUEUE_SIZE = 1000


@asynccontextmanager
async def follow_logs(client: Client, job: JobHandle, selector: LogSelector) -> AsyncIterator[AsyncGenerator[LogLine, None]]:
    """The log lines of the selected replicas. Ends when the job has finished.

    Iterating raises KubeError if the logs cannot be read.

    Raises:
        JobsError: the job has no such role.
    """
    validate_selector(job, selector)
    queue: Lines = asyncio.Queue(maxsize=_QUEUE_SIZE)
    task = asyncio.create_task(_Readers(client, job, selector, queue).run())
    try:
        yield _lines(queue)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _lines(queue: Lines) -> AsyncGenerator[LogLine, None]:
    while (line := await queue.get()) is not None:
        if isinstance(line, BaseException):
            raise line
        yield line


class _Readers:
    """One reader for every pod of the job."""

    def __init__(self, client: Client, job: JobHandle, selector: LogSelector, queue: Lines) -> None:
        self._client = client
        self._job = job
        self._selector = selector
        self._queue = queue
        self._readers: dict[str, PodLogReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen_sources: set[int] = set()
        self._job_finished = False
        self._stream_slots = asyncio.Semaphore(MAX_STREAMS)
        self._finished = asyncio.Event()

    async def run(self) -> None:
        """Read until the job has finished and every reader is done."""
        watching = asyncio.create_task(self._watch())
        try:
            await _wait_unless_failed(watching, self._finished.wait())
            while self._tasks:
                await asyncio.wait({watching, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                if watching.done():
                    watching.result()
            await self._queue.put(None)
        except Exception as error:  # noqa: BLE001 - raised to the reader of the lines
            await self._queue.put(error)
        finally:
            for task in (watching, *self._tasks):
                task.cancel()
            await asyncio.gather(watching, *self._tasks, return_exceptions=True)

    async def _watch(self) -> None:
        sources: tuple[AsyncGenerator[ChangeSet[Any], None], ...] = (
            list_and_watch(self._client, job_scope(self._job), CustomObject),
            watch_pods(self._client, self._job),
        )
        async with merge(*sources) as changes:
            async for source, change_set in changes:
                self._seen_sources.add(source)
                if source == 0:
                    self._update_job(change_set)
                else:
                    self._update_pods(change_set)
                if self._job_finished and len(self._seen_sources) == len(sources):
                    self._finish()

    def _update_job(self, change_set: ChangeSet[CustomObject]) -> None:
        current = next((candidate for candidate in change_set.upserted if candidate.metadata.uid == self._job.uid), None)
        if current is not None:
            self._job = JobHandle(self._job.kind, current)
        phase = self._job.phase()
        # None means that the job was deleted, or replaced by another one of the same name.
        self._job_finished = current is None or (phase is not None and phase.is_final)

    def _update_pods(self, change_set: ChangeSet[Pod]) -> None:
        for deleted in change_set.deleted:
            if deleted.metadata.uid in self._readers:
                self._readers[deleted.metadata.uid].pod_deleted()
        by_uid = {pod.metadata.uid: pod for pod in change_set.upserted}
        for replica in select_replicas(self._job, change_set.upserted, self._selector):
            pod = by_uid.get(replica.pod_uid)
            if pod is not None:
                self._reader(replica, pod).update(pod)

    def _reader(self, replica: ReplicaView, pod: Pod) -> PodLogReader:
        existing = self._readers.get(pod.metadata.uid)
        if existing is not None:
            return existing
        reader = PodLogReader(
            self._client, self._job, replica, pod, selector=self._selector, queue=self._queue, stream_slots=self._stream_slots
        )
        self._readers[pod.metadata.uid] = reader
        task = asyncio.create_task(reader.run(), name=f"log of {replica.pod}")
        self._tasks.add(task)
        task.add_done_callback(self._on_reader_done)
        return reader

    def _on_reader_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The queue may be full, and this callback cannot wait.
            self._tasks.add(asyncio.create_task(self._queue.put(error)))

    def _finish(self) -> None:
        for reader in self._readers.values():
            reader.job_finished()
        self._finished.set()


async def _wait_unless_failed(watching: asyncio.Task[None], other: Coroutine[Any, Any, object]) -> None:
    """Wait for `other`. Raises the error of `watching` if that fails first."""
    waiting = asyncio.create_task(other)
    try:
        await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
