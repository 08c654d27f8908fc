"""A limit on requests a second, as client-go has it: so many at once, and from then on so many each second.

dlop itself needs none: it bounds what is in flight, and slows down when the API server asks for it. The limit is for those who
have promised one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dlop.kube.errors import TransportError
from dlop.kube.transport import Request, Response, StreamResponse, Transport


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast requests may follow each other."""

    per_second: float
    burst: int
    """How many may go out at once after a rest."""


class TokenBucket:
    """Hands out moments to go, in the order in which they are asked for."""

    def __init__(self, rate: Rate) -> None:
        self._seconds_each = 1 / rate.per_second
        self._rested_seconds = (rate.burst - 1) * self._seconds_each
        self._next = float("-inf")

    async def take(self, *, within_seconds: float) -> bool:
        """Wait for one's turn. False, at once: it would not come in time."""
        now = asyncio.get_running_loop().time()
        turn = max(self._next, now - self._rested_seconds)
        if turn - now > within_seconds:
            return False
        self._next = turn + self._seconds_each
        if turn > now:
            await asyncio.sleep(turn - now)
        return True


class PacedTransport:
    """A transport that sends no more requests than a bucket allows. What is read piece by piece counts when it is opened."""

    def __init__(self, transport: Transport, *, bucket: TokenBucket) -> None:
        self._transport = transport
        self._bucket = bucket

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request when its turn has come, and read the whole answer.

        Raises:
            TransportError: also when its turn does not come in time. Nothing was sent then.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        if not await self._bucket.take(within_seconds=timeout_seconds):
            raise TransportError(f"{request.method} {request.path} was not sent: too many requests wait, by the limit on requests a second")
        return await self._transport.send(request, timeout_seconds=deadline - loop.time())

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a request, when its turn has come, whose answer is read piece by piece."""
        await self._bucket.take(within_seconds=float("inf"))
        async with self._transport.stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response

    async def refresh_credentials(self) -> str:
        """Read the credentials anew; says where they are from."""
        return await self._transport.refresh_credentials()

    async def close(self) -> None:
        """Release every connection."""
        await self._transport.close()
