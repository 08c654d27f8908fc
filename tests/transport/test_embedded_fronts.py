"""The two fronts of the embedded API server: in-process and over HTTP, the same server behind both."""

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
from dlop.kube.errors import AmbiguousWriteError, NotFoundError, TransportError
from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.transport import Request
from dlop.testing.virtual_time import virtual_time

_PATH = CONFIG_MAPS.path(namespace="default")


def config_map(name: str) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


@asynccontextmanager
async def session(front: HttpServer, *, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cadata=front.ca_pem) if front.ca_pem else False
    headers = {"Authorization": f"Bearer {front.token if token is None else token}"}
    async with aiohttp.ClientSession(front.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)) as opened:
        yield opened
    await asyncio.sleep(0)  # aiohttp closes its TLS connections a turn later


async def test_both_fronts_show_the_same_objects() -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve()
        async with session(front) as over_http:
            async with over_http.post(_PATH, json=config_map("a")) as created:
                assert created.status == 201
            in_process = await cluster.client().get(CONFIG_MAPS, "a", namespace="default")
            async with over_http.get(f"{_PATH}/a") as found:
                assert await found.json() == in_process


async def test_the_certificate_is_for_the_loopback_and_made_by_the_authority_of_the_kubeconfig() -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve()
        assert front.url.startswith("https://127.0.0.1:")
        stranger = ssl.create_default_context()
        async with aiohttp.ClientSession(front.url, connector=aiohttp.TCPConnector(ssl=stranger)) as wary:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await wary.get("/healthz")


async def test_a_wrong_token_is_unauthorized_everywhere_and_no_token_sees_only_the_open_pages() -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        async with session(front, token="wrong") as wrong:
            for path in (_PATH, "/healthz", "/api"):
                async with wrong.get(path) as answer:
                    assert (answer.status, (await answer.json())["reason"]) == (401, "Unauthorized")
        async with aiohttp.ClientSession(front.url) as anonymous:
            for path, code in ((_PATH, 403), ("/api", 403), ("/healthz", 200), ("/readyz", 200), ("/version", 200)):
                async with anonymous.get(path) as answer:
                    assert answer.status == code, path


async def test_a_body_that_is_too_large_is_refused_and_the_server_lives_on() -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        async with session(front) as client:
            headers = {"Content-Type": "application/json"}
            async with client.post(_PATH, data=io.BytesIO(b"x" * (MAX_BODY_BYTES + 1)), headers=headers) as answer:
                assert (answer.status, (await answer.json())["reason"]) == (413, "RequestEntityTooLarge")
            async with client.get("/healthz") as alive:
                assert await alive.text() == "ok"


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"\x16\x03\x01" + b"\xff" * 50,
    ],
)
async def test_bytes_that_are_no_http_do_not_end_the_server(nonsense: bytes) -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        port = int(front.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(nonsense)
        writer.write_eof()
        await reader.read()
        writer.close()
        async with session(front) as client, client.get("/healthz") as alive:
            assert alive.status == 200


async def test_a_bug_is_a_500_and_the_server_lives_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object) -> None:
        raise ZeroDivisionError("one over none")

    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        async with session(front) as client:
            with monkeypatch.context() as patched:
                patched.setattr(ResourceStorage, "list", stumble)
                async with client.get(_PATH) as answer:
                    assert (answer.status, (await answer.json())["reason"]) == (500, "InternalError")
            async with client.get(_PATH) as answer:
                assert answer.status == 200


async def test_closing_a_front_ends_its_watches_properly() -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        async with session(front) as client, client.get(_PATH, params={"watch": "1"}) as watch:
            async with client.post(_PATH, json=config_map("a")):
                pass
            line = await watch.content.readline()
            while json.loads(line)["object"]["metadata"]["name"] != "a":
                line = await watch.content.readline()
            await front.close()
            # A proper end: no error, and nothing half said.
            assert await watch.content.read() == b""
            with pytest.raises(aiohttp.ClientConnectorError):
                await client.get(_PATH)


async def test_a_watcher_that_hangs_up_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddedCluster() as cluster:
        forgotten = asyncio.Event()
        monkeypatch.setattr(cluster.faults, "closed", lambda _: forgotten.set())
        front = await cluster.serve(tls=False)
        async with session(front) as client:
            async with client.post(_PATH, json=config_map("a")):
                pass
            async with client.get(_PATH, params={"watch": "1"}) as watch:
                await watch.content.readline()
                assert len(cluster.server._watches) == 1
            async with asyncio.timeout(10):
                await forgotten.wait()
            assert not cluster.server._watches


async def test_paths_and_queries_arrive_as_they_were_meant() -> None:
    async with EmbeddedCluster() as cluster:
        front = await cluster.serve(tls=False)
        async with session(front) as client:
            labelled = {**config_map("a"), "metadata": {"name": "a", "labels": {"example.org/x": "1"}}}
            async with client.post(_PATH, json=labelled):
                pass
            for selector, count in (("example.org/x in (1, 2)", 1), ("example.org/x notin (1)", 0), ("!example.org/x", 0)):
                async with client.get(_PATH, params={"labelSelector": selector, "fieldSelector": "metadata.name=a"}) as found:
                    assert len((await found.json())["items"]) == count, selector


# --- in-process ------------------------------------------------------------------------------------------------------


@virtual_time
async def test_the_in_process_front_waits_for_a_slow_answer_no_longer_than_it_is_told() -> None:
    async with EmbeddedCluster() as cluster:
        transport = cluster.transport()
        cluster.faults.delay(60, times=2)
        with pytest.raises(TransportError):
            await transport.send(Request("GET", _PATH), timeout_seconds=5)
        with pytest.raises(AmbiguousWriteError):
            await transport.send(Request("DELETE", f"{_PATH}/a"), timeout_seconds=5)
        assert asyncio.get_running_loop().time() == pytest.approx(10)


@virtual_time
async def test_a_silent_stream_is_cut_when_its_reader_has_waited_long_enough() -> None:
    async with EmbeddedCluster() as cluster:
        request = Request("GET", CONFIG_MAPS.path(namespace="kube-public"), query=(("watch", "1"), ("timeoutSeconds", "600")))
        async with cluster.transport().stream(request, idle_timeout_seconds=30) as response:
            with pytest.raises(TransportError, match="silent for 30"):
                await anext(response.chunks)


@virtual_time
async def test_an_answer_takes_a_turn_of_the_loop_so_that_others_get_theirs() -> None:
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
async def test_a_token_can_be_wrong_in_process_too() -> None:
    async with EmbeddedCluster() as cluster:
        answer = await InProcessTransport(cluster.server, token="wrong").send(Request("GET", _PATH), timeout_seconds=1)
        assert answer.status == 401


@virtual_time
async def test_the_same_seeds_give_the_same_cluster() -> None:
    async def story() -> bytes:
        numbers = iter(range(10_000))
        async with EmbeddedCluster(clock=lambda: 1_700_000_000.0, new_uid=lambda: f"uid-{next(numbers)}", randomness=Random(7)) as cluster:
            client: Client = cluster.client()
            await client.create(CONFIG_MAPS, {"metadata": {"generateName": "a-"}}, namespace="default")
            with pytest.raises(NotFoundError):
                await client.get(CONFIG_MAPS, "none", namespace="default")
            return (await client.call("GET", _PATH)).body

    assert await story() == await story()


@virtual_time
async def test_a_watch_from_now_on_begins_when_it_is_asked_for_and_not_when_it_is_first_read() -> None:
    async with EmbeddedCluster() as cluster:
        query = (("watch", "1"), ("sendInitialEvents", "false"), ("resourceVersionMatch", "NotOlderThan"))
        async with cluster.transport().stream(Request("GET", _PATH, query=query), idle_timeout_seconds=30) as response:
            await cluster.client().create(CONFIG_MAPS, config_map("a"), namespace="default")
            event = json.loads(await anext(response.chunks))
            assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
