"""HTTP requests: proxies, URLs, headers and sockets."""

from __future__ import annotations

import socket

import pytest

from dlop.kube.client import Client, ClientLimits
from dlop.kube.config.cluster import ClusterConfig, RequestAuth
from dlop.kube.config.tls import TlsConfig
from dlop.kube.errors import TransportError
from dlop.kube.http.pool import create_keepalive_socket
from dlop.kube.http.transport import HttpTransport
from dlop.kube.resources import PODS
from tests.transport.scripted_server import Exchange, StaticCredentials, respond, scripted_server

POD = {"kind": "Pod", "metadata": {"name": "a"}}


def client_with_proxy(proxy: str, server: str) -> Client:
    auth = RequestAuth(authorization="Bearer x", tls=TlsConfig().context(origin="the test"))
    config = ClusterConfig(server=server, credentials=StaticCredentials(auth), origin="the test", proxy=proxy)
    return Client(HttpTransport(config), limits=ClientLimits(timeout_seconds=5))


async def test_a_call_uses_the_proxy() -> None:
    async with scripted_server(respond(json=POD)) as proxy:
        client = client_with_proxy(proxy.url, "http://cluster.invalid")
        assert await client.get(PODS, "a", namespace="lab") == POD
        await client.close()
        assert proxy.exchanges[0].target == "http://cluster.invalid/api/v1/namespaces/lab/pods/a"


async def test_a_write_that_the_proxy_rejects_was_not_sent() -> None:
    async with scripted_server(respond(status=403, body=b"denied")) as proxy:
        client = client_with_proxy(proxy.url, "https://cluster.invalid")
        with pytest.raises(TransportError, match="could not be sent"):
            await client.create(PODS, POD, namespace="lab")
        await client.close()
        assert [(exchange.method, exchange.body) for exchange in proxy.exchanges] == [("CONNECT", b"")]


async def test_proxies_in_the_environment_are_ignored_after_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        assert await client.get(PODS, "a", namespace="lab") == POD


async def test_a_path_prefix_of_the_server_is_kept() -> None:
    async with scripted_server(respond(json=POD)) as server:
        config = ClusterConfig(server=f"{server.url}/k8s/clusters/c-1", credentials=StaticCredentials(RequestAuth()), origin="the test")
        client = Client(HttpTransport(config))
        await client.get(PODS, "a", namespace="lab")
        await client.close()
        assert server.requests == [("GET", "/k8s/clusters/c-1/api/v1/namespaces/lab/pods/a")]


async def test_selectors_are_url_encoded() -> None:
    async with scripted_server(respond(json={"metadata": {}, "items": []})) as server, server.client() as client:
        await client.list(PODS, namespace="lab", label_selector="a in (b, c),d!=e&f")
        assert server.exchanges[0].target == "/api/v1/namespaces/lab/pods?labelSelector=a%20in%20%28b%2C%20c%29%2Cd%21%3De%26f&limit=500"


async def test_only_necessary_headers_are_sent() -> None:
    async with (
        scripted_server(respond(json=POD)) as server,
        server.client(credentials=StaticCredentials(RequestAuth(authorization="Bearer x"))) as client,
    ):
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


async def test_cookies_are_not_sent_back() -> None:
    async with scripted_server(respond(json=POD, headers={"set-cookie": "a=b"})) as server, server.client() as client:
        for _ in range(2):
            await client.get(PODS, "a", namespace="lab")
        assert "cookie" not in server.exchanges[1].headers


async def test_calls_reuse_a_keep_alive_connection() -> None:
    async with scripted_server(respond(json=POD)) as server, server.client() as client:
        for _ in range(5):
            await client.get(PODS, "a", namespace="lab")
        assert server.connections == 1


async def test_a_response_that_ends_with_the_connection_is_complete() -> None:
    async def close_delimited(exchange: Exchange) -> None:
        await exchange.start_stream(chunked=False)
        await exchange.send(b'{"kind":"Pod"}')
        exchange.cut()

    async with scripted_server(close_delimited) as server, server.client() as client:
        assert await client.get(PODS, "a", namespace="lab") == {"kind": "Pod"}


def test_sockets_have_tcp_keepalive() -> None:
    with create_keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as sock:
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000
