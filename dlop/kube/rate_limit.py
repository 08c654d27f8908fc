"""Client-side rate limit (QPS and burst), as in client-go.

dlop does not need one: it limits requests in flight and honors Retry-After. The limit is for clusters that require one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dlop.kube.errors import TransportError
from dlop.kube.transport import Request, Response, StreamResponse, Transport


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Average number of requests per second, and how many may be sent at once after an idle period."""

    per_second: float
    burst: int


class TokenBucket:
    """Grants tokens at a limited rate, in FIFO order."""

    def __init__(self, limit: RateLimit) -> None:
        self._interval_seconds = 1 / limit.per_second
        self._burst_seconds = (limit.burst - 1) * self._interval_seconds
        self._next = float("-inf")

    async def take(self, *, within_seconds: float) -> bool:
        """Wait for a token. Returns False at once, without taking one, if the wait would be longer than `within_seconds`."""
        now = asyncio.get_running_loop().time()
        granted_at = max(self._next, now - self._burst_seconds)
        if granted_at - now > within_seconds:
            return False
        self._next = granted_at + self._interval_seconds
        if granted_at > now:
            await asyncio.sleep(granted_at - now)
        return True


class RateLimitedTransport:
    """A transport that takes a token for each request. A stream takes one when it is opened."""

    def __init__(self, transport: Transport, *, bucket: TokenBucket) -> None:
        self._transport = transport
        self._bucket = bucket

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Like `Transport.send`. Raises TransportError also if there is no token in time; nothing was sent then."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        if not await self._bucket.take(within_seconds=timeout_seconds):
            raise TransportError(f"{request.method} {request.path} was not sent: client-side rate limit exceeded until the deadline")
        return await self._transport.send(request, timeout_seconds=deadline - loop.time())

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        await self._bucket.take(within_seconds=float("inf"))
        async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response

    async def refresh_credentials(self) -> str:
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        await self._transport.close()
