"""Follow the log of one pod over the restarts of its container.

Every restart starts a new run. A run that ended unread is read as the previous log. A broken stream is resumed where it broke,
without repeated lines.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from random import Random

from dlop.jobs.log_lines import LogCursor, LogLine, LogSource, read_lines
from dlop.jobs.logs import LogSelector, container_status, describe_read_error, has_previous_run, latest_run, make_line, make_note, read_run
from dlop.jobs.lookup import JobHandle
from dlop.jobs.replicas import ReplicaView
from dlop.kube.client import Client
from dlop.kube.errors import BadRequestError, KubeError, NotFoundError, ServerError, TooManyRequestsError, TransportError
from dlop.kube.objects import Pod
from dlop.kube.retry_backoff import ExponentialBackoff

_TERMINAL_PHASES = ("Succeeded", "Failed")
# Upper bound for the delay of a watch event.
_DELETION_EVENT_SECONDS = 2.0

Lines = asyncio.Queue[LogLine | BaseException | None]
"""Log lines. An error or None is the last item."""


class PodLogReader:
    def __init__(
        self,
        client: Client,
        job: JobHandle,
        replica: ReplicaView,
        pod: Pod,
        *,
        selector: LogSelector,
        queue: Lines,
        stream_slots: asyncio.Semaphore,
    ) -> None:
        """`stream_slots` bounds the number of open streams of all readers."""
        self._client = client
        self._job = job
        self._replica = replica
        self._pod = pod
        self._selector = selector
        self._container = selector.container or replica.container
        self._queue = queue
        self._stream_slots = stream_slots
        self._cursor = LogCursor()
        self._last_complete_run = -1
        """The last run that was read completely."""
        self._changed = asyncio.Event()
        self._deleted = asyncio.Event()
        self._job_finished = False
        self._reported_runs: set[int] = set()
        """Runs with a reported read error."""
        # The randomness only spreads the retries of many readers.
        self._backoff = ExponentialBackoff(rng=Random(), first_seconds=0.5, cap_seconds=15.0, reset_after_seconds=60.0)  # noqa: S311

    def update(self, pod: Pod) -> None:
        self._pod = pod
        self._changed.set()

    def pod_deleted(self) -> None:
        self._deleted.set()
        self._changed.set()

    def job_finished(self) -> None:
        """Stop reading, unless the pod is terminating."""
        self._job_finished = True
        self._changed.set()

    @property
    def _is_deleted(self) -> bool:
        return self._deleted.is_set()

    async def run(self) -> None:
        """Read until the log is complete."""
        while True:
            self._changed.clear()
            run = latest_run(self._pod, self._container)
            if run is not None and run > self._last_complete_run and not self._is_deleted:
                await self._read_previous(run)
                await self._read_run(run)
            elif self._is_done():
                return
            else:
                await self._changed.wait()

    def _is_done(self) -> bool:
        return self._is_deleted or self._job_finished or self._pod.status.phase in _TERMINAL_PHASES

    async def _read_previous(self, run: int) -> None:
        """Read the previous run, if it is unread."""
        if run - 1 <= self._last_complete_run:
            return
        if run - 1 > self._last_complete_run + 1:
            await self._queue.put(make_note(self._replica, f"restarted {run} times; logs of earlier runs are not available"))
        if not has_previous_run(self._pod, self._container):
            return
        previous = read_run(self._client, self._job, self._replica, self._container, run=run - 1, selector=self._selector, previous=True)
        async with aclosing(previous):
            async for line in previous:
                if line.is_note or line.time > self._cursor.timestamp:
                    await self._queue.put(line)
        self._last_complete_run = run - 1

    async def _read_run(self, run: int) -> None:
        """Read a run to its end, or to its current end if the job has finished."""
        was_running = not self._has_terminated(run)
        reading = asyncio.create_task(self._follow(run))
        try:
            while not reading.done() and not self._should_stop():
                self._changed.clear()
                waiting = asyncio.create_task(self._changed.wait())
                await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
                await asyncio.gather(waiting, return_exceptions=True)
        finally:
            was_stopped = not reading.done()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if was_stopped:
            await self._read_rest(run)
        elif not reading.cancelled():
            reading.result()
        if self._has_restarted(run):
            return  # `_read_previous` reads what the stream missed
        if self._is_done() or self._has_terminated(run):
            if was_running and not was_stopped and not self._is_deleted:
                # A restart of the kubelet may have closed the stream before the container wrote its last lines.
                await self._read_rest(run)
            self._last_complete_run = max(self._last_complete_run, run)
        else:
            await self._wait_for_change()

    async def _read_rest(self, run: int) -> None:
        try:
            await self._stream(run, follow=False)
        except (TransportError, ServerError, TooManyRequestsError) as error:
            await self._report_error(run, error)

    def _has_terminated(self, run: int) -> bool:
        """Whether the container has terminated. A restart of the kubelet closes the stream too."""
        status = container_status(self._pod, self._container)
        return status is None or status.state.running is None or status.restart_count > run

    def _has_restarted(self, run: int) -> bool:
        status = container_status(self._pod, self._container)
        return status is not None and status.restart_count > run and has_previous_run(self._pod, self._container) and not self._is_deleted

    async def _wait_for_change(self) -> None:
        """Wait for an event of the pod, which most likely reports the end of the run, or for the back-off delay."""
        try:
            async with asyncio.timeout(self._backoff.delay_seconds(now=asyncio.get_running_loop().time())):
                await self._changed.wait()
        except TimeoutError:
            return

    def _should_stop(self) -> bool:
        """Whether the job has finished while the pod keeps running."""
        ends_by_itself = self._is_deleted or self._pod.metadata.deletion_timestamp is not None or self._pod.status.phase in _TERMINAL_PHASES
        return self._job_finished and not ends_by_itself

    async def _follow(self, run: int) -> None:
        while True:
            try:
                await self._stream_in_slot(run)
            except (TransportError, ServerError, TooManyRequestsError) as error:
                # The node may never respond again. Do not wait for it once the job has finished.
                is_last = self._is_deleted or self._job_finished
                if is_last or isinstance(error, ServerError):
                    await self._report_error(run, error)
                if is_last:
                    return
                await self._wait_for_change()
            else:
                return

    async def _report_error(self, run: int, error: KubeError) -> None:
        """Report once per run."""
        if run not in self._reported_runs:
            self._reported_runs.add(run)
            await self._queue.put(make_note(self._replica, describe_read_error(run, error)))

    async def _stream_in_slot(self, run: int) -> None:
        if self._stream_slots.locked():
            await self._queue.put(make_note(self._replica, "too many logs are followed at the same time; waiting for another one to end"))
        async with self._stream_slots:
            await self._stream(run, follow=True)

    async def _stream(self, run: int, *, follow: bool) -> None:
        source = LogSource(namespace=self._job.namespace, pod=self._replica.pod, container=self._container)
        lines = read_lines(
            self._client,
            source,
            self._cursor,
            follow=follow,
            tail_lines=self._selector.tail_lines,
            since_seconds=self._selector.since_seconds,
        )
        try:
            async with aclosing(lines):
                async for timestamp, text in lines:
                    # A stream opened before the event of a restart arrived has the lines of the new run.
                    current_run = max(run, latest_run(self._pod, self._container) or 0)
                    await self._queue.put(make_line(self._replica, self._container, run=current_run, timestamp=timestamp, text=text))
        except NotFoundError:
            return
        except BadRequestError as error:
            if not await self._wait_for_deletion():
                await self._queue.put(make_note(self._replica, f"the log cannot be read: {error}"))

    async def _wait_for_deletion(self) -> bool:
        """Wait briefly for the deletion event. Logs are requested by name, which may already belong to another pod."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DELETION_EVENT_SECONDS):
                await self._deleted.wait()
        return self._is_deleted
