"""What counts against a call's deadline, and what the limits are by default."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest

from dlop.kube.client import Client, Limits
from dlop.kube.errors import OutdatedError, TransportError, UnauthorizedError
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, Response, StreamResponse


class Refusing:
    """A transport whose server lets nobody in, and whose credentials take as long to read as it is told."""

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
    assert Limits().timeout_seconds == 30


async def test_credentials_are_read_anew_once_and_no_more() -> None:
    transport = Refusing()
    with pytest.raises(UnauthorizedError, match="the test"):
        await Client(transport).get(PODS, "a", namespace="lab")
    assert (len(transport.sent), transport.refreshes) == (2, 1)


async def test_reading_credentials_anew_counts_against_the_deadline() -> None:
    transport = Refusing(refresh_seconds=60)
    with pytest.raises(TransportError, match="before the deadline"):
        await Client(transport, limits=Limits(timeout_seconds=0.02)).get(PODS, "a", namespace="lab")


async def test_every_try_is_given_only_the_time_that_is_left() -> None:
    transport = Refusing(refresh_seconds=0.03)
    with pytest.raises(UnauthorizedError):
        await Client(transport, limits=Limits(timeout_seconds=5)).get(PODS, "a", namespace="lab")
    first, second = transport.sent
    assert second <= first - 0.03


class Slow:
    """A transport that answers when it is told to."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.may_answer = asyncio.Event()

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        self.sent.append(request.path)
        await self.may_answer.wait()
        return Response(200, {}, b"{}")

    def stream(self, request: Request, *, idle_timeout_seconds: float) -> AbstractAsyncContextManager[StreamResponse]:
        raise NotImplementedError

    async def refresh_credentials(self) -> str:
        raise NotImplementedError

    async def close(self) -> None:
        pass


async def test_a_patient_call_lets_others_go_first() -> None:
    transport = Slow()
    client = Client(transport, limits=Limits(writes_in_flight=1))
    calls = [client.call("POST", "/a"), client.patient(unless=lambda: False).call("POST", "/status"), client.call("POST", "/b")]
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(call)
            await asyncio.sleep(0)
        transport.may_answer.set()
    assert transport.sent == ["/a", "/b", "/status"]


async def test_a_patient_call_that_nobody_wants_any_more_is_not_sent() -> None:
    transport = Slow()
    client = Client(transport, limits=Limits(writes_in_flight=1))
    first = asyncio.create_task(client.call("POST", "/a"))
    await asyncio.sleep(0)
    late = asyncio.create_task(client.patient(unless=lambda: True).call("POST", "/status"))
    await asyncio.sleep(0)
    transport.may_answer.set()
    with pytest.raises(OutdatedError, match="/status was not sent"):
        await late
    await first
    assert transport.sent == ["/a"]
    await client.call("POST", "/b")  # it has left no place taken


async def test_a_call_that_need_not_wait_is_sent_whatever_has_happened() -> None:
    transport = Slow()
    transport.may_answer.set()
    await Client(transport).patient(unless=lambda: True).call("POST", "/status")
    assert transport.sent == ["/status"]
