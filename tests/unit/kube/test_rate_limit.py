"""A limit on requests a second is kept to the letter, and nobody waits for a turn that comes too late."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dlop.kube.errors import TransportError
from dlop.kube.rate_limit import PacedTransport, Rate, TokenBucket
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.testing.virtual_time import virtual_time

READ = Request("GET", "/api/v1/pods")


class Server:
    """Notes when requests arrive, and how long they may take."""

    def __init__(self) -> None:
        self.moments: list[float] = []
        self.timeouts: list[float] = []

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self.moments.append(asyncio.get_running_loop().time())
        self.timeouts.append(timeout_seconds)
        return Response(200, {}, b"")

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        self.moments.append(asyncio.get_running_loop().time())
        yield StreamResponse(200, {}, _nothing())

    async def refresh_credentials(self) -> str:
        return "nowhere"

    async def close(self) -> None:
        """Nothing to release."""


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in tuple[bytes, ...]():
        yield chunk


def paced(server: Server, *, per_second: float, burst: int) -> PacedTransport:
    return PacedTransport(server, bucket=TokenBucket(Rate(per_second, burst)))


@virtual_time
async def test_so_many_requests_go_at_once_and_then_so_many_each_second() -> None:
    server, start = Server(), asyncio.get_running_loop().time()
    transport = paced(server, per_second=4, burst=3)
    await asyncio.gather(*(transport.send(READ, timeout_seconds=60) for _ in range(7)))
    assert [moment - start for moment in server.moments] == pytest.approx([0, 0, 0, 0.25, 0.5, 0.75, 1.0])


@virtual_time
async def test_after_a_rest_no_more_than_the_burst_goes_at_once() -> None:
    server = Server()
    transport = paced(server, per_second=10, burst=2)
    for _ in range(2):
        await asyncio.sleep(3600)
        before = asyncio.get_running_loop().time()
        await asyncio.gather(*(transport.send(READ, timeout_seconds=60) for _ in range(4)))
        assert [moment - before for moment in server.moments[-4:]] == pytest.approx([0, 0, 0.1, 0.2])


@virtual_time
async def test_opening_a_watch_takes_a_turn_too() -> None:
    server, start = Server(), asyncio.get_running_loop().time()
    transport = paced(server, per_second=2, burst=1)
    async with transport.stream(READ, idle_timeout_seconds=60):
        await transport.send(READ, timeout_seconds=60)
    assert [moment - start for moment in server.moments] == pytest.approx([0, 0.5])


@virtual_time
async def test_the_time_that_a_request_has_includes_its_wait() -> None:
    server = Server()
    transport = paced(server, per_second=1, burst=1)
    await asyncio.gather(*(transport.send(READ, timeout_seconds=5) for _ in range(3)))
    assert server.timeouts == pytest.approx([5, 4, 3])


@virtual_time
async def test_a_request_whose_turn_would_come_too_late_is_not_sent_and_takes_nobodys_turn() -> None:
    server, start = Server(), asyncio.get_running_loop().time()
    transport = paced(server, per_second=1, burst=1)
    await transport.send(READ, timeout_seconds=5)
    with pytest.raises(TransportError, match="was not sent"):
        await transport.send(READ, timeout_seconds=0.5)
    await transport.send(READ, timeout_seconds=5)
    assert [moment - start for moment in server.moments] == pytest.approx([0, 1])
