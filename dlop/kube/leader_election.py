"""Leader election over a Lease, by the rules of client-go, so that both can stand for the same lease.

What it promises:
- `is_leader()` is true for at most one elector at a time, whatever the network does and however long requests take.
  A leader counts from when it *sent* its last successful renewal, for `renew_deadline_seconds`. A rival counts from when
  it *saw* the record change, for the longer lease duration, and its write fails if the record has changed since.
- Time is monotonic time of this process; the times in the record are for people.
- What is led is cancelled at once when leadership is lost, and the lease is released only after it has ended.
- No error of the server or of the network ends an election.

An election is no fence: a write may leave before the deadline and arrive after it. Names and preconditions must make
such a write harmless.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import structlog

from dlop.kube.client import Client, Limits
from dlop.kube.errors import KubeError, NotFoundError
from dlop.kube.lease import LeaseRecord, LeaseWriter, MalformedLeaseError
from dlop.kube.resources import LEASES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType

log = structlog.get_logger(__name__)

R = TypeVar("R")

_JITTER = 1.2
_RELEASE_ATTEMPTS = 5
# Everything that a server, a proxy or somebody's editor can do to one attempt.
_SETBACKS = (KubeError, MalformedLeaseError, ValueError, TimeoutError)


class LeadershipLostError(Exception):
    """The lease could not be renewed in time, or somebody else holds it."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """How long leadership lasts without a sign of life. The defaults are those of Kubernetes' own components."""

    lease_duration_seconds: int = 15
    """How long rivals wait after the last change of the record."""
    renew_deadline_seconds: float = 10.0
    """How long after its last renewal a leader stops by itself."""
    retry_period_seconds: float = 2.0
    """How long to wait between attempts."""

    def __post_init__(self) -> None:
        if self.lease_duration_seconds < 1 or self.retry_period_seconds <= 0:
            raise ValueError("the lease duration must be at least one second and the retry period more than none")
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError("the lease duration must be longer than the renew deadline")
        if self.renew_deadline_seconds <= _JITTER * self.retry_period_seconds:
            raise ValueError(f"the renew deadline must be longer than {_JITTER} times the retry period")

    @property
    def request_timeout_seconds(self) -> float:
        """Short enough that one hung request does not cost the lease."""
        return max(1.0, self.renew_deadline_seconds / 2)


class Elector:
    """Stands for one lease. The identity must be this process's alone: two electors of one name are one elector."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str,
        name: str,
        identity: str,
        rng: Random,
        timing: LeaseTiming = LeaseTiming(),
        wall_clock: Callable[[], float] = time.time,
        on_new_leader: Callable[[str], None] | None = None,
    ) -> None:
        if not identity:
            raise ValueError("an elector needs an identity")
        # A client of its own: renewals never wait behind the operator's calls.
        self._client = Client(transport, limits=Limits(timeout_seconds=timing.request_timeout_seconds))
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._rng = rng
        self._timing = timing
        self._on_new_leader = on_new_leader
        self._writer = LeaseWriter(
            namespace=namespace, name=name, identity=identity, duration_seconds=timing.lease_duration_seconds, wall_clock=wall_clock
        )
        self._observed: LeaseRecord | None = None
        self._observed_at = 0.0
        self._reported_leader = ""
        self._renewed_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- asking ------------------------------------------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Whether a write may be sent now: `client.guarded(elector.is_leader)`."""
        return self._renewed_at is not None and self._now() < self._renewed_at + self._timing.renew_deadline_seconds

    @property
    def leader(self) -> str:
        """The identity of the last leader seen; empty when there is none."""
        return self._observed.holder if self._observed is not None else ""

    # --- leading -----------------------------------------------------------------------------------------------------

    async def run(self, lead: Callable[[], Awaitable[R]]) -> R:
        """Wait for leadership, then lead. `lead` is cancelled when leadership is lost.

        Raises:
            LeadershipLostError: leadership was lost, and `lead` has ended.
        """
        async with self.leading():
            return await lead()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Wait for leadership and hold it while the body runs; the body is cancelled when leadership is lost.

        While a body that was stopped from outside cleans up, the lease is still renewed. It is released after that.

        Raises:
            LeadershipLostError: leadership was lost, and the body has ended.
        """
        self._loop = asyncio.get_running_loop()
        try:
            await self._acquire()
            try:
                async with asyncio.TaskGroup() as group:
                    renewing = group.create_task(self._renew_until_lost(), name=f"renew lease {self._name}")
                    yield
                    renewing.cancel()
            except BaseExceptionGroup as errors:
                raise _without_wrapping(errors) from None
        finally:
            await self._release()

    # --- acquiring and renewing --------------------------------------------------------------------------------------

    async def _acquire(self) -> None:
        log.info("standing for leadership", lease=self._name, namespace=self._namespace, identity=self._identity)
        while not await self._attempt():
            await self._wait_for_a_chance()
        log.info("became leader", lease=self._name, namespace=self._namespace, identity=self._identity)

    async def _renew_until_lost(self) -> None:
        while self.is_leader():
            await self._sleep_before_deadline()
            try:
                async with asyncio.timeout_at(self._deadline()):
                    await self._attempt()
            except TimeoutError:
                pass  # the request outlasted the deadline, and with it leadership
        self._renewed_at = None
        log.error("leadership is lost", lease=self._name, namespace=self._namespace, leader=self.leader)
        raise LeadershipLostError(f"the lease {self._namespace}/{self._name} is lost; its last known holder is {self.leader or 'nobody'}")

    async def _sleep_before_deadline(self) -> None:
        await asyncio.sleep(min(self._timing.retry_period_seconds, max(0.0, self._deadline() - self._now())))

    async def _attempt(self) -> bool:
        """Try once to get or to keep the lease."""
        try:
            held = await self._try_fast() or await self._try_thoroughly()
        except _SETBACKS as error:
            log.warning("the lease could not be read or written", lease=self._name, namespace=self._namespace, error=str(error))
            held = False
        self._report_leader()
        return held

    async def _try_fast(self) -> bool:
        """A leader writes over the version that it knows, without reading first."""
        if not self.is_leader() or self._observed is None:
            return False
        try:
            await self._write(self._observed)
        except _SETBACKS as error:
            log.info("the lease has to be read again", lease=self._name, namespace=self._namespace, error=str(error))
            return False
        return True

    async def _try_thoroughly(self) -> bool:
        try:
            found = await self._read()
        except NotFoundError:
            await self._write(None)
            return True
        self._observe(found)
        if self._is_held_by_another(found):
            self._renewed_at = None
            return False
        await self._write(found)
        return True

    def _is_held_by_another(self, found: LeaseRecord) -> bool:
        return found.holder not in ("", self._identity) and self._now() < self._runs_out_at(found)

    def _runs_out_at(self, found: LeaseRecord) -> float:
        return self._observed_at + (found.duration_seconds or self._timing.lease_duration_seconds)

    # --- standing by -------------------------------------------------------------------------------------------------

    async def _wait_for_a_chance(self) -> None:
        """Wait until the lease is free or has run out. Where it cannot be watched, look again after a jittered while."""
        if self._observed is not None and self._is_held_by_another(self._observed):
            window = asyncio.timeout(None)
            try:
                async with window:
                    if await self._is_freed(self._observed, window):
                        return
            except _SETBACKS as error:
                if window.expired():
                    return
                log.info("the lease cannot be watched", lease=self._name, namespace=self._namespace, error=str(error))
        await asyncio.sleep(self._timing.retry_period_seconds * (1.0 + _JITTER * self._rng.random()))

    async def _is_freed(self, record: LeaseRecord, window: asyncio.Timeout) -> bool:
        """Watch the lease as long as its holder renews it. The window ends when the record runs out."""
        window.reschedule(self._runs_out_at(record))
        async with self._client.watch(
            LEASES,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
            resource_version=record.resource_version,
            bookmarks=False,
        ) as events:
            async for event in events:
                record = LeaseRecord.of(event.decode())
                self._observe(record)
                self._report_leader()
                if event.type is WatchEventType.DELETED or not self._is_held_by_another(record):
                    return True
                window.reschedule(self._runs_out_at(record))
        return False

    # --- the record --------------------------------------------------------------------------------------------------

    async def _read(self) -> LeaseRecord:
        return LeaseRecord.of(await self._client.get(LEASES, self._name, namespace=self._namespace))

    async def _write(self, old: LeaseRecord | None) -> None:
        sent_at = self._now()
        if old is None:
            answer = await self._client.create(LEASES, self._writer.first(), namespace=self._namespace)
        else:
            answer = await self._replace(self._writer.held(old))
        record = LeaseRecord.of(answer)
        if record.holder != self._identity:
            raise MalformedLeaseError("the server's answer to the write names another holder than the write did")
        self._observe(record)
        self._renewed_at = sent_at

    async def _replace(self, body: JsonObject) -> JsonObject:
        return await self._client.replace(LEASES, self._name, body, namespace=self._namespace)

    def _observe(self, found: LeaseRecord) -> None:
        if self._observed is None or found.spec != self._observed.spec:
            self._observed_at = self._now()
        self._observed = found

    def _report_leader(self) -> None:
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self._on_new_leader is not None:
                self._on_new_leader(self.leader)

    # --- releasing ---------------------------------------------------------------------------------------------------

    async def _release(self) -> None:
        """Hand the lease over, if it is ours as far as we know. A failure costs the next leader some seconds, no more."""
        was_leader, self._renewed_at = self.is_leader(), None
        if not was_leader:
            return
        try:
            async with asyncio.timeout(self._timing.request_timeout_seconds):
                await self._write_release()
        except _SETBACKS as error:
            log.warning("the lease could not be released", lease=self._name, namespace=self._namespace, error=str(error))

    async def _write_release(self) -> None:
        record = self._observed
        for _ in range(_RELEASE_ATTEMPTS):
            if record is None or record.holder != self._identity:
                return
            try:
                self._observe(LeaseRecord.of(await self._replace(self._writer.released(record))))
                return
            except _SETBACKS:
                record = await self._read()
        log.warning("the lease kept changing and could not be released", lease=self._name, namespace=self._namespace)

    # --- time --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()

    def _deadline(self) -> float:
        assert self._renewed_at is not None  # noqa: S101 - asked only while leading
        return self._renewed_at + self._timing.renew_deadline_seconds


def _without_wrapping(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error of a group, as if there had been no group."""
    return errors.exceptions[0] if len(errors.exceptions) == 1 else errors
