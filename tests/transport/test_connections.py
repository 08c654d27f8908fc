"""Keep-alive connections: when they are reused, and how unusual responses are handled."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dlop.kube.client import Client
from dlop.kube.config.cluster import ClusterConfig, RequestAuth
from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.http.connection import HttpConnection
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from dlop.kube.transport import Request
from tests.transport.certificates import CertificateAuthority
from tests.transport.kubeconfigs import base64_of, kubeconfig
from tests.transport.scripted_server import Exchange, StaticCredentials, respond, scripted_server, stall

POD = {"kind": "Pod", "metadata": {"name": "a"}}
BODY = b'{"kind":"Pod"}'


async def read(client: Client) -> object:
    return await client.get(PODS, "a", namespace="lab")


async def test_a_chunked_response_is_complete() -> None:
    async def chunked(exchange: Exchange) -> None:
        await exchange.start_stream()
        for chunk in (BODY[:3], BODY[3:9], BODY[9:]):
            await exchange.chunk(chunk)
        await exchange.end_stream()

    async with scripted_server(chunked) as server, server.client() as client:
        assert await read(client) == await read(client) == {"kind": "Pod"}
        assert server.connections == 1


async def test_a_response_that_arrives_byte_by_byte_is_complete() -> None:
    async def trickled(exchange: Exchange) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY):
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0)

    async with scripted_server(trickled) as server, server.client() as client:
        assert await read(client) == {"kind": "Pod"}


async def test_an_informational_response_is_skipped() -> None:
    async def respond_with_hints(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n")
        await exchange.respond(json=POD)

    async with scripted_server(respond_with_hints) as server, server.client() as client:
        assert await read(client) == await read(client) == POD
        assert server.connections == 1


async def test_a_connection_with_connection_close_is_not_reused() -> None:
    async with scripted_server(respond(json=POD, headers={"connection": "close"})) as server, server.client() as client:
        await read(client)
        await read(client)
        assert server.connections == 2


async def test_a_second_response_to_one_request_is_not_taken_for_the_next_one() -> None:
    async def twice(exchange: Exchange) -> None:
        response = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
        await exchange.send(response + response)

    async with scripted_server(twice, respond(json=POD)) as server, server.client() as client:
        assert await read(client) == {"kind": "Pod"}
        assert await read(client) == POD
        assert server.connections == 2


async def test_unsolicited_data_closes_an_idle_connection() -> None:
    async def respond_twice(exchange: Exchange) -> None:
        await exchange.respond(json=POD)
        await asyncio.sleep(0.05)  # until the client has read the first response
        await exchange.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")

    async with scripted_server(respond_twice, respond(json={"kind": "Second"})) as server, server.client() as client:
        assert await read(client) == POD
        await asyncio.wait_for(server.closed_by_client.wait(), 10)
        assert await read(client) == {"kind": "Second"}


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.http.pool.KEEPALIVE_SECONDS", 0.05)
    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        await asyncio.gather(read(client), read(client))
        while server.open_connections:
            await asyncio.wait_for(server.closed_by_client.wait(), 10)
            await asyncio.sleep(0)
        assert await read(client) == POD


async def test_concurrent_calls_have_their_own_connections() -> None:
    async with scripted_server(stall()) as server, server.client(timeout_seconds=30) as client:
        calls = [asyncio.create_task(read(client)) for _ in range(5)]
        await server.received(5)
        assert server.open_connections == 5
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_closing_a_client_makes_a_write_in_progress_ambiguous() -> None:
    async with scripted_server(stall()) as server, server.client(timeout_seconds=30) as client:
        call = asyncio.create_task(client.create(PODS, POD, namespace="lab"))
        await server.received()
        await client.close()
        with pytest.raises(AmbiguousWriteError, match="response was lost"):
            await call


async def test_a_large_body_is_sent_completely() -> None:
    body = b"x" * 3_000_000
    async with scripted_server(respond(body=b"{}")) as server:
        transport = server.transport()
        await transport.send(Request("POST", "/", body=body), timeout_seconds=30)
        await transport.close()
        assert server.exchanges[0].body == body


@pytest.mark.parametrize("token", ["a\r\nx-admin: yes", "a\nb", "a\n", "a\r\n", "naïve"])
async def test_a_token_with_invalid_characters_is_not_sent(token: str) -> None:
    async with scripted_server(respond(json=POD)) as server:
        config = ClusterConfig(
            server=server.url, credentials=StaticCredentials(RequestAuth(authorization=f"Bearer {token}")), origin="the test"
        )
        client = Client(HttpTransport(config))
        with pytest.raises(TransportError, match="characters that are not allowed") as raised:
            await read(client)
        await client.close()
        assert server.exchanges == []
        assert token not in str(raised.value)


async def test_a_path_with_a_space_is_not_sent() -> None:
    async with scripted_server(respond(json=POD)) as server:
        transport = server.transport()
        with pytest.raises(TransportError, match="characters that are not allowed"):
            await transport.send(Request("GET", "/api HTTP/1.1"), timeout_seconds=5)
        await transport.close()
        assert server.exchanges == []


async def test_a_write_on_a_new_connection_that_is_closed_at_once_was_not_sent() -> None:
    async def close_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(close_at_once, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = ClusterConfig(server=f"https://127.0.0.1:{port}", credentials=StaticCredentials(RequestAuth()), origin="the test")
    client = Client(HttpTransport(config))
    with pytest.raises(TransportError, match="could not be sent"):
        await client.create(PODS, POD, namespace="lab")
    await client.close()
    server.close()
    await server.wait_closed()


async def test_a_call_cancelled_while_connecting_does_not_affect_other_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next connection gets the same file descriptor."""
    ca, calls = CertificateAuthority(), list[asyncio.Task[object]]()

    def cancel_call(connection: HttpConnection, transport: asyncio.BaseTransport) -> None:
        connection.__dict__["_transport"] = transport
        calls[0].cancel()

    async with scripted_server(respond(json=POD)) as other, scripted_server(stall(), tls=ca.server_context(tmp_path)) as server:
        cluster = {"certificate-authority-data": base64_of(ca.pem)}
        client = Client(await connect(kubeconfig(tmp_path, server=server.url, cluster=cluster)))
        with monkeypatch.context() as patch:
            patch.setattr(HttpConnection, "connection_made", cancel_call)
            calls.append(asyncio.create_task(read(client)))
            await asyncio.wait(calls)
        async with asyncio.timeout(5), other.client() as next_client:
            assert await read(next_client) == POD
        await client.close()
