"""Connections that calls share: which are kept, which are not, and what a server may say on them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dlop.kube.client import Client
from dlop.kube.config.cluster import Access, ClusterConfig, FixedCredentials
from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.http.connection import HttpConnection
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.resources import PODS
from dlop.kube.transport import Request
from tests.transport.certificates import Authority
from tests.transport.kubeconfigs import base64_of, kubeconfig
from tests.transport.wire import Exchange, answer, stall, wire

POD = {"kind": "Pod", "metadata": {"name": "a"}}
BODY = b'{"kind":"Pod"}'


async def read(client: Client) -> object:
    return await client.get(PODS, "a", namespace="lab")


async def test_an_answer_in_chunks_is_whole() -> None:
    async def chunked(exchange: Exchange) -> None:
        await exchange.begin()
        for piece in (BODY[:3], BODY[3:9], BODY[9:]):
            await exchange.chunk(piece)
        await exchange.end()

    async with wire(chunked) as server, server.client() as client:
        assert await read(client) == await read(client) == {"kind": "Pod"}
        assert server.connections == 1


async def test_an_answer_that_comes_byte_by_byte_is_whole() -> None:
    async def trickled(exchange: Exchange) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY):
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0)

    async with wire(trickled) as server, server.client() as client:
        assert await read(client) == {"kind": "Pod"}


async def test_an_answer_that_only_says_to_go_on_is_not_taken_for_the_answer() -> None:
    async def informed(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n")
        await exchange.answer(json=POD)

    async with wire(informed) as server, server.client() as client:
        assert await read(client) == await read(client) == POD
        assert server.connections == 1


async def test_a_connection_is_not_kept_when_the_server_says_that_it_closes_it() -> None:
    async with wire(answer(json=POD, headers={"connection": "close"})) as server, server.client() as client:
        await read(client)
        await read(client)
        assert server.connections == 2


async def test_a_second_answer_to_one_request_is_never_taken_for_that_to_the_next() -> None:
    async def twice(exchange: Exchange) -> None:
        said = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
        await exchange.send(said + said)

    async with wire(twice, answer(json=POD)) as server, server.client() as client:
        assert await read(client) == {"kind": "Pod"}
        assert await read(client) == POD
        assert server.connections == 2


async def test_a_server_that_speaks_on_an_idle_connection_loses_it() -> None:
    async def and_more(exchange: Exchange) -> None:
        await exchange.answer(json=POD)
        await asyncio.sleep(0.05)  # by then the answer is read, and the next one would be unasked
        await exchange.send(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n")

    async with wire(and_more, answer(json={"kind": "Second"})) as server, server.client() as client:
        assert await read(client) == POD
        await asyncio.wait_for(server.closed_by_client.wait(), 10)
        assert await read(client) == {"kind": "Second"}


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.http.pool.KEEPALIVE_SECONDS", 0.05)
    async with wire(answer(json=POD)) as server, server.client() as client:
        await asyncio.gather(read(client), read(client))
        while server.open_connections:
            await asyncio.wait_for(server.closed_by_client.wait(), 10)
            await asyncio.sleep(0)
        assert await read(client) == POD


async def test_calls_at_the_same_time_have_a_connection_each() -> None:
    async with wire(stall()) as server, server.client(timeout_seconds=30) as client:
        calls = [asyncio.create_task(read(client)) for _ in range(5)]
        await server.received(5)
        assert server.open_connections == 5
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)


async def test_closing_a_client_leaves_the_write_under_way_open_to_doubt() -> None:
    async with wire(stall()) as server, server.client(timeout_seconds=30) as client:
        call = asyncio.create_task(client.create(PODS, POD, namespace="lab"))
        await server.received()
        await client.close()
        with pytest.raises(AmbiguousWriteError, match="answer was lost"):
            await call


async def test_a_large_body_arrives_whole() -> None:
    body = b"x" * 3_000_000
    async with wire(answer(body=b"{}")) as server:
        transport = server.transport()
        await transport.send(Request("POST", "/", body=body), timeout_seconds=30)
        await transport.close()
        assert server.exchanges[0].body == body


@pytest.mark.parametrize("token", ["a\r\nx-admin: yes", "a\nb", "a\n", "a\r\n", "naïve"])
async def test_a_token_that_is_more_than_a_token_is_not_sent(token: str) -> None:
    async with wire(answer(json=POD)) as server:
        connection = ClusterConfig(
            server=server.url, credentials=FixedCredentials(Access(authorization=f"Bearer {token}")), origin="the test"
        )
        client = Client(HttpTransport(connection))
        with pytest.raises(TransportError, match="characters that are not allowed") as refused:
            await read(client)
        await client.close()
        assert server.exchanges == []
        assert token not in str(refused.value)


async def test_a_path_with_a_space_is_not_sent() -> None:
    async with wire(answer(json=POD)) as server:
        transport = server.transport()
        with pytest.raises(TransportError, match="characters that are not allowed"):
            await transport.send(Request("GET", "/api HTTP/1.1"), timeout_seconds=5)
        await transport.close()
        assert server.exchanges == []


async def test_a_write_that_finds_its_new_connection_closed_was_not_sent() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = ClusterConfig(server=f"https://127.0.0.1:{port}", credentials=FixedCredentials(Access()), origin="the test")
    client = Client(HttpTransport(connection))
    with pytest.raises(TransportError, match="could not be sent"):
        await client.create(PODS, POD, namespace="lab")
    await client.close()
    server.close()
    await server.wait_closed()


async def test_a_call_that_is_given_up_just_when_it_has_connected_harms_no_other_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next connection gets the descriptor of the one that was given up, and must not be taken for it."""
    authority, calls = Authority(), list[asyncio.Task[object]]()

    def given_up(wire: HttpConnection, transport: asyncio.BaseTransport) -> None:
        wire.__dict__["_transport"] = transport
        calls[0].cancel()

    async with wire(answer(json=POD)) as other, wire(stall(), tls=authority.server_context(tmp_path)) as server:
        trusting = {"certificate-authority-data": base64_of(authority.pem)}
        client = Client(await connect(kubeconfig(tmp_path, server=server.url, cluster=trusting)))
        with monkeypatch.context() as patch:
            patch.setattr(HttpConnection, "connection_made", given_up)
            calls.append(asyncio.create_task(read(client)))
            await asyncio.wait(calls)
        async with asyncio.timeout(5), other.client() as next_client:
            assert await read(next_client) == POD
        await client.close()
