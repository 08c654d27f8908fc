"""Transports of the embedded API server: in-process and HTTP."""

from __future__ import annotations

import asyncio
import io
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import aiohttp
import pytest

from dlop.embedded.apiserver.request_decoding import MAX_BODY_BYTES
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.transports.http import HttpServer
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.errors import AmbiguousWriteError, NotFoundError, TransportError, UnauthorizedError
from dlop.kube.resources import CONFIG_MAPS, SERVICE_ACCOUNTS
from dlop.kube.transport import Request
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import LoopClock, virtual_time

_PATH = CONFIG_MAPS.path(namespace="default")


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@asynccontextmanager
async def session(http_server: HttpServer, *, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cadata=http_server.ca_pem) if http_server.ca_pem else False
    headers = {"Authorization": f"Bearer {http_server.token if token is None else token}"}
    async with aiohttp.ClientSession(http_server.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as opened:
        yield opened
    await asyncio.sleep(0)  # aiohttp closes its TLS connections a turn later


async def test_both_transports_show_the_same_objects() -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve()
        async with session(http_server) as http:
            async with http.post(_PATH, json=config_map("a")) as created:
                assert created.status == 201
            in_process = await cluster.client().get(CONFIG_MAPS, "a", namespace="default")
            async with http.get(f"{_PATH}/a") as response:
                assert await response.json() == in_process


async def test_the_server_certificate_needs_the_ca_of_the_kubeconfig() -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve()
        assert http_server.url.startswith("https://127.0.0.1:")
        default_context = ssl.create_default_context()
        async with aiohttp.ClientSession(http_server.url, connector=aiohttp.TCPConnector(ssl=default_context)) as client:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await client.get("/healthz")


async def test_a_wrong_token_is_unauthorized_and_anonymous_requests_reach_only_public_paths() -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve(tls=False)
        async with session(http_server, token="wrong") as wrong:
            for path in (_PATH, "/healthz", "/api"):
                async with wrong.get(path) as response:
                    assert (response.status, (await response.json())["reason"]) == (401, "Unauthorized")
        async with aiohttp.ClientSession(http_server.url) as anonymous:
            for path, code in ((_PATH, 403), ("/api", 403), ("/healthz", 200), ("/readyz", 200), ("/version", 200)):
                async with anonymous.get(path) as response:
                    assert response.status == code, path


async def test_a_body_that_is_too_large_is_rejected_and_the_server_continues() -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve(tls=False)
        async with session(http_server) as client:
            headers = {"Content-Type": "application/json"}
            async with client.post(_PATH, data=io.BytesIO(b"x" * (MAX_BODY_BYTES + 1)), headers=headers) as response:
                assert (response.status, (await response.json())["reason"]) == (413, "RequestEntityTooLarge")
            async with client.get("/healthz") as response:
                assert await response.text() == "ok"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01" + b"\xff" * 50,
    ],
)
async def test_invalid_http_does_not_stop_the_server(data: bytes) -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve(tls=False)
        port = int(http_server.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        await reader.read()
        writer.close()
        async with session(http_server) as client, client.get("/healthz") as response:
            assert response.status == 200


async def test_an_unexpected_exception_is_a_500_and_the_server_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve(tls=False)
        async with session(http_server) as client:
            with monkeypatch.context() as patched:
                patched.setattr(ResourceStorage, "list", fail)
                async with client.get(_PATH) as response:
                    assert (response.status, (await response.json())["reason"]) == (500, "InternalError")
            async with client.get(_PATH) as response:
                assert response.status == 200


async def test_closing_the_http_server_ends_its_watches_normally() -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve(tls=False)
        async with session(http_server) as client, client.get(_PATH, params={"watch": "1"}) as watch:
            async with client.post(_PATH, json=config_map("a")):
                pass
            line = await watch.content.readline()
            while json.loads(line)["object"]["metadata"]["name"] != "a":
                line = await watch.content.readline()
            await http_server.close()
            assert await watch.content.read() == b""
            with pytest.raises(aiohttp.ClientConnectorError):
                await client.get(_PATH)


async def test_a_disconnected_watcher_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedCluster() as cluster:
        removed = asyncio.Event()
        monkeypatch.setattr(cluster.faults, "watch_closed", lambda _: removed.set())
        http_server = await cluster.serve(tls=False)
        async with session(http_server) as client:
            async with client.post(_PATH, json=config_map("a")):
                pass
            async with client.get(_PATH, params={"watch": "1"}) as watch:
                await watch.content.readline()
                assert len(cluster.server._watches) == 1
            async with asyncio.timeout(10):
                await removed.wait()
            assert not cluster.server._watches


async def test_query_parameters_are_decoded() -> None:
    async with EmbeddedCluster() as cluster:
        http_server = await cluster.serve(tls=False)
        async with session(http_server) as client:
            labelled = {**config_map("a"), "metadata": {"name": "a", "labels": {"example.org/x": "1"}}}
            async with client.post(_PATH, json=labelled):
                pass
            for selector, count in (("example.org/x in (1, 2)", 1), ("example.org/x notin (1)", 0), ("!example.org/x", 0)):
                async with client.get(_PATH, params={"labelSelector": selector, "fieldSelector": "metadata.name=a"}) as response:
                    assert len((await response.json())["items"]) == count, selector


# --- in-process ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_in_process_transport_honors_the_timeout() -> None:
    async with EmbeddedCluster() as cluster:
        transport = cluster.transport()
        cluster.faults.delay(60, times=2)
        with pytest.raises(TransportError):
            await transport.send(Request("GET", _PATH), timeout_seconds=5)
        with pytest.raises(AmbiguousWriteError):
            await transport.send(Request("DELETE", f"{_PATH}/a"), timeout_seconds=5)
        assert asyncio.get_running_loop().time() == pytest.approx(10)


@virtual_time
async def test_an_idle_stream_is_closed_after_the_idle_timeout() -> None:
    async with EmbeddedCluster() as cluster:
        request = Request("GET", CONFIG_MAPS.path(namespace="kube-public"), query=(("watch", "1"), ("timeoutSeconds", "600")))
        async with cluster.transport().stream(request, idle_timeout_seconds=30) as response:
            with pytest.raises(TransportError, match=r"no data from .* for 30"):
                await anext(response.chunks)


@virtual_time
async def test_a_request_yields_to_the_event_loop() -> None:
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        for _ in range(10):
            await client.list(CONFIG_MAPS, namespace="default")
        counting.cancel()
        assert turns >= 10


@virtual_time
async def test_a_wrong_token_is_unauthorized_in_process() -> None:
    async with EmbeddedCluster() as cluster:
        response = await InProcessTransport(cluster.server, token="wrong").send(Request("GET", _PATH), timeout_seconds=1)
        assert response.status == 401


@virtual_time
async def test_an_in_process_client_renews_a_token_that_has_expired() -> None:
    async with EmbeddedCluster(clock=LoopClock()) as cluster:
        admin = cluster.client()
        await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": "bot"}}, namespace="default")

        async def request_token() -> str:
            body: JsonObject = {"spec": {"expirationSeconds": 600}}
            response = await admin.create(SERVICE_ACCOUNTS, body, namespace="default", name="bot", subresource="token")
            return str(response["status"]["token"])

        token = await request_token()
        client = Client(InProcessTransport(cluster.server, token=token, renew_token=request_token))
        await asyncio.sleep(601)
        with pytest.raises(UnauthorizedError):
            await Client(InProcessTransport(cluster.server, token=token)).call("GET", "/api")
        await client.call("GET", "/api")


@virtual_time
async def test_equal_seeds_give_equal_clusters() -> None:
    async def run() -> bytes:
        numbers = iter(range(10_000))
        async with EmbeddedCluster(clock=lambda: 1_700_000_000.0, new_uid=lambda: f"uid-{next(numbers)}", rng=Random(7)) as cluster:
            client: Client = cluster.client()
            await client.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}, namespace="default")
            with pytest.raises(NotFoundError):
                await client.get(CONFIG_MAPS, "none", namespace="default")
            return (await client.call("GET", _PATH)).body

    assert await run() == await run()


@virtual_time
async def test_a_watch_starts_when_it_is_opened_and_not_when_it_is_first_read() -> None:
    async with EmbeddedCluster() as cluster:
        query = (("watch", "1"), ("sendInitialEvents", "false"), ("resourceVersionMatch", "NotOlderThan"))
        async with cluster.transport().stream(Request("GET", _PATH, query=query), idle_timeout_seconds=30) as response:
            await cluster.client().create(CONFIG_MAPS, config_map("a"), namespace="default")
            event = json.loads(await anext(response.chunks))
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
