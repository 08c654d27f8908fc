"""Races during an exchange: cancelled calls, closing connections, and unexpected data from the server."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dlop.kube.client import Client, ClientLimits
from dlop.kube.config.cluster import ClusterConfig, RequestAuth
from dlop.kube.errors import AmbiguousWriteError, KubeError, TransportError
from dlop.kube.http.connection import HttpConnection
from dlop.kube.http.pool import ConnectionPool
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from dlop.kube.transport import Request
from tests.transport.certificates import CertificateAuthority
from tests.transport.kubeconfigs import base64_of, kubeconfig
from tests.transport.scripted_server import Exchange, StaticCredentials, respond, scripted_server, stall

POD = {"kind": "Pod", "metadata": {"name": "a"}}
RESPONSE = b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"kind":"Pod"}'


async def read(client: Client) -> Any:
    return await client.get(PODS, "a", namespace="lab")


async def create(client: Client) -> Any:
    return await client.create(PODS, POD, namespace="lab")


def client_of(server: str, *, timeout_seconds: float = 5.0) -> Client:
    config = ClusterConfig(server=server, credentials=StaticCredentials(RequestAuth()), origin="the test")
    return Client(HttpTransport(config), limits=ClientLimits(timeout_seconds=timeout_seconds))


# --- unexpected data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("extra", [b"HTTP/1.1 201 Cre", b"H", b"junk", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_data_after_a_response_does_not_reach_the_next_request(extra: bytes) -> None:
    async def respond_with_extra(exchange: Exchange) -> None:
        await exchange.send(RESPONSE + extra)

    async with scripted_server(respond_with_extra, respond(json=POD)) as server, server.client() as client:
        assert await read(client) == {"kind": "Pod"}
        assert await create(client) == POD
        assert server.connections == 2


async def test_a_connection_with_data_after_the_response_is_not_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    original = HttpConnection.data_received

    def receive_with_extra(connection: HttpConnection, data: bytes) -> None:
        original(connection, data)
        original(connection, b"HTTP/1.1 201 Cre")

    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(HttpConnection, "data_received", receive_with_extra)
            assert await read(client) == POD
        assert await create(client) == POD
        assert server.connections == 2


# --- closing connections -------------------------------------------------------------------------------------------------


async def send_timeout(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")


async def close(exchange: Exchange) -> None:
    exchange.cut()


@pytest.mark.parametrize(("then", "callback"), [(send_timeout, "data_received"), (close, "eof_received")])
async def test_a_write_that_starts_while_an_idle_connection_closes_uses_another_one(
    monkeypatch: pytest.MonkeyPatch, then: Any, callback: str
) -> None:
    response_read, closing, calls = asyncio.Event(), asyncio.Event(), list[asyncio.Task[Any]]()
    original = getattr(HttpConnection, callback)

    async def respond_and_close(exchange: Exchange) -> None:
        await exchange.respond(json={"kind": "First"})
        await response_read.wait()
        await then(exchange)

    def write_meanwhile(connection: HttpConnection, *data: bytes) -> None:
        if response_read.is_set() and not calls:
            calls.append(asyncio.create_task(create(client)))
            closing.set()
        original(connection, *data)

    async with scripted_server(respond_and_close, respond(json=POD)) as server, server.client() as client:
        monkeypatch.setattr(HttpConnection, callback, write_meanwhile)
        await read(client)
        response_read.set()
        async with asyncio.timeout(10):
            await closing.wait()
            assert await calls[0] == POD
        assert server.connections == 2


@asynccontextmanager
async def during_response_without_length(
    monkeypatch: pytest.MonkeyPatch, *, write: bool
) -> AsyncIterator[tuple[Client, Exchange, asyncio.Task[Any]]]:
    started = asyncio.Event()
    original = HttpConnection.on_body

    def record_body(connection: HttpConnection, body: bytes) -> None:
        original(connection, body)
        started.set()

    async def start_response(exchange: Exchange) -> None:
        await exchange.start_stream(chunked=False)
        await exchange.send(b'{"kind":"Pod"}')  # looks complete, but more may follow
        await exchange.stall()

    monkeypatch.setattr(HttpConnection, "on_body", record_body)
    async with scripted_server(start_response) as server, server.client() as client:
        call = asyncio.create_task(create(client) if write else read(client))
        async with asyncio.timeout(10):
            await started.wait()
            yield client, server.exchanges[0], call


@pytest.mark.parametrize(("write", "failure"), [(True, AmbiguousWriteError), (False, TransportError)])
async def test_a_response_without_a_length_is_lost_on_reset(
    monkeypatch: pytest.MonkeyPatch, *, write: bool, failure: type[KubeError]
) -> None:
    async with during_response_without_length(monkeypatch, write=write) as (_, exchange, call):
        exchange.reset()
        with pytest.raises(failure):
            await call


@pytest.mark.parametrize(("write", "failure"), [(True, AmbiguousWriteError), (False, TransportError)])
async def test_a_response_without_a_length_is_lost_if_the_client_closes_the_connection(
    monkeypatch: pytest.MonkeyPatch, *, write: bool, failure: type[KubeError]
) -> None:
    async with during_response_without_length(monkeypatch, write=write) as (client, _, call):
        await client.close()
        with pytest.raises(failure):
            await call


async def test_a_response_without_a_length_is_complete_at_the_end_of_a_tls_connection(tmp_path: Path) -> None:
    async def close_delimited(exchange: Exchange) -> None:
        await exchange.start_stream(chunked=False)
        await exchange.send(b'{"kind":')
        await exchange.send(b'"Pod"}')
        exchange.cut()

    ca = CertificateAuthority()
    async with scripted_server(close_delimited, tls=ca.server_context(tmp_path)) as server:
        cluster = {"certificate-authority-data": base64_of(ca.pem)}
        client = Client(await connect(kubeconfig(tmp_path, server=server.url, cluster=cluster)))
        assert await read(client) == {"kind": "Pod"}
        await client.close()


async def test_a_read_of_a_closed_client_does_not_reconnect() -> None:
    async with scripted_server(stall()) as server, server.client() as client:
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


# --- cancelled calls -----------------------------------------------------------------------------------------------------


async def test_a_call_cancelled_after_its_response_arrived_returns_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    original = HttpConnection.on_message_complete

    def complete_and_cancel(connection: HttpConnection) -> None:
        original(connection)
        call.cancel()

    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        with monkeypatch.context() as patch:
            patch.setattr(HttpConnection, "on_message_complete", complete_and_cancel)
            call = asyncio.create_task(read(client))
            await asyncio.wait([call])
        assert call.cancelled()
        assert await read(client) == POD
        assert server.connections == 1


async def test_a_repeated_read_keeps_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    original = ConnectionPool._resolve

    async def close_late(exchange: Exchange) -> None:
        async def hang(_: ConnectionPool) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr(ConnectionPool, "_resolve", hang)
        await asyncio.sleep(1.5)
        exchange.cut()

    async with scripted_server(close_late) as server, server.client(timeout_seconds=2) as client:
        started = asyncio.get_running_loop().time()
        with pytest.raises(TransportError):
            await read(client)
        assert asyncio.get_running_loop().time() - started < 3
        monkeypatch.setattr(ConnectionPool, "_resolve", original)


# --- unusual responses and addresses -------------------------------------------------------------------------------------


async def test_an_early_response_is_returned_and_the_connection_is_not_reused() -> None:
    connections = 0
    finished = asyncio.Event()

    async def respond_early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\n")
        status = b"413 Too Large" if connections == 1 else b"200 OK"
        writer.write(b"HTTP/1.1 %b\r\ncontent-length: 2\r\n\r\n{}" % status)
        await finished.wait()
        writer.transport.abort()

    server = await asyncio.start_server(respond_early, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    transport = HttpTransport(ClusterConfig(server=address, credentials=StaticCredentials(RequestAuth()), origin="the test"))
    try:
        large = await transport.send(Request("POST", "/", body=bytes(40_000_000)), timeout_seconds=10)
        small = await transport.send(Request("POST", "/", body=b"{}"), timeout_seconds=5)
        assert (large.status, small.status, connections) == (413, 200, 2)
    finally:
        await transport.close()
        finished.set()
        server.close()
        await server.wait_closed()


async def test_the_response_to_head_has_no_body() -> None:
    async def head_only(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n")

    async with scripted_server(head_only, respond(json=POD)) as server:
        transport = server.transport()
        response = await transport.send(Request("HEAD", "/"), timeout_seconds=5)
        assert (response.status, response.body, response.headers["content-length"]) == (200, b"", "14")
        assert (await transport.send(Request("GET", "/"), timeout_seconds=5)).body
        await transport.close()


@pytest.mark.parametrize("code", [204, 304])
async def test_a_response_without_a_body_ends_after_its_headers(code: int) -> None:
    async def respond_without_body(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 %d Test\r\netag: x\r\n\r\n" % code)

    async with scripted_server(respond_without_body) as server:
        transport = server.transport()
        for _ in range(2):
            assert (await transport.send(Request("GET", "/"), timeout_seconds=5)).status == code
        assert server.connections == 1
        await transport.close()


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
async def test_an_invalid_host_name_is_reported(host: str) -> None:
    client = client_of(f"http://{host}:1")
    with pytest.raises(TransportError, match="could not be sent"):
        await create(client)
    await client.close()


@pytest.mark.parametrize("name", [".lab", "a..b", "."])
async def test_an_invalid_tls_server_name_is_reported(tmp_path: Path, name: str) -> None:
    async with scripted_server(respond(json=POD), tls=CertificateAuthority().server_context(tmp_path)) as server:
        config = ClusterConfig(server=server.url, credentials=StaticCredentials(RequestAuth()), origin="the test", tls_server_name=name)
        client = Client(HttpTransport(config))
        with pytest.raises(TransportError, match=r"could not be sent.*tls-server-name"):
            await create(client)
        await client.close()


async def test_a_trailing_dot_of_the_host_is_ignored_in_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve_to_loopback(_: ConnectionPool) -> Any:
        return await asyncio.get_running_loop().getaddrinfo("127.0.0.1", port, type=socket.SOCK_STREAM)

    monkeypatch.setattr(ConnectionPool, "_resolve", resolve_to_loopback)
    ca = CertificateAuthority()
    async with scripted_server(respond(json=POD), tls=ca.server_context(tmp_path, hosts=("kubernetes.lab",))) as server:
        port = server.url.rpartition(":")[2]
        cluster = {"certificate-authority-data": base64_of(ca.pem)}
        client = Client(await connect(kubeconfig(tmp_path, server=f"https://kubernetes.lab.:{port}", cluster=cluster)))
        assert await read(client) == POD
        await client.close()


async def test_a_password_in_the_address_is_not_reported() -> None:
    client = client_of("http://alice:secret@127.0.0.1:1")
    with pytest.raises(TransportError, match=r"at http://127\.0\.0\.1:1 ") as caught:
        await create(client)
    await client.close()
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("error", [RuntimeError("the descriptor is in use"), OSError(errno.EMFILE, "too many open files")])
async def test_a_write_was_not_sent_if_connecting_fails(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("aiohappyeyeballs.start_connection", fail)
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(TransportError, match=f"could not be sent.*{error.args[-1]}"):
        await create(client)
    await client.close()
