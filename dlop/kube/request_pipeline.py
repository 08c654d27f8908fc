"""One call to the API server from start to end: in-flight limit, deadline, retries, credentials and leadership.

Everything a call waits for counts against its deadline: a free slot, credentials, and a Retry-After of the server. Reads
and writes have separate in-flight limits, so that many writes never delay a read. Low-priority calls let others go first
and use only a small share of the slots. `may_write` is checked before each write and before each retry of a write.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dlop.kube.errors import (
    AmbiguousWriteError,
    NotLeaderError,
    RequestCancelledError,
    RequestTooLargeError,
    StatusError,
    TransportError,
    UnauthorizedError,
    error_from_response,
)
from dlop.kube.server_contact import UNAVAILABLE_CODES, ServerContact
from dlop.kube.transport import Request, Response, Transport

_MAX_RETRIES = 10
# Sent by a gateway that timed out, or by a server whose etcd did. The write may have succeeded.
_AMBIGUOUS_CODES = (502, 504)
_AMBIGUOUS_MESSAGES = ("etcdserver: ", "rpc error: ", "context deadline exceeded")

# After this long a low-priority waiter no longer yields to others, so that it does not starve.
MAX_LOW_PRIORITY_WAIT_SECONDS = 5.0
# The share of all slots that low-priority requests may use. More of them would delay the server's responses to other
# requests, and the watch events of the objects that those write.
_LOW_PRIORITY_SHARE = 1 / 8
# Timers of some event loops fire early by less than this.
_TIMER_SLACK_SECONDS = 0.01

_WaitQueue = deque[tuple[float, asyncio.Future[None]]]
"""Loop time at which each waiter was queued, and the future that grants it a slot."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Timeout, in-flight limits and page size of a client."""

    timeout_seconds: float = 30.0
    """For one call, including its retries and its wait for a free slot."""
    writes_in_flight: int = 64
    reads_in_flight: int = 16
    page_size: int = 500
    """Number of objects in one page of a list."""


class RequestPipeline:
    """Sends requests over a transport, within limits."""

    def __init__(self, transport: Transport, *, limits: ClientLimits, may_write: Callable[[], bool] | None, contact: ServerContact) -> None:
        self._transport = transport
        self._contact = contact
        self._limits = limits
        self._may_write = may_write
        self._cancel_if: Callable[[], bool] | None = None
        self._reads = InFlightLimiter(limits.reads_in_flight)
        self._writes = InFlightLimiter(limits.writes_in_flight)

    def guarded(self, may_write: Callable[[], bool]) -> RequestPipeline:
        """A pipeline with the same slots and connections whose writes need `may_write`."""
        clone = copy.copy(self)
        clone._may_write = may_write
        return clone

    def low_priority(self, *, cancel_if: Callable[[], bool]) -> RequestPipeline:
        """A pipeline with the same slots and connections for low-priority calls. `cancel_if` is checked after a wait."""
        clone = copy.copy(self)
        clone._cancel_if = cancel_if
        return clone

    @property
    def has_free_write_slot(self) -> bool:
        return self._writes.has_free_slot()

    async def send(self, request: Request, *, timeout_seconds: float | None = None) -> Response:
        """Send a request, with retries. Returns only 2xx responses.

        Raises:
            StatusError: the server rejected the request.
            TransportError: no response, and nothing has changed.
            AmbiguousWriteError: no response to a write, or one that does not say whether the write happened.
            NotLeaderError: a write without leadership; nothing was sent.
            RequestCancelledError: `cancel_if` was true after the wait for a slot; nothing was sent.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout_seconds or self._limits.timeout_seconds)
        credentials_origin = ""
        retries = 0
        while True:
            response = await self._attempt(request, deadline)
            if response.status < 300:
                return response
            error = error_from_response(response.status, response.headers, response.body)
            if isinstance(error, UnauthorizedError):
                if credentials_origin:
                    raise rejected_credentials_error(error, credentials_origin)
                credentials_origin = await self.refresh_credentials(deadline)
                continue
            if request.is_write and _is_ambiguous(error):
                raise AmbiguousWriteError(f"{request.method} {request.path} may or may not have succeeded: {error}") from error
            delay = self._retry_delay(error)
            if delay is None or retries == _MAX_RETRIES or loop.time() + delay >= deadline:
                raise error
            retries += 1
            await asyncio.sleep(delay)

    def record_response(self, status: int) -> None:
        """Record contact with the server. The response of a proxy without a backend is none."""
        if status in UNAVAILABLE_CODES:
            return
        self._contact.answered_at = asyncio.get_running_loop().time()
        if self._contact.is_down:
            self._contact.end_outage()

    async def refresh_credentials(self, deadline: float) -> str:
        """Read the credentials again. Returns their origin, for error messages."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._transport.refresh_credentials()
        except TimeoutError as error:
            raise TransportError("the server rejected the credentials, and new ones could not be read before the deadline") from error

    def _retry_delay(self, error: StatusError) -> float | None:
        """Seconds until the server wants a retry; None if it does not ask for one."""
        return self._contact.retry_after_seconds(error) if error.status_code == 429 or error.status_code >= 500 else None

    async def _attempt(self, request: Request, deadline: float) -> Response:
        limiter, low_priority = self._writes if request.is_write else self._reads, self._cancel_if is not None
        has_waited = not limiter.has_free_slot(low_priority=low_priority)
        await _acquire(limiter, deadline, low_priority=low_priority)
        try:
            if has_waited and self._cancel_if is not None and self._cancel_if():
                raise RequestCancelledError(f"{request.method} {request.path} was not sent: cancelled while it waited for a slot")
            if request.is_write and self._may_write is not None and not self._may_write():
                raise NotLeaderError(f"{request.method} {request.path} was not sent: this process does not hold the lease")
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                raise TransportError(f"{request.method} {request.path} was not sent: deadline exceeded")
            response = await self._transport.send(request, timeout_seconds=remaining)
            self.record_response(response.status)
            return response
        finally:
            limiter.release()


def rejected_credentials_error(error: UnauthorizedError, origin: str) -> UnauthorizedError:
    """The error for credentials that were rejected again after they were read again. Names their origin and how to fix the problem."""
    message = f"the server rejects the credentials of {origin}, also after reading them again ({error}): log in again or get new ones"
    return UnauthorizedError({**error.status, "message": message})


async def _acquire(limiter: InFlightLimiter, deadline: float, *, low_priority: bool) -> None:
    if limiter.has_free_slot(low_priority=low_priority):
        await limiter.acquire(low_priority=low_priority)  # does not wait, so it needs no timer
        return
    try:
        async with asyncio.timeout_at(deadline):
            await limiter.acquire(low_priority=low_priority)
    except TimeoutError as error:
        raise TransportError("no in-flight slot became free before the deadline; nothing was sent") from error


def _is_ambiguous(error: StatusError) -> bool:
    """Whether the response to a write does not say if the write happened."""
    if error.status_code < 500 or isinstance(error, RequestTooLargeError):
        return False
    # The API server gives a reason for its own errors. An error without one comes from etcd or from a proxy.
    is_unexplained = not error.status_reason and error.retry_after_seconds is None
    return is_unexplained or error.status_code in _AMBIGUOUS_CODES or any(part in str(error) for part in _AMBIGUOUS_MESSAGES)


class InFlightLimiter:
    """A fixed number of slots with two FIFO queues: one for normal and one for low-priority requests."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._reserved = slots - max(1, int(slots * _LOW_PRIORITY_SHARE))
        """Slots that low-priority requests leave free."""
        self._waiters: _WaitQueue = deque()
        self._low_priority_waiters: _WaitQueue = deque()
        self._last_was_overdue = False
        """Whether the last slot went to an overdue low-priority waiter."""

    def has_free_slot(self, *, low_priority: bool = False) -> bool:
        """Whether `acquire` would return without waiting."""
        return self._free > (self._reserved if low_priority else 0)

    async def acquire(self, *, low_priority: bool = False) -> None:
        """Wait for a slot and take it. Call `release` afterwards."""
        if self.has_free_slot(low_priority=low_priority):
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        granted = loop.create_future()
        (self._low_priority_waiters if low_priority else self._waiters).append((loop.time(), granted))
        # No slot may be released for a long time, although some of the reserved ones are free.
        overdue = loop.call_later(MAX_LOW_PRIORITY_WAIT_SECONDS + _TIMER_SLACK_SECONDS, self._grant_slots) if low_priority else None
        try:
            await granted
        except asyncio.CancelledError:
            if not granted.cancelled():
                self.release()  # the slot was granted just before the cancellation
            raise
        finally:
            if overdue is not None:
                overdue.cancel()

    def release(self) -> None:
        """Return a slot and grant it to the next waiter."""
        self._free += 1
        self._grant_slots()

    def _grant_slots(self) -> None:
        while self._free and (queue := self._next_queue()):
            _, granted = queue.popleft()
            if not granted.cancelled():
                self._free -= 1
                granted.set_result(None)

    def _next_queue(self) -> _WaitQueue | None:
        low_priority = self._low_priority_waiters
        is_overdue = bool(low_priority) and low_priority[0][0] + MAX_LOW_PRIORITY_WAIT_SECONDS <= asyncio.get_running_loop().time()
        # Alternate, so that many overdue waiters do not block normal requests.
        self._last_was_overdue = is_overdue and not self._last_was_overdue
        if self._waiters and not self._last_was_overdue:
            return self._waiters
        return low_priority if is_overdue or self.has_free_slot(low_priority=True) else None
