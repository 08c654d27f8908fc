"""What a call does on a wire that misbehaves: what happened to a write is never misreported, and nothing hangs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dlop.kube.client import Client, Limits
from dlop.kube.config.cluster import Access, ClusterConfig, FixedCredentials
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
from tests.transport.wire import Exchange, Handler, WireServer, answer, cut, reset, stall, status, wire

POD = {"kind": "Pod", "metadata": {"name": "a"}}
WRITES = ("create", "replace", "patch", "delete")


async def write(client: Client, verb: str) -> Any:
    """One of the four kinds of write of one pod."""
    if verb == "delete":
        return await client.delete(PODS, "a", namespace="lab")
    if verb == "create":
        return await client.create(PODS, POD, namespace="lab")
    return await getattr(client, verb)(PODS, "a", POD, namespace="lab")


async def read(client: Client) -> Any:
    return await client.get(PODS, "a", namespace="lab")


def client_of(server: str, *, timeout_seconds: float = 5.0) -> Client:
    connection = ClusterConfig(server=server, credentials=FixedCredentials(Access()), origin="kubeconfig /lab/config, context lab")
    return Client(HttpTransport(connection), limits=Limits(timeout_seconds=timeout_seconds))


# --- lost answers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", WRITES)
@pytest.mark.parametrize("fault", [cut(), reset()], ids=["closed", "reset"])
async def test_a_write_on_a_kept_alive_connection_that_closes_is_ambiguous_and_sent_once(verb: str, fault: Handler) -> None:
    async with wire(answer(json=POD), fault, answer(json=POD)) as server, server.client() as client:
        await read(client)
        with pytest.raises(AmbiguousWriteError, match="answer was lost"):
            await write(client, verb)
        assert len(server.exchanges) == 2
        assert server.exchanges[0].connection_number == server.exchanges[1].connection_number


@pytest.mark.parametrize("fault", [cut(), reset()], ids=["closed", "reset"])
async def test_a_read_on_a_kept_alive_connection_that_closes_is_sent_again(fault: Handler) -> None:
    async with wire(answer(json=POD), fault, answer(json=POD)) as server, server.client() as client:
        await read(client)
        assert await read(client) == POD
        assert [exchange.connection_number for exchange in server.exchanges] == [1, 1, 2]


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used_for_a_write() -> None:
    closed = asyncio.Event()

    async def answer_and_close(exchange: Exchange) -> None:
        await exchange.answer(json=POD)
        exchange.cut()
        await exchange.writer.wait_closed()
        closed.set()

    async with wire(answer_and_close) as server, server.client() as client, server.client() as other:
        await read(client)
        await closed.wait()
        await read(other)  # by the time this has come back, the end of the first connection has been seen too
        assert await write(client, "create") == POD


async def test_a_read_that_is_cut_off_again_and_again_fails_in_the_transport() -> None:
    async with wire(cut()) as server, server.client() as client:
        with pytest.raises(TransportError, match="got no answer"):
            await read(client)
        assert len(server.exchanges) == 2


@pytest.mark.parametrize("verb", WRITES)
async def test_a_write_whose_answer_never_comes_is_ambiguous_at_the_deadline(verb: str) -> None:
    async with wire(stall()) as server, server.client(timeout_seconds=0.4) as client:
        with pytest.raises(AmbiguousWriteError, match="no answer in time"):
            await write(client, verb)


async def test_a_read_whose_answer_never_comes_fails_at_the_deadline_and_frees_the_connection() -> None:
    async with wire(stall()) as server, server.client(timeout_seconds=0.4) as client:
        with pytest.raises(TransportError, match="no answer in time"):
            await read(client)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def slow_loris(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 Said\r\n")
    for number in range(10_000):
        await exchange.send(b"x-header-%d: y\r\n" % number)
        await asyncio.sleep(0.01)


async def body_that_stops(exchange: Exchange) -> None:
    await exchange.send(b'HTTP/1.1 200 Said\r\ncontent-length: 100\r\n\r\n{"kind"')
    await exchange.stall()


@pytest.mark.parametrize("handler", [slow_loris, body_that_stops])
async def test_an_answer_that_trickles_or_stops_ends_at_the_deadline(handler: Handler) -> None:
    async with wire(handler) as server, server.client(timeout_seconds=0.4) as client:
        with pytest.raises(TransportError):
            await read(client)
        with pytest.raises(AmbiguousWriteError):
            await write(client, "create")


async def body_that_is_cut(exchange: Exchange) -> None:
    await exchange.send(b'HTTP/1.1 201 Said\r\ncontent-length: 100\r\n\r\n{"kind"')
    exchange.cut()


async def not_http(exchange: Exchange) -> None:
    await exchange.send(b"220 mail.example.org ESMTP\r\n\r\n")


async def login_page(exchange: Exchange) -> None:
    await exchange.answer(status=200, body=b"<html>please log in</html>")


async def not_utf_8(exchange: Exchange) -> None:
    await exchange.answer(status=201, body=b'{"kind":"\xff"}')


@pytest.mark.parametrize("handler", [body_that_is_cut, not_http, login_page, not_utf_8])
async def test_an_answer_that_is_no_answer_leaves_a_write_open_and_fails_a_read(handler: Handler) -> None:
    async with wire(handler) as server, server.client() as client:
        with pytest.raises(TransportError):
            await read(client)
        with pytest.raises(AmbiguousWriteError):
            await write(client, "create")


@pytest.mark.parametrize(
    "handler",
    [
        status(504, "Timeout", message="request did not complete within requested timeout"),
        status(504, "Timeout", headers={"retry-after": "0"}),
        answer(status=502, body=b"bad gateway"),
        status(500, "InternalError", message="etcdserver: request timed out"),
        status(500, "", message="error reading from server: EOF"),
        answer(status=503, body=b"upstream connect error or disconnect/reset before headers. reset reason: connection termination"),
        answer(status=500, body=b"This request caused apiserver to panic. Look in the logs for details."),
        answer(status=500, body=b'{"kind":"Status","message":"\xff"}'),
    ],
    ids=[
        "timeout",
        "timeout that asks for patience",
        "bad gateway",
        "etcd timeout",
        "no reason",
        "a proxy that lost its server",
        "panic",
        "not even UTF-8",
    ],
)
async def test_an_answer_that_does_not_say_whether_a_write_happened_is_ambiguous_and_not_repeated(handler: Handler) -> None:
    async with wire(handler) as server, server.client() as client:
        with pytest.raises(AmbiguousWriteError, match="may or may not have happened"):
            await write(client, "create")
        assert len(server.exchanges) == 1


async def test_the_same_answers_to_a_read_are_plain_server_errors() -> None:
    async with wire(status(504, "Timeout")) as server, server.client() as client:
        with pytest.raises(ServerError):
            await read(client)


# --- answers -----------------------------------------------------------------------------------------------------------


async def test_a_conflict_on_the_status_is_a_conflict_and_not_repeated() -> None:
    async with wire(status(409, "Conflict", message="the object has been modified")) as server, server.client() as client:
        with pytest.raises(ConflictError, match="has been modified"):
            await client.replace(PODS, "a", POD, namespace="lab", subresource="status")
        assert server.requests == [("PUT", "/api/v1/namespaces/lab/pods/a/status")]


async def test_plain_refusals_are_not_repeated() -> None:
    async with (
        wire(status(422, "Invalid"), status(500, "InternalError"), status(429, "TooManyRequests")) as server,
        server.client() as client,
    ):
        for kind in (InvalidError, ServerError, TooManyRequestsError):
            with pytest.raises(kind):
                await write(client, "create")
        assert len(server.exchanges) == 3


@pytest.mark.parametrize("code", [429, 500, 503])
async def test_an_answer_that_asks_for_patience_is_asked_again_after_that_time(code: int) -> None:
    loop = asyncio.get_running_loop()
    async with (
        wire(answer(status=code, body=b"busy", headers={"Retry-After": "0.05"}), answer(json=POD)) as server,
        server.client() as client,
    ):
        started = loop.time()
        assert await write(client, "create") == POD
        assert loop.time() - started >= 0.05
        assert len(server.exchanges) == 2


async def test_patience_ends_at_the_deadline_without_waiting_for_it() -> None:
    loop = asyncio.get_running_loop()
    async with wire(answer(status=429, body=b"busy", headers={"Retry-After": "60"})) as server, server.client(timeout_seconds=5) as client:
        started = loop.time()
        with pytest.raises(TooManyRequestsError, match="busy") as caught:
            await read(client)
        assert loop.time() - started < 1
        assert caught.value.retry_after_seconds == 60
        assert len(server.exchanges) == 1


async def test_a_server_that_always_asks_for_no_patience_at_all_is_not_hammered_for_ever() -> None:
    async with wire(answer(status=429, body=b"busy", headers={"Retry-After": "0"})) as server, server.client() as client:
        with pytest.raises(TooManyRequestsError):
            await read(client)
        assert len(server.exchanges) == 11


async def test_a_redirect_is_not_followed_so_the_token_goes_nowhere_else() -> None:
    async with wire(answer(json=POD)) as elsewhere:
        redirect = answer(status=302, headers={"location": f"{elsewhere.url}/stolen"})
        async with wire(redirect) as server, server.client(credentials=FixedCredentials(Access(authorization="Bearer x"))) as client:
            with pytest.raises(StatusError):
                await read(client)
            assert elsewhere.exchanges == []


# --- nothing was sent --------------------------------------------------------------------------------------------------


async def refusing_address() -> str:
    """An address that nobody listens on."""
    async with wire(stall()) as server:
        return server.url


@pytest.mark.parametrize("verb", WRITES)
async def test_a_refused_connection_says_that_nothing_was_sent_and_where_to_look(verb: str) -> None:
    address = await refusing_address()
    client = client_of(address)
    with pytest.raises(TransportError) as caught:
        await write(client, verb)
    await client.close()
    sentence = str(caught.value)
    assert address in sentence
    assert "kubeconfig /lab/config, context lab" in sentence
    assert "check that the server is running" in sentence
    assert "object at 0x" not in sentence


async def test_a_name_that_does_not_resolve_says_so() -> None:
    client = client_of("http://no-such-host.invalid:6443", timeout_seconds=5)
    with pytest.raises(TransportError, match="kubeconfig /lab/config") as caught:
        await write(client, "create")
    await client.close()
    assert "no-such-host.invalid" in str(caught.value)
    assert "resolved" in str(caught.value)


@asynccontextmanager
async def stalled(call: Coroutine[Any, Any, Any], server: WireServer) -> AsyncIterator[None]:
    """While a call waits for its answer."""
    task = asyncio.create_task(call)
    await server.received()
    try:
        yield
    finally:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


async def test_a_write_that_gets_no_connection_in_time_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.http.transport._CONNECT_SECONDS_OF_A_WRITE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and never says a word of TLS
        client = client_of(f"https://127.0.0.1:{silent.getsockname()[1]}", timeout_seconds=30)
        with pytest.raises(TransportError, match="could not be sent: no connection in time"):
            await write(client, "create")
        await client.close()


async def test_a_call_that_finds_no_free_place_in_time_was_not_sent() -> None:
    async with (
        wire(stall()) as server,
        server.client(timeout_seconds=30, writes_in_flight=1) as client,
        stalled(write(client, "create"), server),
    ):
        with pytest.raises(TransportError, match="no free place"):
            await client.call("POST", "/api/v1/namespaces/lab/pods", body=POD, timeout_seconds=0.05)
        assert len(server.exchanges) == 1


async def test_writes_that_fill_their_places_do_not_keep_a_read_waiting() -> None:
    async def only_reads(exchange: Exchange) -> None:
        await (exchange.answer(json=POD) if exchange.method == "GET" else exchange.stall())

    async with wire(only_reads) as server, server.client(writes_in_flight=2) as client:
        writes = [asyncio.create_task(write(client, "create")) for _ in range(4)]
        await asyncio.sleep(0)
        assert await read(client) == POD
        assert not any(task.done() for task in writes)
        for task in writes:
            task.cancel()
        await asyncio.gather(*writes, return_exceptions=True)


async def test_no_more_calls_are_in_flight_than_there_are_places() -> None:
    most = flying = 0

    async def count(exchange: Exchange) -> None:
        nonlocal most, flying
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.005)
        flying -= 1
        await exchange.answer(json=POD)

    async with wire(count) as server, server.client(writes_in_flight=3) as client:
        await asyncio.gather(*(write(client, "create") for _ in range(20)))
        assert most == 3
        assert server.connections == 3


async def test_a_closed_client_says_so() -> None:
    async with wire(answer(json=POD)) as server, server.client() as client:
        await client.close()
        with pytest.raises(KubeError, match="closed"):
            await read(client)


async def test_a_call_whose_client_is_closed_under_it_fails() -> None:
    async with wire(stall()) as server, server.client() as client:
        reading = asyncio.create_task(read(client))
        await server.received()
        await client.close()
        with pytest.raises(TransportError):
            await reading


async def test_a_cancelled_call_frees_its_place_and_its_connection() -> None:
    async with wire(stall(), answer(json=POD)) as server, server.client(reads_in_flight=1) as client:
        reading = asyncio.create_task(read(client))
        await server.received()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await read(client) == POD
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


# --- leadership --------------------------------------------------------------------------------------------------------


async def test_without_leadership_no_write_leaves_and_reads_still_do() -> None:
    async with wire(answer(json=POD)) as server, server.client() as client:
        guarded = client.guarded(lambda: False)
        for verb in WRITES:
            with pytest.raises(NotLeaderError):
                await write(guarded, verb)
        assert await read(guarded) == POD
        assert server.requests == [("GET", "/api/v1/namespaces/lab/pods/a")]


async def test_leadership_lost_during_a_wait_holds_back_the_retry() -> None:
    leads = True

    async def busy(exchange: Exchange) -> None:
        nonlocal leads
        leads = False
        await exchange.answer(status=429, body=b"busy", headers={"retry-after": "0.01"})

    async with wire(busy, answer(json=POD)) as server, server.client() as client:
        with pytest.raises(NotLeaderError):
            await write(client.guarded(lambda: leads), "create")
        assert len(server.exchanges) == 1


async def test_leadership_lost_while_waiting_for_a_place_holds_back_the_write() -> None:
    leads = True

    async def slow(exchange: Exchange) -> None:
        nonlocal leads
        await asyncio.sleep(0.03)
        leads = False
        await exchange.answer(json=POD)

    async with wire(slow) as server, server.client(writes_in_flight=1) as client:
        guarded = client.guarded(lambda: leads)
        outcomes = await asyncio.gather(write(guarded, "create"), write(guarded, "create"), return_exceptions=True)
        assert outcomes[0] == POD
        assert isinstance(outcomes[1], NotLeaderError)
        assert len(server.exchanges) == 1
