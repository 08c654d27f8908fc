"""The logs of all replicas of a job as they are written, until the job is over.

Each pod has a reader of its own, and a pod that is replaced gets a new one. When the job is over, readers whose pods end go on to
their end, and those of pods that stay read what there is and stop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from dlop.jobs.list_watch import News, follow, merged
from dlop.jobs.log_lines import LogLine
from dlop.jobs.logs import LogChoice, check_choice, chosen_replicas
from dlop.jobs.lookup import JobHandle
from dlop.jobs.pod_log_reader import Lines, PodLogReader
from dlop.jobs.queries import follow_pods, scope_of
from dlop.jobs.replicas import ReplicaView
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, Pod

MOST_STREAMS = 200
"""How many logs are followed at once. The connections of a client are not endless, and others need some too."""
_AHEAD = 1000


@asynccontextmanager
async def follow_logs(client: Client, found: JobHandle, choice: LogChoice) -> AsyncIterator[AsyncGenerator[LogLine, None]]:
    """What the chosen replicas have written and go on to write. It ends with the job.

    Reading raises KubeError when the logs may not be read.

    Raises:
        JobsError: the job has no such role.
    """
    check_choice(found, choice)
    queue: Lines = asyncio.Queue(maxsize=_AHEAD)
    task = asyncio.create_task(_Readers(client, found, choice, queue).run())
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
    """One reader for each pod that the job has had."""

    def __init__(self, client: Client, found: JobHandle, choice: LogChoice, queue: Lines) -> None:
        self._client = client
        self._found = found
        self._choice = choice
        self._queue = queue
        self._readers: dict[str, PodLogReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard: set[int] = set()
        self._is_over = False
        self._places = asyncio.Semaphore(MOST_STREAMS)
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Read until the job is over and every reader is through."""
        feeding = asyncio.create_task(self._feed())
        try:
            await _first(feeding, self._over.wait())
            while self._tasks:
                await asyncio.wait({feeding, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                if feeding.done():
                    feeding.result()
            await self._queue.put(None)
        except Exception as error:  # noqa: BLE001 - whoever reads the lines gets it
            await self._queue.put(error)
        finally:
            for task in (feeding, *self._tasks):
                task.cancel()
            await asyncio.gather(feeding, *self._tasks, return_exceptions=True)

    async def _feed(self) -> None:
        sources: tuple[AsyncGenerator[News[Any], None], ...] = (
            follow(self._client, scope_of(self._found), CustomObject),
            follow_pods(self._client, self._found),
        )
        async with merged(*sources) as news:
            async for number, change in news:
                self._heard.add(number)
                if number == 0:
                    self._take_job(change)
                else:
                    self._take_pods(change)
                if self._is_over and len(self._heard) == len(sources):
                    self._end()

    def _take_job(self, news: News[CustomObject]) -> None:
        now = next((each for each in news.there if each.metadata.uid == self._found.uid), None)
        if now is not None:
            self._found = JobHandle(self._found.kind, now)
        phase = self._found.phase()
        # News without it: it is gone, or another one has its name.
        self._is_over = now is None or (phase is not None and phase.is_final)

    def _take_pods(self, news: News[Pod]) -> None:
        for gone in news.gone:
            if gone.metadata.uid in self._readers:
                self._readers[gone.metadata.uid].pod_is_gone()
        by_uid = {pod.metadata.uid: pod for pod in news.there}
        for replica in chosen_replicas(self._found, news.there, self._choice):
            pod = by_uid.get(replica.pod_uid)
            if pod is not None:
                self._reader(replica, pod).take(pod)

    def _reader(self, replica: ReplicaView, pod: Pod) -> PodLogReader:
        known = self._readers.get(pod.metadata.uid)
        if known is not None:
            return known
        reader = PodLogReader(self._client, self._found, replica, pod, choice=self._choice, queue=self._queue, places=self._places)
        self._readers[pod.metadata.uid] = reader
        task = asyncio.create_task(reader.run(), name=f"log of {replica.pod}")
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return reader

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The line may be full, and nobody else can wait for it here.
            self._tasks.add(asyncio.create_task(self._queue.put(error)))

    def _end(self) -> None:
        for reader in self._readers.values():
            reader.job_is_over()
        self._over.set()


async def _first(feeding: asyncio.Task[None], other: Coroutine[Any, Any, object]) -> None:
    """Wait for the other one, unless the first fails before."""
    waiting = asyncio.create_task(other)
    try:
        await asyncio.wait({feeding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if feeding.done():
            feeding.result()
    finally:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
