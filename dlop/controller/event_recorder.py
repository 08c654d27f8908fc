"""Tells people what happens to their jobs: events of events.k8s.io/v1.

Events never hold up a pass and never compete with real writes: they wait in a bounded line and one task sends them. The
same event said again soon becomes a series of the first one. When the line is full, events are dropped and counted. An
operator that leaves sends what still waits, for a short while.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import structlog

from dlop.api.constants import MANAGER
from dlop.controller.kinds import JobKey
from dlop.kube.client import Client
from dlop.kube.errors import KubeError, NotFoundError, NotLeaderError
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import EVENTS
from dlop.kube.timestamps import to_the_microsecond
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Event

log = structlog.get_logger(__name__)

# An event that is said again within this time is the same story going on.
_SERIES_SECONDS = 360.0
_MAX_NOTE = 1024
_MAX_SERIES = 4096
_MAX_NAME_STEM = 230

_Story = tuple[str, str, str, str]
"""What makes two events the same: uid of the job, type, reason, note."""


@dataclass(slots=True)
class _Telling:
    """One event, however often it was told."""

    key: JobKey
    uid: str
    resource_version: str
    event: Event
    name: str
    first_at: float
    last_at: float
    heard_at: float
    """On the loop's clock."""
    count: int = 1
    is_sent: bool = False
    is_waiting: bool = True


@dataclass(slots=True)
class EventCounts:
    """What became of events."""

    sent: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBudget:
    """How much of the server's time events may take."""

    line_length: int = 1000
    per_second: float = 20.0
    burst: int = 50


class EventRecorder:
    """The line of events, and the task that sends them."""

    def __init__(
        self,
        client: Client,
        *,
        instance: str,
        clock: Callable[[], float],
        rng: Random,
        budget: EventBudget = EventBudget(),
    ) -> None:
        self.counts = EventCounts()
        self._client = client
        self._instance = instance
        self._clock = clock
        self._rng = rng
        self._budget = budget
        self._line: asyncio.Queue[_Telling] = asyncio.Queue(maxsize=budget.line_length)
        self._stories: OrderedDict[_Story, _Telling] = OrderedDict()
        self._allowance = _Allowance(per_second=budget.per_second, burst=budget.burst)
        self._is_leaving = False

    def tell(self, key: JobKey, job: ObjectMeta, event: Event) -> None:
        """Say something about a job. Returns at once."""
        story = (job.uid, event.type.value, event.reason, event.message)
        telling = self._stories.get(story)
        now = asyncio.get_running_loop().time()
        if telling is not None and now - telling.heard_at < _SERIES_SECONDS:
            telling.count += 1
            telling.last_at, telling.heard_at = self._clock(), now
        else:
            telling = self._new(key, job, event, now)
        self._stories[story] = telling
        self._stories.move_to_end(story)
        if len(self._stories) > _MAX_SERIES:
            self._stories.popitem(last=False)
        self._line_up(telling)

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            telling = await self._line.get()
            try:
                if not self._is_leaving:
                    await self._allowance.wait()
                telling.is_waiting = False
                await self._send(telling)
            finally:
                self._line.task_done()

    async def drain(self, *, within_seconds: float) -> None:
        """Send all that waits, as fast as the server takes it, for there are no other writes left. The rest is dropped.

        Sending is the work of `run`, which must go on meanwhile.
        """
        self._is_leaving = True
        try:
            async with asyncio.timeout(within_seconds):
                await self._line.join()
        except TimeoutError:
            self.counts.dropped += self._line.qsize()
            log.info("events were left unsaid", events=self._line.qsize())

    # --- inside ------------------------------------------------------------------------------------------------------

    def _new(self, key: JobKey, job: ObjectMeta, event: Event, now: float) -> _Telling:
        moment = self._clock()
        name = f"{job.name[:_MAX_NAME_STEM]}.{self._rng.getrandbits(64):016x}"
        return _Telling(key, job.uid, job.resource_version, event, name, first_at=moment, last_at=moment, heard_at=now, is_waiting=False)

    def _line_up(self, telling: _Telling) -> None:
        if telling.is_waiting:
            return
        try:
            self._line.put_nowait(telling)
            telling.is_waiting = True
        except asyncio.QueueFull:
            self.counts.dropped += 1

    async def _send(self, telling: _Telling) -> None:
        try:
            if telling.is_sent:
                await self._continue(telling)
            else:
                await self._client.create(EVENTS, self._body(telling), namespace=telling.key.namespace)
                telling.is_sent = True
            self.counts.sent += 1
        except NotLeaderError:
            return
        except KubeError as error:
            self.counts.dropped += 1
            log.info("an event could not be sent", reason=telling.event.reason, job=telling.key.name, error=str(error))

    async def _continue(self, telling: _Telling) -> None:
        try:
            await self._client.patch(EVENTS, telling.name, {"series": _series(telling)}, namespace=telling.key.namespace)
        except NotFoundError:
            # It has expired on the server; the story begins anew.
            telling.count, telling.first_at = 1, telling.last_at
            await self._client.create(EVENTS, self._body(telling), namespace=telling.key.namespace)

    def _body(self, telling: _Telling) -> JsonObject:
        key, event = telling.key, telling.event
        body: JsonObject = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": telling.name, "namespace": key.namespace},
            "eventTime": to_the_microsecond(telling.first_at),
            "reportingController": MANAGER,
            "reportingInstance": self._instance,
            "action": "Reconcile",
            "reason": event.reason,
            "type": event.type.value,
            "note": _shortened(event.message),
            "regarding": {
                "apiVersion": key.resource.api_version,
                "kind": key.resource.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": telling.uid,
                "resourceVersion": telling.resource_version,
            },
        }
        return body if telling.count == 1 else {**body, "series": _series(telling)}


@dataclass(slots=True)
class _Allowance:
    """A bucket of tokens, on the loop's clock."""

    per_second: float
    burst: int
    _tokens: float = field(init=False)
    _counted_at: float | None = None

    def __post_init__(self) -> None:
        self._tokens = float(self.burst)

    async def wait(self) -> None:
        """Take one token, when there is one."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        passed = 0.0 if self._counted_at is None else now - self._counted_at
        self._tokens = min(float(self.burst), self._tokens + passed * self.per_second) - 1.0
        self._counted_at = now
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self.per_second)


def _series(telling: _Telling) -> JsonObject:
    return {"count": telling.count, "lastObservedTime": to_the_microsecond(telling.last_at)}


def _shortened(note: str) -> str:
    """The server counts bytes, and refuses longer notes."""
    data = note.encode()
    return note if len(data) <= _MAX_NOTE else data[: _MAX_NOTE - 3].decode(errors="ignore") + "..."
