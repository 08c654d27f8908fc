"""Request pipeline: deadlines, credential refresh and low-priority calls."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from dlop.kube.client import Client, ClientLimits
from dlop.kube.errors import RequestCancelledError, TransportError, UnauthorizedError
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, Response, StreamResponse


class UnauthorizedTransport:
    """Responds to every request with 401."""

    def __init__(self, *, refresh_seconds: float = 0) -> None:
        self.sent: list[float] = []
        self.refreshes = 0
        self._refresh_seconds = refresh_seconds

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self.sent.append(timeout_seconds)
        return Response(401, {}, b"")

    def stream(self, request: Request, *, idle_timeout_seconds: float) -> AbstractAsyncContextManager[StreamResponse]:
        raise NotImplementedError

    async def refresh_credentials(self) -> str:
        self.refreshes += 1
        await asyncio.sleep(self._refresh_seconds)
        return "the test"

    async def close(self) -> None:
        pass


def test_a_call_has_thirty_seconds_by_default() -> None:
    assert ClientLimits().timeout_seconds == 30


async def test_credentials_are_refreshed_only_once() -> None:
    transport = UnauthorizedTransport()
    with pytest.raises(UnauthorizedError, match="the test"):
        await Client(transport).get(PODS, "a", namespace="lab")
    assert (len(transport.sent), transport.refreshes) == (2, 1)


async def test_refreshing_credentials_counts_against_the_deadline() -> None:
    transport = UnauthorizedTransport(refresh_seconds=60)
    with pytest.raises(TransportError, match="before the deadline"):
        await Client(transport, limits=ClientLimits(timeout_seconds=0.02)).get(PODS, "a", namespace="lab")


async def test_each_attempt_gets_only_the_remaining_time() -> None:
    transport = UnauthorizedTransport(refresh_seconds=0.03)
    with pytest.raises(UnauthorizedError):
        await Client(transport, limits=ClientLimits(timeout_seconds=5)).get(PODS, "a", namespace="lab")
    first, second = transport.sent
    assert second <= first - 0.03


class BlockingTransport:
    """Responds only after `may_respond` is set."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.may_respond = asyncio.Event()

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self.sent.append(request.path)
        await self.may_respond.wait()
        return Response(200, {}, b"{}")

    def stream(self, request: Request, *, idle_timeout_seconds: float) -> AbstractAsyncContextManager[StreamResponse]:
        raise NotImplementedError

    async def refresh_credentials(self) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        pass


async def test_a_low_priority_call_lets_others_go_first() -> None:
    transport = BlockingTransport()
    client = Client(transport, limits=ClientLimits(writes_in_flight=1))
    calls = [client.call("POST", "/a"), client.low_priority(cancel_if=lambda: False).call("POST", "/status"), client.call("POST", "/b")]
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)
            await asyncio.sleep(0)
        transport.may_respond.set()
    assert transport.sent == ["/a", "/b", "/status"]


async def test_a_low_priority_call_that_is_cancelled_while_it_waits_is_not_sent() -> None:
    transport = BlockingTransport()
    client = Client(transport, limits=ClientLimits(writes_in_flight=1))
    first = asyncio.create_task(client.call("POST", "/a"))
    await asyncio.sleep(0)
    cancelled = asyncio.create_task(client.low_priority(cancel_if=lambda: True).call("POST", "/status"))
    await asyncio.sleep(0)
    transport.may_respond.set()
    with pytest.raises(RequestCancelledError, match="/status was not sent"):
        await cancelled
    await first
    assert transport.sent == ["/a"]
    await client.call("POST", "/b")  # the cancelled call holds no slot


async def test_a_low_priority_call_that_does_not_wait_is_always_sent() -> None:
    transport = BlockingTransport()
    transport.may_respond.set()
    await Client(transport).low_priority(cancel_if=lambda: True).call("POST", "/status")
    assert transport.sent == ["/status"]
