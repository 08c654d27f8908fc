"""One call to the API server, seen through to its end: bounds, deadline, retries, credentials, leadership.

Every call has a deadline, and everything counts against it: the wait for a free place, for credentials, for patience
that the server asks for. In-flight calls are bounded, reads and writes apart, so that a storm of writes never keeps a
read waiting; a call that can wait lets others go first, and leaves most places to them. Before each write, and each retry of one,
`may_write` is asked.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass

from dlop.kube.errors import (
    AmbiguousWriteError,
    NotLeaderError,
    OutdatedError,
    StatusError,
    TransportError,
    UnauthorizedError,
    error_from_response,
)
from dlop.kube.in_flight import InFlightLimiter
from dlop.kube.transport import Request, Response, Transport

_MAX_RETRIES = 10
# A gateway that gave up, or a server whose database did: the write may have gone through behind them.
_AMBIGUOUS_CODES = (502, 504)
_AMBIGUOUS_SENTENCES = ("etcdserver: ", "rpc error: ", "context deadline exceeded")


@dataclass(frozen=True, slots=True)
class Limits:
    """How patient a client is and how much it asks for at once."""

    timeout_seconds: float = 30.0
    """For one call, with all its retries and its wait for a free place."""
    writes_in_flight: int = 64
    reads_in_flight: int = 16
    page_size: int = 500
    """How many objects a list asks for at a time."""


class RequestPipeline:
    """Sends requests over a transport, within limits."""

    def __init__(self, transport: Transport, *, limits: Limits, may_write: Callable[[], bool] | None) -> None:
        self._transport = transport
        self._limits = limits
        self._may_write = may_write
        self._unless: Callable[[], bool] | None = None
        self._reads = InFlightLimiter(limits.reads_in_flight)
        self._writes = InFlightLimiter(limits.writes_in_flight)

    def guarded(self, may_write: Callable[[], bool]) -> RequestPipeline:
        """The same places and connections, with another say over writes."""
        twin = copy.copy(self)
        twin._may_write = may_write
        return twin

    def patient(self, *, unless: Callable[[], bool]) -> RequestPipeline:
        """The same places and connections, for calls that let others go first. After a wait, `unless` is asked."""
        twin = copy.copy(self)
        twin._unless = unless
        return twin

    @property
    def has_room_for_writes(self) -> bool:
        """Whether a write would be sent at once."""
        return self._writes.are_free()

    async def send(self, request: Request, *, timeout_seconds: float | None = None) -> Response:
        """Send a request until it has a final answer. Returns only 2xx answers.

        Raises:
            StatusError: the server refused.
            TransportError: no answer, and nothing has changed.
            AmbiguousWriteError: no answer to a write, or one that does not say whether it happened.
            NotLeaderError: a write without leadership; nothing was sent.
            OutdatedError: nobody wanted it any more when its turn came; nothing has changed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (timeout_seconds or self._limits.timeout_seconds)
        credentials_read_from = ""
        retries = 0
        while True:
            response = await self._attempt(request, deadline)
            if response.status < 300:
                return response
            error = error_from_response(response.status, response.headers, response.body)
            if isinstance(error, UnauthorizedError):
                if credentials_read_from:
                    raise refused_again(error, credentials_read_from)
                credentials_read_from = await self.refresh_credentials(deadline)
                continue
            if request.is_write and _leaves_open(error):
                raise AmbiguousWriteError(f"{request.method} {request.path} may or may not have happened: {error}") from error
            wait = _patience(error)
            if wait is None or retries == _MAX_RETRIES or loop.time() + wait >= deadline:
                raise error
            retries += 1
            await asyncio.sleep(wait)

    async def refresh_credentials(self, deadline: float) -> str:
        """Read the credentials anew; says where from."""
        try:
            async with asyncio.timeout_at(deadline):
                return await self._transport.refresh_credentials()
        except TimeoutError as error:
            raise TransportError("the server refused the credentials and new ones could not be read before the deadline") from error

    async def _attempt(self, request: Request, deadline: float) -> Response:
        places, can_wait = self._writes if request.is_write else self._reads, self._unless is not None
        has_waited = not places.are_free(can_wait=can_wait)
        await _take(places, deadline, can_wait=can_wait)
        try:
            if has_waited and self._unless is not None and self._unless():
                raise OutdatedError(f"{request.method} {request.path} was not sent: it was outdated when its turn came")
            if request.is_write and self._may_write is not None and not self._may_write():
                raise NotLeaderError(f"{request.method} {request.path} was held back: this process does not hold the lease")
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise TransportError(f"{request.method} {request.path} was not sent: its time was up")
            return await self._transport.send(request, timeout_seconds=left)
        finally:
            places.give_back()


def refused_again(error: UnauthorizedError, origin: str) -> UnauthorizedError:
    """The refusal of credentials that were read just now: where they are, and the way out."""
    message = f"the server refuses the credentials of {origin}, also after reading them anew ({error}): log in again or get new ones"
    return UnauthorizedError({**error.status, "message": message})


async def _take(places: InFlightLimiter, deadline: float, *, can_wait: bool) -> None:
    if places.are_free(can_wait=can_wait):
        await places.take(can_wait=can_wait)  # does not wait, so it needs no timer
        return
    try:
        async with asyncio.timeout_at(deadline):
            await places.take(can_wait=can_wait)
    except TimeoutError as error:
        raise TransportError("no free place among the calls in flight before the deadline: nothing was sent") from error


def _leaves_open(error: StatusError) -> bool:
    """Whether an answer does not say if the write happened."""
    if error.status_code < 500:
        return False
    # A server names a reason for its own refusals. Where there is none, something below it or in front of it broke.
    is_unexplained = not error.status_reason and error.retry_after_seconds is None
    return is_unexplained or error.status_code in _AMBIGUOUS_CODES or any(part in str(error) for part in _AMBIGUOUS_SENTENCES)


def _patience(error: StatusError) -> float | None:
    """How long the server asks to wait before another try; none when it does not ask for one."""
    return error.retry_after_seconds if error.status_code == 429 or error.status_code >= 500 else None
