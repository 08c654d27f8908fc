"""Leader election with a Lease, by the rules of client-go, so that both can compete for the same lease.

Guarantees:
- `is_leader()` is true for at most one elector at a time, whatever the network does and however long requests take.
  A leader counts from when it *sent* its last successful renewal, for `renew_deadline_seconds`. Other electors count from
  when they *observed* the record change, for the longer lease duration, and their write fails if it changed since.
- Durations are measured with the monotonic clock of this process; the times in the record are informational.
- The body is cancelled at once when leadership is lost, and the lease is released only after the body has finished.
- No error of the server or of the network ends an election.

Leader election does not fence writes: a write may be sent before the deadline and arrive after it. Deterministic names
and preconditions must make such a write harmless.
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

from dlop.kube.client import Client, ClientLimits
from dlop.kube.errors import KubeError, NotFoundError
from dlop.kube.lease import LeaseBuilder, LeaseRecord, MalformedLeaseError
from dlop.kube.resources import LEASES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType

log = structlog.get_logger(__name__)

R = TypeVar("R")

_JITTER = 1.2
_RELEASE_ATTEMPTS = 5
# Errors that end one attempt. They may come from the server, a proxy, or an edited lease.
_ATTEMPT_ERRORS = (KubeError, MalformedLeaseError, ValueError, TimeoutError)


class LeadershipLostError(Exception):
    """The lease was not renewed in time, or another elector holds it."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Durations of leader election. The defaults are those of the Kubernetes components."""

    lease_duration_seconds: int = 15
    """How long other electors wait after the last change of the record."""
    renew_deadline_seconds: float = 10.0
    """How long after its last renewal a leader gives up leadership."""
    retry_period_seconds: float = 2.0
    """Delay between attempts."""

    def __post_init__(self) -> None:
        if self.lease_duration_seconds < 1 or self.retry_period_seconds <= 0:
            raise ValueError("the lease duration must be at least one second and the retry period must be positive")
        if self.lease_duration_seconds <= self.renew_deadline_seconds:
            raise ValueError("the lease duration must be longer than the renew deadline")
        if self.renew_deadline_seconds <= _JITTER * self.retry_period_seconds:
            raise ValueError(f"the renew deadline must be longer than {_JITTER} times the retry period")

    @property
    def request_timeout_seconds(self) -> float:
        """Short enough that one hanging request does not lose the lease."""
        return max(1.0, self.renew_deadline_seconds / 2)


class LeaderElector:
    """Elector for one lease. `identity` must be unique: two electors with the same identity both act as leader."""

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
            raise ValueError("an elector must have an identity")
        # A separate client, so that renewals never wait for a slot behind other calls.
        self._client = Client(transport, limits=ClientLimits(timeout_seconds=timing.request_timeout_seconds))
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._rng = rng
        self._timing = timing
        self._on_new_leader = on_new_leader
        self._builder = LeaseBuilder(
            namespace=namespace, name=name, identity=identity, duration_seconds=timing.lease_duration_seconds, wall_clock=wall_clock
        )
        self._observed: LeaseRecord | None = None
        self._observed_at = 0.0
        self._reported_leader = ""
        self._renewed_at: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- queries -----------------------------------------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Whether a write may be sent now. For use with `client.guarded(elector.is_leader)`."""
        return self._renewed_at is not None and self._now() < self._renewed_at + self._timing.renew_deadline_seconds

    @property
    def leader(self) -> str:
        """The identity of the last observed leader; empty if there is none."""
        return self._observed.holder if self._observed is not None else ""

    # --- leading -----------------------------------------------------------------------------------------------------

    async def run(self, lead: Callable[[], Awaitable[R]]) -> R:
        """Wait for leadership, then run `lead`. It is cancelled when leadership is lost.

        Raises:
            LeadershipLostError: leadership was lost, and `lead` has finished.
        """
        async with self.leading():
            return await lead()

    @asynccontextmanager
    async def leading(self) -> AsyncIterator[None]:
        """Wait for leadership and hold it while the body runs. The body is cancelled when leadership is lost.

        The lease is renewed until the body has finished its cleanup, and released after that.

        Raises:
            LeadershipLostError: leadership was lost, and the body has finished.
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
                raise _unwrap(errors) from None
        finally:
            await self._release()

    # --- acquiring and renewing --------------------------------------------------------------------------------------

    async def _acquire(self) -> None:
        log.info("attempting to acquire leader lease", lease=self._name, namespace=self._namespace, identity=self._identity)
        while not await self._attempt():
            await self._wait_until_free()
        log.info("became leader", lease=self._name, namespace=self._namespace, identity=self._identity)

    async def _renew_until_lost(self) -> None:
        while self.is_leader():
            await self._sleep_before_deadline()
            try:
                async with asyncio.timeout_at(self._deadline()):
                    await self._attempt()
            except TimeoutError:
                pass  # the request took longer than the renew deadline
        self._renewed_at = None
        log.error("leader election lost", lease=self._name, namespace=self._namespace, leader=self.leader)
        raise LeadershipLostError(f"lost the lease {self._namespace}/{self._name}; its last known holder is {self.leader or 'unknown'}")

    async def _sleep_before_deadline(self) -> None:
        await asyncio.sleep(min(self._timing.retry_period_seconds, max(0.0, self._deadline() - self._now())))

    async def _attempt(self) -> bool:
        """Try once to acquire or renew the lease."""
        try:
            held = await self._try_fast_renew() or await self._try_acquire_or_renew()
        except _ATTEMPT_ERRORS as error:
            log.warning("cannot read or write lease", lease=self._name, namespace=self._namespace, error=str(error))
            held = False
        self._report_leader()
        return held

    async def _try_fast_renew(self) -> bool:
        """As the leader, replace the last observed version without reading the lease first."""
        if not self.is_leader() or self._observed is None:
            return False
        try:
            await self._write(self._observed)
        except _ATTEMPT_ERRORS as error:
            log.info("fast renewal failed, reading lease", lease=self._name, namespace=self._namespace, error=str(error))
            return False
        return True

    async def _try_acquire_or_renew(self) -> bool:
        try:
            record = await self._read()
        except NotFoundError:
            await self._write(None)
            return True
        self._observe(record)
        if self._is_held_by_another(record):
            self._renewed_at = None
            return False
        await self._write(record)
        return True

    def _is_held_by_another(self, record: LeaseRecord) -> bool:
        return record.holder not in ("", self._identity) and self._now() < self._expires_at(record)

    def _expires_at(self, record: LeaseRecord) -> float:
        return self._observed_at + (record.duration_seconds or self._timing.lease_duration_seconds)

    # --- standby -----------------------------------------------------------------------------------------------------

    async def _wait_until_free(self) -> None:
        """Wait until the lease is released or expired. If it cannot be watched, wait for a retry period with jitter."""
        if self._observed is not None and self._is_held_by_another(self._observed):
            window = asyncio.timeout(None)
            try:
                async with window:
                    if await self._watch_until_free(self._observed, window):
                        return
            except _ATTEMPT_ERRORS as error:
                if window.expired():
                    return
                log.info("cannot watch lease", lease=self._name, namespace=self._namespace, error=str(error))
        await asyncio.sleep(self._timing.retry_period_seconds * (1.0 + _JITTER * self._rng.random()))

    async def _watch_until_free(self, record: LeaseRecord, window: asyncio.Timeout) -> bool:
        """Watch the lease while its holder renews it. Returns true if it was released; `window` times out when it expires."""
        window.reschedule(self._expires_at(record))
        async with self._client.watch(
            LEASES,
            namespace=self._namespace,
            field_selector=f"metadata.name={self._name}",
            resource_version=record.resource_version,
            bookmarks=False,
        ) as events:
            async for event in events:
                record = LeaseRecord.parse(event.decode())
                self._observe(record)
                self._report_leader()
                if event.type is WatchEventType.DELETED or not self._is_held_by_another(record):
                    return True
                window.reschedule(self._expires_at(record))
        return False

    # --- the record --------------------------------------------------------------------------------------------------

    async def _read(self) -> LeaseRecord:
        return LeaseRecord.parse(await self._client.get(LEASES, self._name, namespace=self._namespace))

    async def _write(self, old: LeaseRecord | None) -> None:
        sent_at = self._now()
        if old is None:
            response = await self._client.create(LEASES, self._builder.new(), namespace=self._namespace)
        else:
            response = await self._replace(self._builder.held(old))
        record = LeaseRecord.parse(response)
        if record.holder != self._identity:
            raise MalformedLeaseError("the response to the write names a different holder than the request")
        self._observe(record)
        self._renewed_at = sent_at

    async def _replace(self, body: JsonObject) -> JsonObject:
        return await self._client.replace(LEASES, self._name, body, namespace=self._namespace)

    def _observe(self, record: LeaseRecord) -> None:
        if self._observed is None or record.spec != self._observed.spec:
            self._observed_at = self._now()
        self._observed = record

    def _report_leader(self) -> None:
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self._on_new_leader is not None:
                self._on_new_leader(self.leader)

    # --- releasing ---------------------------------------------------------------------------------------------------

    async def _release(self) -> None:
        """Release the lease if this elector holds it. After a failure the next leader waits until the lease expires."""
        was_leader, self._renewed_at = self.is_leader(), None
        if not was_leader:
            return
        try:
            async with asyncio.timeout(self._timing.request_timeout_seconds):
                await self._write_release()
        except _ATTEMPT_ERRORS as error:
            log.warning("cannot release lease", lease=self._name, namespace=self._namespace, error=str(error))

    async def _write_release(self) -> None:
        record = self._observed
        for _ in range(_RELEASE_ATTEMPTS):
            if record is None or record.holder != self._identity:
                return
            try:
                self._observe(LeaseRecord.parse(await self._replace(self._builder.released(record))))
                return
            except _ATTEMPT_ERRORS:
                record = await self._read()
        log.warning("cannot release lease, too many conflicts", lease=self._name, namespace=self._namespace)

    # --- time --------------------------------------------------------------------------------------------------------

    def _now(self) -> float:
        return (self._loop or asyncio.get_running_loop()).time()

    def _deadline(self) -> float:
        assert self._renewed_at is not None  # noqa: S101 - called only by a leader
        return self._renewed_at + self._timing.renew_deadline_seconds


def _unwrap(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of a group with a single error; otherwise the group."""
    return errors.exceptions[0] if len(errors.exceptions) == 1 else errors
