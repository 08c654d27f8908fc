"""Contact with the API server, and retries that follow its outages.

All users of a client share one `ServerContact`. During an outage they take turns: together they send about one request per
second, regardless of their number. The first answer wakes all of them, so that each reaches the server again within two
seconds. A failure that is not an outage concerns one caller alone, whose delays grow exponentially.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from dlop.kube.errors import StatusError, TransportError
from dlop.kube.retry_backoff import MAX_RETRY_AFTER_SECONDS, ExponentialBackoff

# Sent by a proxy whose backends are down, and by an API server that starts or stops.
UNAVAILABLE_CODES = frozenset({502, 503, 504})
# A server that starts rejects requests until its authorizer and its storage are ready.
_RECOVERY_SECONDS = 30.0
_MAX_RETRY_AFTER_IN_RECOVERY_SECONDS = 1.0


class ServerContact:
    """Whether the API server answers. Any answer counts, including a rejection.

    Every response of the client sets `answered_at` and, if `is_down`, calls `end_outage`.
    """

    def __init__(self) -> None:
        self.answered_at = -math.inf
        self.is_down = False
        self.recovered_at = -math.inf
        """Time of the first answer after the last outage."""
        self._open_streams = 0
        self._last_turn_at = -math.inf
        self._waiters: dict[asyncio.Future[None], None] = {}  # in the order of arrival

    def end_outage(self) -> None:
        """Wake all waiting callers."""
        self.is_down = False
        self.recovered_at = asyncio.get_running_loop().time()
        self._last_turn_at = -math.inf
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    @contextmanager
    def open_stream(self) -> Iterator[None]:
        """While a stream is open, a request without an answer is not an outage."""
        self._open_streams += 1
        try:
            yield
        finally:
            self._open_streams -= 1

    def is_silent_since(self, started_at: float) -> bool:
        """Whether the server has answered nobody since then and has no open stream."""
        return self.answered_at < started_at and not self._open_streams

    @property
    def is_recovering(self) -> bool:
        """Whether the server is down, or was down shortly before."""
        return self.is_down or asyncio.get_running_loop().time() - self.recovered_at < _RECOVERY_SECONDS

    def retry_after_seconds(self, error: StatusError) -> float | None:
        """The server's Retry-After, within limits; None if there is none."""
        if error.retry_after_seconds is None:
            return None
        # A server that starts asks for a retry after 5 seconds, and is usually ready sooner.
        is_starting = self.is_recovering and error.status_code in UNAVAILABLE_CODES
        return min(error.retry_after_seconds, _MAX_RETRY_AFTER_IN_RECOVERY_SECONDS if is_starting else MAX_RETRY_AFTER_SECONDS)

    def next_turn_seconds(self, interval_seconds: float) -> float:
        """Start an outage, or continue it. Returns when the caller may try again: one interval after the caller before it."""
        now = asyncio.get_running_loop().time()
        self.is_down = True
        self._last_turn_at = max(now, self._last_turn_at) + interval_seconds
        return self._last_turn_at - now

    async def wait_for_recovery(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the server answers again after an outage. False if it did not within the timeout."""
        recovered = asyncio.get_running_loop().create_future()
        self._waiters[recovered] = None
        try:
            async with asyncio.timeout(timeout_seconds):
                await recovered
        except TimeoutError:
            return False
        finally:
            del self._waiters[recovered]
        return True


class ServerRetry:
    """Delays between the retries of one caller."""

    def __init__(
        self, contact: ServerContact, *, rng: Random, first_seconds: float, cap_seconds: float, reset_after_seconds: float
    ) -> None:
        """`first_seconds` is also the scale of the jitter, and of the turns during an outage."""
        self._contact = contact
        self._rng = rng
        self._first_seconds = first_seconds
        self._failed_at = -math.inf
        self._backoff = ExponentialBackoff(
            rng=rng, first_seconds=first_seconds, cap_seconds=cap_seconds, reset_after_seconds=reset_after_seconds
        )

    def reset(self) -> None:
        """Start the next failure with the first delay again."""
        self._backoff.reset()

    def is_outage(self, error: Exception, *, started_at: float) -> bool:
        """Whether a request that was sent at `started_at` failed because the server is down."""
        if isinstance(error, StatusError):
            # An API server gives a reason for its own errors, a proxy does not.
            unanswered = error.status_code in UNAVAILABLE_CODES and not error.status_reason and error.retry_after_seconds is None
        else:
            unanswered = isinstance(error, TransportError)
        return unanswered and self._contact.is_silent_since(started_at)

    def delay_seconds(self, error: Exception, *, started_at: float) -> float:
        """The delay after a request that was sent at `started_at` has failed. At least the server's Retry-After."""
        retry_after_seconds = self._contact.retry_after_seconds(error) if isinstance(error, StatusError) else None
        now = asyncio.get_running_loop().time()
        if self._contact.recovered_at >= self._failed_at:
            self._backoff.reset()  # failures before an outage do not count after it
        self._failed_at = now
        if self.is_outage(error, started_at=started_at):
            return self._contact.next_turn_seconds(self._first_seconds * self._rng.uniform(0.5, 1.25))
        if self._contact.is_recovering:
            return max(self._first_seconds * self._rng.uniform(0.5, 1.25), retry_after_seconds or 0.0)
        return self._backoff.delay_seconds(now=now, retry_after_seconds=retry_after_seconds)

    async def wait(self, delay_seconds: float) -> None:
        """Wait for the delay, or until the server answers again after an outage."""
        if await self._contact.wait_for_recovery(delay_seconds):
            await self.spread()

    async def spread(self) -> None:
        """Wait for a moment, so that callers that were woken by the same event do not send their requests together."""
        await asyncio.sleep(self._first_seconds * self._rng.random())
