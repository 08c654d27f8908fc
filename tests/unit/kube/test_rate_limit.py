"""Client-side rate limit: burst, rate, and requests that would wait too long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dlop.kube.errors import TransportError
from dlop.kube.rate_limit import RateLimit, RateLimitedTransport, TokenBucket
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.testing.virtual_time import virtual_time

READ = Request("GET", "/api/v1/pods")


class Server:
    """Records the time and the timeout of each request."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.timeouts: list[float] = []

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self.arrivals.append(asyncio.get_running_loop().time())
        self.timeouts.append(timeout_seconds)
        return Response(200, {}, b"")

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        self.arrivals.append(asyncio.get_running_loop().time())
        yield StreamResponse(200, {}, _no_chunks())

    async def refresh_credentials(self) -> str:
        return "the test"

    async def close(self) -> None:
        pass


async def _no_chunks() -> AsyncIterator[bytes]:
    for chunk in tuple[bytes, ...]():
        yield chunk


def limited(server: Server, *, per_second: float, burst: int) -> RateLimitedTransport:
    return RateLimitedTransport(server, bucket=TokenBucket(RateLimit(per_second, burst)))


@virtual_time
async def test_a_burst_is_sent_at_once_and_the_rest_at_the_given_rate() -> None:
    server, start = Server(), asyncio.get_running_loop().time()
    transport = limited(server, per_second=4, burst=3)
    await asyncio.gather(*(transport.send(READ, timeout_seconds=60) for _ in range(7)))
    assert [arrival - start for arrival in server.arrivals] == pytest.approx([0, 0, 0, 0.25, 0.5, 0.75, 1.0])


@virtual_time
async def test_after_an_idle_period_no_more_than_the_burst_is_sent_at_once() -> None:
    server = Server()
    transport = limited(server, per_second=10, burst=2)
    for _ in range(2):
        await asyncio.sleep(3600)
        before = asyncio.get_running_loop().time()
        await asyncio.gather(*(transport.send(READ, timeout_seconds=60) for _ in range(4)))
        assert [arrival - before for arrival in server.arrivals[-4:]] == pytest.approx([0, 0, 0.1, 0.2])


@virtual_time
async def test_opening_a_watch_takes_a_token() -> None:
    server, start = Server(), asyncio.get_running_loop().time()
    transport = limited(server, per_second=2, burst=1)
    async with transport.stream(READ, idle_timeout_seconds=60):
        await transport.send(READ, timeout_seconds=60)
    assert [arrival - start for arrival in server.arrivals] == pytest.approx([0, 0.5])


@virtual_time
async def test_the_wait_for_a_token_counts_against_the_timeout() -> None:
    server = Server()
    transport = limited(server, per_second=1, burst=1)
    await asyncio.gather(*(transport.send(READ, timeout_seconds=5) for _ in range(3)))
    assert server.timeouts == pytest.approx([5, 4, 3])


@virtual_time
async def test_a_request_that_would_wait_too_long_is_not_sent_and_takes_no_token() -> None:
    server, start = Server(), asyncio.get_running_loop().time()
    transport = limited(server, per_second=1, burst=1)
    await transport.send(READ, timeout_seconds=5)
    with pytest.raises(TransportError, match="was not sent"):
        await transport.send(READ, timeout_seconds=0.5)
    await transport.send(READ, timeout_seconds=5)
    assert [arrival - start for arrival in server.arrivals] == pytest.approx([0, 1])
