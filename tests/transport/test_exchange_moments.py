"""The moments of an exchange at which something else may happen: a call given up, a connection ending, a server saying too much."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dlop.kube.client import Client, Limits
from dlop.kube.config.cluster import Access, ClusterConfig, FixedCredentials
from dlop.kube.errors import AmbiguousWriteError, KubeError, TransportError
from dlop.kube.http.connection import HttpConnection
from dlop.kube.http.pool import ConnectionPool
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from dlop.kube.transport import Request
from tests.transport.certificates import Authority
from tests.transport.kubeconfigs import base64_of, kubeconfig
from tests.transport.wire import Exchange, answer, stall, wire

POD = {"kind": "Pod", "metadata": {"name": "a"}}
SAID = b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"kind":"Pod"}'


async def read(client: Client) -> Any:
    return await client.get(PODS, "a", namespace="lab")


async def create(client: Client) -> Any:
    return await client.create(PODS, POD, namespace="lab")


def client_of(server: str, *, timeout_seconds: float = 5.0) -> Client:
    connection = ClusterConfig(server=server, credentials=FixedCredentials(Access()), origin="the test")
    return Client(HttpTransport(connection), limits=Limits(timeout_seconds=timeout_seconds))


# --- a server that says too much -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"HTTP/1.1 201 Cre", b"H", b"oh, and", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_what_comes_after_an_answer_never_meets_the_next_request(more: bytes) -> None:
    async def and_more(exchange: Exchange) -> None:
        await exchange.send(SAID + more)

    async with wire(and_more, answer(json=POD)) as server, server.client() as client:
        assert await read(client) == {"kind": "Pod"}
        assert await create(client) == POD
        assert server.connections == 2


async def test_what_comes_after_an_answer_and_before_its_call_goes_on_is_not_kept_either(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = HttpConnection.data_received

    def with_more(connection: HttpConnection, data: bytes) -> None:
        taken(connection, data)
        taken(connection, b"HTTP/1.1 201 Cre")

    async with wire(answer(json=POD)) as server, server.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(HttpConnection, "data_received", with_more)
            assert await read(client) == POD
        assert await create(client) == POD
        assert server.connections == 2


# --- connections that end ------------------------------------------------------------------------------------------------


async def and_speak(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")


async def and_end(exchange: Exchange) -> None:
    exchange.cut()


@pytest.mark.parametrize(("then", "seen"), [(and_speak, "data_received"), (and_end, "eof_received")])
async def test_a_write_that_begins_while_an_idle_connection_ends_goes_over_another(
    monkeypatch: pytest.MonkeyPatch, then: Any, seen: str
) -> None:
    is_read, is_ending, calls = asyncio.Event(), asyncio.Event(), list[asyncio.Task[Any]]()
    original = getattr(HttpConnection, seen)

    async def answer_and_end(exchange: Exchange) -> None:
        await exchange.answer(json={"kind": "First"})
        await is_read.wait()
        await then(exchange)

    def write_meanwhile(connection: HttpConnection, *data: bytes) -> None:
        if is_read.is_set() and not calls:
            calls.append(asyncio.create_task(create(client)))
            is_ending.set()
        original(connection, *data)

    async with wire(answer_and_end, answer(json=POD)) as server, server.client() as client:
        monkeypatch.setattr(HttpConnection, seen, write_meanwhile)
        await read(client)
        is_read.set()
        async with asyncio.timeout(10):
            await is_ending.wait()
            assert await calls[0] == POD
        assert server.connections == 2


@asynccontextmanager
async def in_the_middle_of_an_answer_without_a_length(
    monkeypatch: pytest.MonkeyPatch, *, write: bool
) -> AsyncIterator[tuple[Client, Exchange, asyncio.Task[Any]]]:
    begun = asyncio.Event()
    original = HttpConnection.on_body

    def note(connection: HttpConnection, body: bytes) -> None:
        original(connection, body)
        begun.set()

    async def begin(exchange: Exchange) -> None:
        await exchange.begin(chunked=False)
        await exchange.send(b'{"kind":"Pod"}')  # whole as it looks, there may be more
        await exchange.stall()

    monkeypatch.setattr(HttpConnection, "on_body", note)
    async with wire(begin) as server, server.client() as client:
        call = asyncio.create_task(create(client) if write else read(client))
        async with asyncio.timeout(10):
            await begun.wait()
            yield client, server.exchanges[0], call


@pytest.mark.parametrize(("write", "failure"), [(True, AmbiguousWriteError), (False, TransportError)])
async def test_an_answer_without_a_length_that_is_reset_is_lost(
    monkeypatch: pytest.MonkeyPatch, *, write: bool, failure: type[KubeError]
) -> None:
    async with in_the_middle_of_an_answer_without_a_length(monkeypatch, write=write) as (_, exchange, call):
        exchange.reset()
        with pytest.raises(failure):
            await call


@pytest.mark.parametrize(("write", "failure"), [(True, AmbiguousWriteError), (False, TransportError)])
async def test_an_answer_without_a_length_is_not_whole_because_this_side_closes(
    monkeypatch: pytest.MonkeyPatch, *, write: bool, failure: type[KubeError]
) -> None:
    async with in_the_middle_of_an_answer_without_a_length(monkeypatch, write=write) as (client, _, call):
        await client.close()
        with pytest.raises(failure):
            await call


async def test_an_answer_without_a_length_is_whole_at_the_end_of_a_tls_connection(tmp_path: Path) -> None:
    async def close_delimited(exchange: Exchange) -> None:
        await exchange.begin(chunked=False)
        await exchange.send(b'{"kind":')
        await exchange.send(b'"Pod"}')
        exchange.cut()

    authority = Authority()
    async with wire(close_delimited, tls=authority.server_context(tmp_path)) as server:
        trusting = {"certificate-authority-data": base64_of(authority.pem)}
        client = Client(await connect(kubeconfig(tmp_path, server=server.url, cluster=trusting)))
        assert await read(client) == {"kind": "Pod"}
        await client.close()


async def test_a_read_whose_client_is_closed_under_it_does_not_connect_again() -> None:
    async with wire(stall()) as server, server.client() as client:
        reading = asyncio.create_task(read(client))
        await server.received()
        await client.close()
        with pytest.raises(TransportError, match="closed"):
            await reading
        async with server.client() as other:
            call = asyncio.create_task(read(other))
            await server.received(2)
            assert server.connections == 2
            call.cancel()
            await asyncio.wait([call])


# --- calls that are given up ---------------------------------------------------------------------------------------------


async def test_a_call_given_up_just_when_its_answer_has_come_leaves_its_connection_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    original = HttpConnection.on_message_complete

    def given_up(connection: HttpConnection) -> None:
        original(connection)
        call.cancel()

    async with wire(answer(json=POD)) as server, server.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(HttpConnection, "on_message_complete", given_up)
            call = asyncio.create_task(read(client))
            await asyncio.wait([call])
        assert call.cancelled()
        assert await read(client) == POD
        assert server.connections == 1


async def test_a_read_that_is_sent_again_keeps_to_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ConnectionPool._addresses

    async def hanging_once(exchange: Exchange) -> None:
        async def hang(_: ConnectionPool) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr(ConnectionPool, "_addresses", hang)
        await asyncio.sleep(0.7)
        exchange.cut()

    async with wire(hanging_once) as server, server.client(timeout_seconds=1) as client:
        started = asyncio.get_running_loop().time()
        with pytest.raises(TransportError):
            await read(client)
        assert asyncio.get_running_loop().time() - started < 1.4
        monkeypatch.setattr(ConnectionPool, "_addresses", original)


# --- what no server says every day ---------------------------------------------------------------------------------------


async def test_an_answer_before_the_request_is_read_is_the_answer_and_the_connection_is_not_kept() -> None:
    connections = 0
    is_over = asyncio.Event()

    async def impatient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        status = b"413 Too Large" if connections == 1 else b"200 OK"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: 2\r\n\r\n{}" % status)
        await is_over.wait()
        writer.transport.abort()

    server = await asyncio.start_server(impatient, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = HttpTransport(ClusterConfig(server=address, credentials=FixedCredentials(Access()), origin="the test"))
    try:
        large = await transport.send(Request("POST", "/", body=bytes(40_000_000)), timeout_seconds=10)
        small = await transport.send(Request("POST", "/", body=b"{}"), timeout_seconds=5)
        assert (large.status, small.status, connections) == (413, 200, 2)
    finally:
        await transport.close()
        is_over.set()
        server.close()
        await server.wait_closed()


async def test_the_answer_to_a_head_has_no_body() -> None:
    async def head_only(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n")

    async with wire(head_only, answer(json=POD)) as server:
        transport = server.transport()
        response = await transport.send(Request("HEAD", "/"), timeout_seconds=5)
        assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "14")
        assert (await transport.send(Request("GET", "/"), timeout_seconds=5)).body
        await transport.close()


@pytest.mark.parametrize("code", [204, 304])
async def test_an_answer_that_never_has_a_body_ends_with_its_head(code: int) -> None:
    async def bodiless(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 %d Said\r\netag: x\r\n\r\n" % code)

    async with wire(bodiless) as server:
        transport = server.transport()
        for _ in range(2):
            assert (await transport.send(Request("GET", "/"), timeout_seconds=5)).status == code
        assert server.connections == 1
        await transport.close()


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_a_host_that_can_be_no_name_is_told_as_such(host: str) -> None:
    client = client_of(f"http://{host}:1")
    with pytest.raises(TransportError, match="could not be sent"):
        await create(client)
    await client.close()


@pytest.mark.parametrize("name", [".lab", "a..b", "."])
async def test_a_tls_server_name_that_can_be_none_is_told_as_such(tmp_path: Path, name: str) -> None:
    async with wire(answer(json=POD), tls=Authority().server_context(tmp_path)) as server:
        connection = ClusterConfig(server=server.url, credentials=FixedCredentials(Access()), origin="the test", tls_server_name=name)
        client = Client(HttpTransport(connection))
        with pytest.raises(TransportError, match=r"could not be sent.*tls-server-name"):
            await create(client)
        await client.close()


async def test_a_servers_name_may_end_with_a_dot_though_no_certificates_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(_: ConnectionPool) -> Any:
        return await asyncio.get_running_loop().getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)

    monkeypatch.setattr(ConnectionPool, "_addresses", here)
    authority = Authority()
    async with wire(answer(json=POD), tls=authority.server_context(tmp_path, hosts=("kubernetes.lab",))) as server:
        port = server.url.rpartition(":")[2]
        trusting = {"certificate-authority-data": base64_of(authority.pem)}
        client = Client(await connect(kubeconfig(tmp_path, server=f"https://kubernetes.lab.:{port}", cluster=trusting)))
        assert await read(client) == POD
        await client.close()


async def test_a_password_in_the_servers_address_is_not_told() -> None:
    client = client_of("http://alice:secret@127.0.0.1:1")
    with pytest.raises(TransportError, match=r"at http://127\.0\.0\.1:1 ") as caught:
        await create(client)
    await client.close()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("the descriptor is in use"), OSError(errno.EMFILE, "too many open files")])
async def test_whatever_goes_wrong_before_there_is_a_connection_a_write_was_not_sent(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def failing(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("aiohappyeyeballs.start_connection", failing)
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(TransportError, match=f"could not be sent.*{error.args[-1]}"):
        await create(client)
    await client.close()
