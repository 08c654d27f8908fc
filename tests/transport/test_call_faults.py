"""Calls with network and server faults: the outcome of a write is reported correctly, and nothing hangs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dlop.kube.client import Client, ClientLimits
from dlop.kube.config.cluster import ClusterConfig, RequestAuth
from dlop.kube.errors import (
    AmbiguousWriteError,
    ConflictError,
    InvalidError,
    KubeError,
    NotLeaderError,
    ServerError,
    StatusError,
    TooManyRequestsError,
    TransportError,
)
from dlop.kube.http.transport import HttpTransport
from dlop.kube.resources import PODS
from tests.transport.scripted_server import (
    Exchange,
    Handler,
    ScriptedServer,
    StaticCredentials,
    cut,
    reset,
    respond,
    scripted_server,
    stall,
    status,
)

POD = {"kind": "Pod", "metadata": {"name": "a"}}
WRITES = ("create", "replace", "patch", "delete")


async def write(client: Client, verb: str) -> Any:
    if verb == "delete":
        return await client.delete(PODS, "a", namespace="lab")
    if verb == "create":
        return await client.create(PODS, POD, namespace="lab")
    return await getattr(client, verb)(PODS, "a", POD, namespace="lab")


async def read(client: Client) -> Any:
    return await client.get(PODS, "a", namespace="lab")


def client_of(server: str, *, timeout_seconds: float = 5.0) -> Client:
    config = ClusterConfig(server=server, credentials=StaticCredentials(RequestAuth()), origin="kubeconfig /lab/config, context lab")
    return Client(HttpTransport(config), limits=ClientLimits(timeout_seconds=timeout_seconds))


# --- lost responses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("fault", [cut(), reset()], ids=["closed", "reset"])
async def test_a_write_on_a_closing_keep_alive_connection_is_ambiguous_and_sent_once(verb: str, fault: Handler) -> None:
    async with scripted_server(respond(json=POD), fault, respond(json=POD)) as server, server.client() as client:
        await read(client)
        with pytest.raises(AmbiguousWriteError, match="response was lost"):
            await write(client, verb)
        assert len(server.exchanges) == 2
        assert server.exchanges[0].connection_number == server.exchanges[1].connection_number


@pytest.mark.parametrize("fault", [cut(), reset()], ids=["closed", "reset"])
async def test_a_read_on_a_closing_keep_alive_connection_is_sent_again(fault: Handler) -> None:
    async with scripted_server(respond(json=POD), fault, respond(json=POD)) as server, server.client() as client:
        await read(client)
        assert await read(client) == POD
        assert [exchange.connection_number for exchange in server.exchanges] == [1, 1, 2]


async def test_an_idle_connection_that_the_server_closed_is_not_used_for_a_write() -> None:
    closed = asyncio.Event()

    async def respond_and_close(exchange: Exchange) -> None:
        await exchange.respond(json=POD)
        exchange.cut()
        await exchange.writer.wait_closed()
        closed.set()

    async with scripted_server(respond_and_close) as server, server.client() as client, server.client() as other:
        await read(client)
        await closed.wait()
        await read(other)  # after this, the end of the first connection has been noticed
        assert await write(client, "create") == POD


async def test_a_read_that_is_cut_off_twice_is_a_transport_error() -> None:
    async with scripted_server(cut()) as server, server.client() as client:
        with pytest.raises(TransportError, match="got no response"):
            await read(client)
        assert len(server.exchanges) == 2


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_without_a_response_is_ambiguous_at_the_deadline(verb: str) -> None:
    async with scripted_server(stall()) as server, server.client(timeout_seconds=0.4) as client:
        with pytest.raises(AmbiguousWriteError, match="no response in time"):
            await write(client, verb)


async def test_a_read_without_a_response_fails_at_the_deadline_and_closes_the_connection() -> None:
    async with scripted_server(stall()) as server, server.client(timeout_seconds=0.4) as client:
        with pytest.raises(TransportError, match="no response in time"):
            await read(client)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def slow_loris(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 Test\r\n")
    for number in range(10_000):
        await exchange.send(b"x-header-%d: y\r\n" % number)
        await asyncio.sleep(0.01)


async def body_that_stops(exchange: Exchange) -> None:
    await exchange.send(b'HTTP/1.1 200 Test\r\ncontent-length: 100\r\n\r\n{"kind"')
    await exchange.stall()


@pytest.mark.parametrize("handler", [slow_loris, body_that_stops])
async def test_a_slow_or_incomplete_response_fails_at_the_deadline(handler: Handler) -> None:
    async with scripted_server(handler) as server, server.client(timeout_seconds=0.4) as client:
        with pytest.raises(TransportError):
            await read(client)
        with pytest.raises(AmbiguousWriteError):
            await write(client, "create")


async def body_that_is_cut(exchange: Exchange) -> None:
    await exchange.send(b'HTTP/1.1 201 Test\r\ncontent-length: 100\r\n\r\n{"kind"')
    exchange.cut()


async def not_http(exchange: Exchange) -> None:
    await exchange.send(b"220 mail.example.org ESMTP\r\n\r\n")


async def login_page(exchange: Exchange) -> None:
    await exchange.respond(status=200, body=b"<html>please log in</html>")


async def not_utf_8(exchange: Exchange) -> None:
    await exchange.respond(status=201, body=b'{"kind":"\xff"}')


@pytest.mark.parametrize("handler", [body_that_is_cut, not_http, login_page, not_utf_8])
async def test_an_invalid_response_makes_a_write_ambiguous_and_fails_a_read(handler: Handler) -> None:
    async with scripted_server(handler) as server, server.client() as client:
        with pytest.raises(TransportError):
            await read(client)
        with pytest.raises(AmbiguousWriteError):
            await write(client, "create")


@pytest.mark.parametrize(
    "handler",
    [
        status(504, "Timeout", message="request did not complete within requested timeout"),
        status(504, "Timeout", headers={"retry-after": "0"}),
        respond(status=502, body=b"bad gateway"),
        status(500, "InternalError", message="etcdserver: request timed out"),
        status(500, "", message="error reading from server: EOF"),
        respond(status=503, body=b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"),
        respond(status=500, body=b"This request caused apiserver to panic. Look in the logs for details."),
        respond(status=500, body=b'{"kind":"Status","message":"\xff"}'),
    ],
    ids=[
        "timeout",
        "timeout with Retry-After",
        "bad gateway",
        "etcd timeout",
        "no reason",
        "proxy without upstream",
        "panic",
        "not UTF-8",
    ],
)
async def test_a_response_without_a_clear_outcome_is_ambiguous_and_not_repeated(handler: Handler) -> None:
    async with scripted_server(handler) as server, server.client() as client:
        with pytest.raises(AmbiguousWriteError, match="may or may not have succeeded"):
            await write(client, "create")
        assert len(server.exchanges) == 1


async def test_the_same_responses_to_a_read_are_server_errors() -> None:
    async with scripted_server(status(504, "Timeout")) as server, server.client() as client:
        with pytest.raises(ServerError):
            await read(client)


# --- error responses ---------------------------------------------------------------------------------------------------


async def test_a_conflict_is_not_repeated() -> None:
    async with scripted_server(status(409, "Conflict", message="the object has been modified")) as server, server.client() as client:
        with pytest.raises(ConflictError, match="has been modified"):
            await client.replace(PODS, "a", POD, namespace="lab", subresource="status")
        assert server.requests == [("PUT", "/api/v1/namespaces/lab/pods/a/status")]


async def test_errors_without_retry_after_are_not_repeated() -> None:
    async with (
        scripted_server(status(422, "Invalid"), status(500, "InternalError"), status(429, "TooManyRequests")) as server,
        server.client() as client,
    ):
        for error_type in (InvalidError, ServerError, TooManyRequestsError):
            with pytest.raises(error_type):
                await write(client, "create")
        assert len(server.exchanges) == 3


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_a_call_is_repeated_after_the_retry_after_time(code: int) -> None:
    loop = asyncio.get_running_loop()
    async with (
        scripted_server(respond(status=code, body=b"busy", headers={"Retry-After": "0.05"}), respond(json=POD)) as server,
        server.client() as client,
    ):
        started_at = loop.time()
        assert await write(client, "create") == POD
        assert loop.time() - started_at >= 0.05
        assert len(server.exchanges) == 2


async def test_a_retry_after_beyond_the_deadline_fails_at_once() -> None:
    loop = asyncio.get_running_loop()
    async with (
        scripted_server(respond(status=429, body=b"busy", headers={"Retry-After": "60"})) as server,
        server.client(timeout_seconds=5) as client,
    ):
        started_at = loop.time()
        with pytest.raises(TooManyRequestsError, match="busy") as caught:
            await read(client)
        assert loop.time() - started_at < 4
        assert caught.value.retry_after_seconds == 60
        assert len(server.exchanges) == 1


async def test_the_number_of_retries_is_limited() -> None:
    async with scripted_server(respond(status=429, body=b"busy", headers={"Retry-After": "0"})) as server, server.client() as client:
        with pytest.raises(TooManyRequestsError):
            await read(client)
        assert len(server.exchanges) == 11


async def test_redirects_are_not_followed() -> None:
    async with scripted_server(respond(json=POD)) as elsewhere:
        redirect = respond(status=302, headers={"location": f"{elsewhere.url}/stolen"})
        async with (
            scripted_server(redirect) as server,
            server.client(credentials=StaticCredentials(RequestAuth(authorization="Bearer x"))) as client,
        ):
            with pytest.raises(StatusError):
                await read(client)
            assert elsewhere.exchanges == []


# --- nothing was sent --------------------------------------------------------------------------------------------------


async def closed_server_url() -> str:
    """The URL of a server that has been stopped."""
    async with scripted_server(stall()) as server:
        return server.url


@pytest.mark.parametrize("verb", WRITES)
async def test_a_refused_connection_is_reported_with_server_origin_and_hint(verb: str) -> None:
    address = await closed_server_url()
    client = client_of(address)
    with pytest.raises(TransportError) as caught:
        await write(client, verb)
    await client.close()
    message = str(caught.value)
    assert address in message
    assert "kubeconfig /lab/config, context lab" in message
    assert "check that the server is running" in message
    assert "object at 0x" not in message


async def test_a_dns_failure_is_reported() -> None:
    client = client_of("http://no-such-host.invalid:6443", timeout_seconds=5)
    with pytest.raises(TransportError, match="kubeconfig /lab/config") as caught:
        await write(client, "create")
    await client.close()
    assert "no-such-host.invalid" in str(caught.value)
    assert "cannot resolve" in str(caught.value)


@asynccontextmanager
async def call_in_progress(call: Coroutine[Any, Any, Any], server: ScriptedServer) -> AsyncIterator[None]:
    """Keeps a call waiting for its response while the context is open."""
    task = asyncio.create_task(call)
    await server.received()
    try:
        yield
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


async def test_a_write_whose_connect_times_out_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.http.transport._WRITE_CONNECT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and never sends data
        client = client_of(f"https://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=30)
        with pytest.raises(TransportError, match="could not be sent: connection timed out"):
            await write(client, "create")
        await client.close()


async def test_a_call_without_a_free_slot_in_time_was_not_sent() -> None:
    async with (
        scripted_server(stall()) as server,
        server.client(timeout_seconds=30, writes_in_flight=1) as client,
        call_in_progress(write(client, "create"), server),
    ):
        with pytest.raises(TransportError, match="no in-flight slot"):
            await client.call("POST", "/api/v1/namespaces/lab/pods", body=POD, timeout_seconds=0.05)
        assert len(server.exchanges) == 1


async def test_writes_do_not_use_the_slots_of_reads() -> None:
    async def only_reads(exchange: Exchange) -> None:
        await (exchange.respond(json=POD) if exchange.method == "GET" else exchange.stall())

    async with scripted_server(only_reads) as server, server.client(writes_in_flight=2) as client:
        writes = [asyncio.create_task(write(client, "create")) for _ in range(4)]
        await asyncio.sleep(0)
        assert await read(client) == POD
        assert not any(task.done() for task in writes)
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)


async def test_the_number_of_calls_in_flight_is_limited() -> None:
    highest = in_flight = 0

    async def count(exchange: Exchange) -> None:
        nonlocal highest, in_flight
        in_flight += 1
        highest = max(highest, in_flight)
        await asyncio.sleep(0.005)
        in_flight -= 1
        await exchange.respond(json=POD)

    async with scripted_server(count) as server, server.client(writes_in_flight=3) as client:
        await asyncio.gather(*(write(client, "create") for _ in range(20)))
        assert highest == 3
        assert server.connections == 3


async def test_a_closed_client_raises_an_error() -> None:
    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        await client.close()
        with pytest.raises(KubeError, match="closed"):
            await read(client)


async def test_closing_a_client_fails_its_calls() -> None:
    async with scripted_server(stall()) as server, server.client() as client:
        reading = asyncio.create_task(read(client))
        await server.received()
        await client.close()
        with pytest.raises(TransportError):
            await reading


async def test_a_cancelled_call_releases_its_slot_and_closes_its_connection() -> None:
    async with scripted_server(stall(), respond(json=POD)) as server, server.client(reads_in_flight=1) as client:
        reading = asyncio.create_task(read(client))
        await server.received()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await read(client) == POD
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


# --- leadership --------------------------------------------------------------------------------------------------------


async def test_without_leadership_writes_are_not_sent_and_reads_are() -> None:
    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        guarded = client.guarded(lambda: False)
        for verb in WRITES:
            with pytest.raises(NotLeaderError):
                await write(guarded, verb)
        assert await read(guarded) == POD
        assert server.requests == [("GET", "/api/v1/namespaces/lab/pods/a")]


async def test_a_retry_is_not_sent_after_leadership_is_lost() -> None:
    is_leader = True

    async def busy(exchange: Exchange) -> None:
        nonlocal is_leader
        is_leader = False
        await exchange.respond(status=429, body=b"busy", headers={"retry-after": "0.01"})

    async with scripted_server(busy, respond(json=POD)) as server, server.client() as client:
        with pytest.raises(NotLeaderError):
            await write(client.guarded(lambda: is_leader), "create")
        assert len(server.exchanges) == 1


async def test_a_write_waiting_for_a_slot_is_not_sent_after_leadership_is_lost() -> None:
    is_leader = True

    async def slow(exchange: Exchange) -> None:
        nonlocal is_leader
        await asyncio.sleep(0.03)
        is_leader = False
        await exchange.respond(json=POD)

    async with scripted_server(slow) as server, server.client(writes_in_flight=1) as client:
        guarded = client.guarded(lambda: is_leader)
        outcomes = await asyncio.gather(write(guarded, "create"), write(guarded, "create"), return_exceptions=True)
        assert outcomes[0] == POD
        assert isinstance(outcomes[1], NotLeaderError)
        assert len(server.exchanges) == 1
