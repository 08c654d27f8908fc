"""Reads the log of one pod while it grows, run after run.

A container that is restarted begins a new run; the one run that was missed meanwhile is read behind. A stream that breaks is
taken up where it broke, and no line comes twice.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from random import Random

from dlop.jobs.log_lines import Cursor, LogLine, LogSource, read_lines
from dlop.jobs.logs import LogChoice, keeps_run_before, last_run, line_of, note, of_run, status_of, unreadable
from dlop.jobs.lookup import JobHandle
from dlop.jobs.replicas import ReplicaView
from dlop.kube.backoff import Backoff
from dlop.kube.client import Client
from dlop.kube.errors import BadRequestError, KubeError, NotFoundError, ServerError, TooManyRequestsError, TransportError
from dlop.kube.objects import Pod

_ENDED = ("Succeeded", "Failed")
# How long news of a pod may take: far longer than they do.
_NEWS_SECONDS = 2.0

Lines = asyncio.Queue[LogLine | BaseException | None]
"""Where lines go; an error or None is the last of them."""


class PodLogReader:
    """Reads the log of one pod, run after run."""

    def __init__(
        self,
        client: Client,
        found: JobHandle,
        replica: ReplicaView,
        pod: Pod,
        *,
        choice: LogChoice,
        queue: Lines,
        places: asyncio.Semaphore,
    ) -> None:
        """`places` are the streams that may be open at once: a connection has room for so many."""
        self._client = client
        self._found = found
        self._replica = replica
        self._pod = pod
        self._choice = choice
        self._container = choice.container or replica.container
        self._queue = queue
        self._places = places
        self._cursor = Cursor()
        self._read_to = -1
        """The last run that was read to its end."""
        self._changed = asyncio.Event()
        self._gone = asyncio.Event()
        self._is_over = False
        self._complained_of: set[int] = set()
        """Runs that could not be read when they were to be."""
        # Chance only spreads the tries of many readers.
        self._backoff = Backoff(rng=Random(), first_seconds=0.5, cap_seconds=15.0, reset_after_seconds=60.0)  # noqa: S311

    def take(self, pod: Pod) -> None:
        """The pod has changed."""
        self._pod = pod
        self._changed.set()

    def pod_is_gone(self) -> None:
        """There will be nothing more."""
        self._gone.set()
        self._changed.set()

    def job_is_over(self) -> None:
        """What the pod writes from now on is of no interest, unless it is on its way out."""
        self._is_over = True
        self._changed.set()

    @property
    def _is_gone(self) -> bool:
        return self._gone.is_set()

    async def run(self) -> None:
        """Read until there is nothing more to come."""
        while True:
            self._changed.clear()
            run = last_run(self._pod, self._container)
            if run is not None and run > self._read_to and not self._is_gone:
                await self._catch_up(run)
                await self._read(run)
            elif self._is_through():
                return
            else:
                await self._changed.wait()

    def _is_through(self) -> bool:
        return self._is_gone or self._is_over or self._pod.status.phase in _ENDED

    async def _catch_up(self, run: int) -> None:
        """Read the run before this one, if it was not."""
        if run - 1 <= self._read_to:
            return
        if run - 1 > self._read_to + 1:
            await self._queue.put(note(self._replica, f"it was restarted {run} times; the logs of earlier runs are gone"))
        if not keeps_run_before(self._pod, self._container):
            return
        previous = of_run(self._client, self._found, self._replica, self._container, run=run - 1, choice=self._choice, previous=True)
        async with aclosing(previous):
            async for line in previous:
                if line.is_note or line.time > self._cursor.moment:
                    await self._queue.put(line)
        self._read_to = run - 1

    async def _read(self, run: int) -> None:
        """Read a run to its end, or as far as it has come when the job is over."""
        reading = asyncio.create_task(self._follow(run))
        try:
            while not reading.done() and not self._is_cut():
                self._changed.clear()
                waiting = asyncio.create_task(self._changed.wait())
                await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
        finally:
            was_cut = not reading.done()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if was_cut:
            await self._read_the_rest(run)
        elif not reading.cancelled():
            reading.result()
        if self._is_through() or self._has_ended(run):
            self._read_to = max(self._read_to, run)
        else:
            await self._look_again_later()

    async def _read_the_rest(self, run: int) -> None:
        try:
            await self._stream(run, follow=False)
        except (TransportError, ServerError, TooManyRequestsError) as error:
            await self._complain(run, error)

    def _has_ended(self, run: int) -> bool:
        """Whether the run is known to be over, and not only its stream: a kubelet that is restarted ends those too."""
        status = status_of(self._pod, self._container)
        return status is None or status.state.running is None or status.restart_count > run

    async def _look_again_later(self) -> None:
        """Most likely the news that the run is over are on their way."""
        try:
            async with asyncio.timeout(self._backoff.delay_seconds(now=asyncio.get_running_loop().time())):
                await self._changed.wait()
        except TimeoutError:
            return

    def _is_cut(self) -> bool:
        """Whether the run would go on though nobody waits for it."""
        ends_by_itself = self._is_gone or self._pod.metadata.deletion_timestamp is not None or self._pod.status.phase in _ENDED
        return self._is_over and not ends_by_itself

    async def _follow(self, run: int) -> None:
        while True:
            try:
                await self._stream_at_a_place(run)
            except (TransportError, ServerError, TooManyRequestsError) as error:
                # A node that does not answer may never do so again, and nobody waits for it once the job is over.
                is_last = self._is_gone or self._is_over
                if is_last or isinstance(error, ServerError):
                    await self._complain(run, error)
                if is_last:
                    return
                await self._look_again_later()
            else:
                return

    async def _complain(self, run: int, error: KubeError) -> None:
        """Say why a run cannot be read, once."""
        if run not in self._complained_of:
            self._complained_of.add(run)
            await self._queue.put(note(self._replica, unreadable(run, error)))

    async def _stream_at_a_place(self, run: int) -> None:
        if self._places.locked():
            await self._queue.put(note(self._replica, "too many logs are followed at once; it is read when another one has ended"))
        async with self._places:
            await self._stream(run, follow=True)

    async def _stream(self, run: int, *, follow: bool) -> None:
        source = LogSource(namespace=self._found.namespace, pod=self._replica.pod, container=self._container)
        lines = read_lines(
            self._client,
            source,
            self._cursor,
            follow=follow,
            tail_lines=self._choice.tail_lines,
            since_seconds=self._choice.since_seconds,
        )
        try:
            async with aclosing(lines):
                async for moment, text in lines:
                    # A stream that was opened while the news of a restart were on their way has the lines of the new run.
                    known = max(run, last_run(self._pod, self._container) or 0)
                    await self._queue.put(line_of(self._replica, self._container, run=known, moment=moment, text=text))
        except NotFoundError:
            return
        except BadRequestError as error:
            if not await self._turns_out_gone():
                await self._queue.put(note(self._replica, f"its log cannot be read: {error}"))

    async def _turns_out_gone(self) -> bool:
        """Whether news of the pod's end are on their way: a log is asked for by name, and another pod may have it by now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_NEWS_SECONDS):
                await self._gone.wait()
        return self._is_gone
