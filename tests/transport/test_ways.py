"""The way to the server: proxies, sockets, headers."""

from __future__ import annotations

import socket

import pytest

from dlop.kube.client import Client, Limits
from dlop.kube.config.cluster import Access, ClusterConfig, FixedCredentials
from dlop.kube.config.tls import TlsMaterial
from dlop.kube.errors import TransportError
from dlop.kube.http.pool import socket_that_notices_dead_peers
from dlop.kube.http.transport import HttpTransport
from dlop.kube.resources import PODS
from tests.transport.wire import Exchange, answer, wire

POD = {"kind": "Pod", "metadata": {"name": "a"}}


def client_behind(proxy: str, server: str) -> Client:
    access = Access(authorization="Bearer x", tls=TlsMaterial().context(origin="the test"))
    connection = ClusterConfig(server=server, credentials=FixedCredentials(access), origin="the test", proxy=proxy)
    return Client(HttpTransport(connection), limits=Limits(timeout_seconds=5))


async def test_a_call_goes_through_the_proxy() -> None:
    async with wire(answer(json=POD)) as proxy:
        client = client_behind(proxy.url, "http://cluster.invalid")
        assert await client.get(PODS, "a", namespace="lab") == POD
        await client.close()
        assert proxy.exchanges[0].target == "http://cluster.invalid/api/v1/namespaces/lab/pods/a"


async def test_a_write_that_the_proxy_does_not_let_through_was_not_sent() -> None:
    async with wire(answer(status=403, body=b"not from here")) as proxy:
        client = client_behind(proxy.url, "https://cluster.invalid")
        with pytest.raises(TransportError, match="could not be sent"):
            await client.create(PODS, POD, namespace="lab")
        await client.close()
        assert [(exchange.method, exchange.body) for exchange in proxy.exchanges] == [("CONNECT", b"")]


async def test_the_environments_proxies_are_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    async with wire(answer(json=POD)) as server, server.client() as client:
        assert await client.get(PODS, "a", namespace="lab") == POD


async def test_a_path_in_front_of_the_api_is_kept() -> None:
    async with wire(answer(json=POD)) as server:
        connection = ClusterConfig(server=f"{server.url}/k8s/clusters/c-1", credentials=FixedCredentials(Access()), origin="the test")
        client = Client(HttpTransport(connection))
        await client.get(PODS, "a", namespace="lab")
        await client.close()
        assert server.requests == [("GET", "/k8s/clusters/c-1/api/v1/namespaces/lab/pods/a")]


async def test_names_and_selectors_arrive_as_they_were_given() -> None:
    async with wire(answer(json={"metadata": {}, "items": []})) as server, server.client() as client:
        await client.list(PODS, namespace="lab", label_selector="a in (b, c),d!=e&f")
        assert server.exchanges[0].target == "/api/v1/namespaces/lab/pods?labelSelector=a%20in%20%28b%2C%20c%29%2Cd%21%3De%26f&limit=500"


async def test_nothing_is_sent_but_what_the_call_needs() -> None:
    async with wire(answer(json=POD)) as server, server.client(credentials=FixedCredentials(Access(authorization="Bearer x"))) as client:
        await client.create(PODS, POD, namespace="lab")
        headers = dict(server.exchanges[0].headers)
        assert headers.pop("host") in server.url
        assert headers == {
            "user-agent": "dlop",
            "accept": "application/json",
            "content-type": "application/json",
            "content-length": str(len(server.exchanges[0].body)),
            "authorization": "Bearer x",
        }


async def test_a_server_that_sets_cookies_does_not_get_them_back() -> None:
    async with wire(answer(json=POD, headers={"set-cookie": "a=b"})) as server, server.client() as client:
        for _ in range(2):
            await client.get(PODS, "a", namespace="lab")
        assert "cookie" not in server.exchanges[1].headers


async def test_calls_share_a_kept_alive_connection() -> None:
    async with wire(answer(json=POD)) as server, server.client() as client:
        for _ in range(5):
            await client.get(PODS, "a", namespace="lab")
        assert server.connections == 1


async def test_an_answer_that_ends_with_the_connection_is_whole() -> None:
    async def close_delimited(exchange: Exchange) -> None:
        await exchange.begin(chunked=False)
        await exchange.send(b'{"kind":"Pod"}')
        exchange.cut()

    async with wire(close_delimited) as server, server.client() as client:
        assert await client.get(PODS, "a", namespace="lab") == {"kind": "Pod"}


def test_a_socket_asks_its_peer_from_time_to_time_whether_it_is_still_there() -> None:
    with socket_that_notices_dead_peers((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
