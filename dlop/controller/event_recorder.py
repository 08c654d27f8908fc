"""Records events of events.k8s.io/v1 about jobs.

Events never delay a pass and never compete with other writes. They wait in a bounded queue, and one task sends them. An
event that repeats within a few minutes becomes a series. If the queue is full, events are dropped and counted. On shutdown,
the recorder sends the queued events for a short time.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import structlog

from dlop.api.constants import MANAGER
from dlop.controller.kinds import JobKey
from dlop.kube.client import Client
from dlop.kube.errors import KubeError, NotFoundError, NotLeaderError
from dlop.kube.objects import ObjectMeta
from dlop.kube.rate_limit import RateLimit, TokenBucket
from dlop.kube.resources import EVENTS
from dlop.kube.timestamps import format_micro_time
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Event

log = structlog.get_logger(__name__)

# An event that repeats within this time continues its series.
_SERIES_SECONDS = 360.0
_MAX_NOTE_BYTES = 1024
_MAX_SERIES = 4096
_MAX_NAME_STEM = 230

_SeriesKey = tuple[str, str, str, str]
"""Identity of a series: uid of the job, type, reason, note."""


@dataclass(slots=True)
class _Series:
    """An event and its repetitions."""

    key: JobKey
    uid: str
    resource_version: str
    event: Event
    name: str
    first_at: float
    last_at: float
    last_loop_time: float
    """Loop time of the last repetition."""
    count: int = 1
    is_sent: bool = False
    is_queued: bool = False


@dataclass(slots=True)
class EventCounts:
    sent: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    queue_length: int = 1000
    per_second: float = 20.0
    burst: int = 50


class EventRecorder:
    """Queues events; `run` sends them."""

    def __init__(
        self,
        client: Client,
        *,
        instance: str,
        clock: Callable[[], float],
        rng: Random,
        limits: EventLimits = EventLimits(),
    ) -> None:
        self.counts = EventCounts()
        self._client = client
        self._instance = instance
        self._clock = clock
        self._rng = rng
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(maxsize=limits.queue_length)
        self._series: OrderedDict[_SeriesKey, _Series] = OrderedDict()
        self._bucket = TokenBucket(RateLimit(limits.per_second, limits.burst))
        self._is_draining = False

    def record(self, key: JobKey, job: ObjectMeta, event: Event) -> None:
        """Queue an event about a job. Does not block."""
        series_key = (job.uid, event.type.value, event.reason, event.message)
        series = self._series.get(series_key)
        now = asyncio.get_running_loop().time()
        if series is not None and now - series.last_loop_time < _SERIES_SECONDS:
            series.count += 1
            series.last_at, series.last_loop_time = self._clock(), now
        else:
            series = self._start_series(key, job, event, now)
        self._series[series_key] = series
        self._series.move_to_end(series_key)
        if len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)
        self._enqueue(series)

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            series = await self._queue.get()
            try:
                if not self._is_draining:
                    await self._bucket.take(within_seconds=float("inf"))
                series.is_queued = False
                await self._send(series)
            finally:
                self._queue.task_done()

    async def drain(self, *, within_seconds: float) -> None:
        """Send the queued events without a rate limit, because there are no other writes. Drops what is left after the timeout.

        `run` does the sending and must still be running.
        """
        self._is_draining = True
        try:
            async with asyncio.timeout(within_seconds):
                await self._queue.join()
        except TimeoutError:
            self.counts.dropped += self._queue.qsize()
            log.info("dropped queued events", events=self._queue.qsize())

    # --- sending -----------------------------------------------------------------------------------------------------

    def _start_series(self, key: JobKey, job: ObjectMeta, event: Event, now: float) -> _Series:
        wall_time = self._clock()
        name = f"{job.name[:_MAX_NAME_STEM]}.{self._rng.getrandbits(64):016x}"
        return _Series(key, job.uid, job.resource_version, event, name, first_at=wall_time, last_at=wall_time, last_loop_time=now)

    def _enqueue(self, series: _Series) -> None:
        if series.is_queued:
            return
        try:
            self._queue.put_nowait(series)
            series.is_queued = True
        except asyncio.QueueFull:
            self.counts.dropped += 1

    async def _send(self, series: _Series) -> None:
        try:
            if series.is_sent:
                await self._patch(series)
            else:
                await self._client.create(EVENTS, self._body(series), namespace=series.key.namespace)
                series.is_sent = True
            self.counts.sent += 1
        except NotLeaderError:
            return
        except KubeError as error:
            self.counts.dropped += 1
            log.info("failed to send event", reason=series.event.reason, job=series.key.name, error=str(error))

    async def _patch(self, series: _Series) -> None:
        try:
            await self._client.patch(EVENTS, series.name, {"series": _series_field(series)}, namespace=series.key.namespace)
        except NotFoundError:
            # The event has expired on the server. Start a new series.
            series.count, series.first_at = 1, series.last_at
            await self._client.create(EVENTS, self._body(series), namespace=series.key.namespace)

    def _body(self, series: _Series) -> JsonObject:
        key, event = series.key, series.event
        body: JsonObject = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": series.name, "namespace": key.namespace},
            "eventTime": format_micro_time(series.first_at),
            "reportingController": MANAGER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": event.reason,
            "type": event.type.value,
            "note": _truncate(event.message),
            "regarding": {
                "apiVersion": key.resource.api_version,
                "kind": key.resource.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": series.uid,
                "resourceVersion": series.resource_version,
            },
        }
        return body if series.count == 1 else {**body, "series": _series_field(series)}


def _series_field(series: _Series) -> JsonObject:
    return {"count": series.count, "lastObservedTime": format_micro_time(series.last_at)}


def _truncate(note: str) -> str:
    """Shorten a note to the API server's limit, which counts bytes."""
    data = note.encode()
    return note if len(data) <= _MAX_NOTE_BYTES else data[: _MAX_NOTE_BYTES - 3].decode(errors="ignore") + "..."
