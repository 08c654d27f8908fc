"""Informers with network and server faults: the cache converges to the state of the server with few requests.

Each test scripts faults of the first requests. Afterwards the server works correctly, and the cache must converge.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dlop.kube.config.cluster import RequestAuth
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from tests.transport.scripted_server import (
    Exchange,
    Handler,
    ScriptedServer,
    cut,
    event_line,
    reset,
    respond,
    scripted_server,
    stall,
    status,
    status_object,
    watch_stream,
)

# One hundredth of the real back-off, because these tests use real sockets.
FAST = InformerTimings(short_watch_seconds=0.01, initial_backoff_seconds=0.008, max_backoff_seconds=0.3)
# Only for tests of silent servers, because a slow machine looks like one.
SHORT_IDLE_TIMEOUT = replace(FAST, idle_timeout_seconds=1.0, list_idle_timeout_seconds=1.0)
SILENT_FAULTS = ("half-open", "no response", "silent inside the list")


def pod(name: str, version: int, **extra: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, **extra}


def bookmark(version: int, *, ends_list: bool = False) -> dict[str, Any]:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_list else {}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version), "annotations": annotations}}


def streaming_list(*pods: dict[str, Any], version: int) -> list[bytes]:
    return [*(event_line("ADDED", pod) for pod in pods), event_line("BOOKMARK", bookmark(version, ends_list=True))]


FIRST = streaming_list(pod("a", 5), pod("b", 6), version=10)


class WorkingServer:
    """A server without faults: three pods at version 30, and a history since version 10."""

    versions = {"b": "20", "c": "21", "d": "30"}  # noqa: RUF012
    events = [  # noqa: RUF012
        ("MODIFIED", pod("b", 20)),
        ("ADDED", pod("c", 21)),
        ("DELETED", pod("a", 22)),
        ("ADDED", pod("d", 30)),
    ]

    async def __call__(self, exchange: Exchange) -> None:
        query = dict(part.split("=") for part in exchange.query.split("&"))
        if "continue" in query:
            await status(410, "Expired", message="the provided continue parameter is too old")(exchange)
            return
        pods = [pod(name, int(version)) for name, version in self.versions.items()]
        if "watch" not in query:
            await exchange.respond(json={"metadata": {"resourceVersion": "30"}, "items": pods})
            return
        await exchange.start_stream()
        if "sendInitialEvents" in query:
            await exchange.chunk(b"".join(streaming_list(*pods, version=30)))
        else:
            resource_version = int(query["resourceVersion"])
            lines = [event_line(kind, obj) for kind, obj in self.events if int(obj["metadata"]["resourceVersion"]) > resource_version]
            await exchange.chunk(b"".join([*lines, event_line("BOOKMARK", bookmark(30))]))
        await exchange.stall()


@asynccontextmanager
async def running_informer(server: ScriptedServer, *, timings: InformerTimings = FAST, **options: Any) -> AsyncIterator[Informer[Pod]]:
    async with server.client(**options) as client:
        informer: Informer[Pod] = Informer(client, PODS, Pod, rng=Random(1), timings=timings)
        running = asyncio.create_task(informer.run())
        try:
            yield informer
        finally:
            running.cancel()
            await asyncio.wait([running])


def timings_for(fault: str) -> InformerTimings:
    return SHORT_IDLE_TIMEOUT if fault in SILENT_FAULTS else FAST


async def check_converged(informer: Informer[Pod]) -> None:
    """Wait until the cache shows the state of the server."""
    async with asyncio.timeout(10):
        await informer.wait_synced()
        await informer.cache.wait_for_version(30)
    assert {pod.metadata.name: pod.metadata.resource_version for pod in informer.cache} == WorkingServer.versions


def kinds(server: ScriptedServer) -> list[str]:
    """The type of each request."""
    queries = [exchange.query for exchange in server.exchanges]
    return ["stream" if "sendInitialEvents" in query else "watch" if "watch=" in query else "list" for query in queries]


def after_delay(end: Callable[[Exchange], None]) -> Callable[[Exchange], Awaitable[None]]:
    """End a stream after its bytes have arrived, because a reset discards those that were not read."""

    async def later(exchange: Exchange) -> None:
        await asyncio.sleep(0.02)
        end(exchange)

    return later


# A first watch that ends normally.
ENDED = watch_stream(*FIRST, then=after_delay(Exchange.cut), chunked=False)
HALF_A_LINE = event_line("MODIFIED", pod("b", 20))[:40]
GONE = event_line("ERROR", status_object(410, "Expired", message="too old resource version: 10 (25)"))

# How a working watch ends, and the type of the next request.
ENDINGS: dict[str, tuple[Handler, str]] = {
    "half-open": (watch_stream(*FIRST, then=Exchange.stall), "watch"),
    "ended normally": (watch_stream(*FIRST), "watch"),
    "chunked, closed between events": (watch_stream(*FIRST, then=after_delay(Exchange.cut)), "watch"),
    "chunked, closed inside an event": (watch_stream(*FIRST, HALF_A_LINE, then=after_delay(Exchange.cut)), "watch"),
    "chunked, reset inside an event": (watch_stream(*FIRST, HALF_A_LINE, then=after_delay(Exchange.reset)), "watch"),
    "close-delimited, closed inside an event": (watch_stream(*FIRST, HALF_A_LINE, then=after_delay(Exchange.cut), chunked=False), "watch"),
    "close-delimited, closed between events": (watch_stream(*FIRST, then=after_delay(Exchange.cut), chunked=False), "watch"),
    "a line that is not JSON": (watch_stream(*FIRST, b"<html>oops</html>\n", then=Exchange.stall), "watch"),
    "a line of an unknown type": (watch_stream(*FIRST, b'{"type":"NEWS","object":{}}\n', then=Exchange.stall), "watch"),
    "410 inside the stream": (watch_stream(*FIRST, GONE, then=Exchange.stall), "stream"),
    "500 inside the stream": (watch_stream(*FIRST, event_line("ERROR", status_object(500, "InternalError"))), "stream"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_watch_that_ends_with_a_fault_is_resumed_or_relisted(ending: str) -> None:
    handler, next_request = ENDINGS[ending]
    async with scripted_server(handler, WorkingServer()) as server, running_informer(server, timings=timings_for(ending)) as informer:
        await check_converged(informer)
        assert kinds(server) == ["stream", next_request]
        assert informer.last_error == ""


# Faults of the request that resumes a watch, and the type of the next request.
RESUME_FAULTS: dict[str, tuple[Handler, str]] = {
    "429 in plain text": (respond(status=429, body=b"slow down", headers={"retry-after": "0"}), "watch"),
    "429 with a status": (status(429, "TooManyRequests"), "watch"),
    "500 in plain text": (respond(status=500, body=b"oops"), "watch"),
    "500 with a status": (status(500, "InternalError"), "watch"),
    "503 from a proxy": (respond(status=503, body=b"<html>no backend</html>"), "watch"),
    "410": (status(410, "Expired"), "stream"),
    "closed before the headers": (cut(), "watch"),
    "reset before the headers": (reset(), "watch"),
    "no response": (stall(), "watch"),
    "a web page with 200": (respond(body=b"<html>log in</html>"), "watch"),
    "404": (status(404, "NotFound"), "stream"),
    "403": (status(403, "Forbidden"), "watch"),
}


@pytest.mark.parametrize("fault", RESUME_FAULTS)
async def test_a_watch_that_fails_to_open_is_retried(fault: str) -> None:
    handler, next_request = RESUME_FAULTS[fault]
    async with scripted_server(ENDED, handler, WorkingServer()) as server, running_informer(server, timings=timings_for(fault)) as informer:
        await check_converged(informer)
        assert kinds(server) == ["stream", "watch", next_request]


# Faults of the first request, and the type of the next one.
FIRST_LIST_FAULTS: dict[str, tuple[Handler, str]] = {
    "streaming rejected with 422": (status(422, "Invalid", message="sendInitialEvents is forbidden for watch"), "list"),
    "streaming rejected with 400": (status(400, "BadRequest"), "list"),
    "429": (respond(status=429, body=b"slow down", headers={"retry-after": "0"}), "stream"),
    "500": (status(500, "InternalError"), "stream"),
    "403": (status(403, "Forbidden"), "stream"),
    "closed before the headers": (cut(), "stream"),
    "no response": (stall(), "stream"),
    "cut off inside the list": (watch_stream(FIRST[0], then=after_delay(Exchange.cut)), "list"),
    "ended inside the list": (watch_stream(FIRST[0]), "list"),
    "silent inside the list": (watch_stream(FIRST[0], then=Exchange.stall), "list"),
    "410 inside the list": (watch_stream(FIRST[0], GONE), "list"),
}


@pytest.mark.parametrize("fault", FIRST_LIST_FAULTS)
async def test_a_first_list_that_fails_is_retried(fault: str) -> None:
    handler, next_request = FIRST_LIST_FAULTS[fault]
    async with scripted_server(handler, WorkingServer()) as server, running_informer(server, timings=timings_for(fault)) as informer:
        await check_converged(informer)
        assert kinds(server)[:2] == ["stream", next_request]
        assert len(server.exchanges) <= 3


PAGE_FAULTS: dict[str, Handler] = {
    "cut off": cut(),
    "500": status(500, "InternalError"),
    "410": status(410, "Expired", message="the provided continue parameter is too old"),
    "a web page": respond(body=b"<html>log in</html>"),
    "half a body": respond(body=b'{"metadata":{"resourceVersion":"30"},"items":[{"meta'),
}


@pytest.mark.parametrize("fault", PAGE_FAULTS)
async def test_a_list_that_fails_at_its_second_page_is_restarted(fault: str) -> None:
    first_page = respond(json={"metadata": {"resourceVersion": "29", "continue": "more"}, "items": [pod("ghost", 1)]})
    script = status(422, "Invalid"), first_page, PAGE_FAULTS[fault], WorkingServer()
    async with scripted_server(*script) as server, running_informer(server) as informer:
        await check_converged(informer)
        assert len(server.exchanges) <= 6


async def test_a_list_without_a_resource_version_is_ignored() -> None:
    invalid = respond(json={"metadata": {}, "items": [pod("ghost", 1)]})
    async with scripted_server(status(422, "Invalid"), invalid, WorkingServer()) as server, running_informer(server) as informer:
        await check_converged(informer)


async def test_refused_connections_are_retried_and_the_watch_is_resumed_without_a_list() -> None:
    server = ScriptedServer((watch_stream(*FIRST, then=after_delay(Exchange.cut)), WorkingServer()), tls=None)
    listening = await server.start()
    port = listening.sockets[0].getsockname()[1]
    async with running_informer(server) as informer:
        await asyncio.wait_for(informer.wait_synced(), 5)
        listening.close()
        async with asyncio.timeout(10):
            while "no connection" not in informer.last_error:  # noqa: ASYNC110 - the informer has no event for it
                await asyncio.sleep(0.01)
        listening = await asyncio.start_server(server._accept, "127.0.0.1", port)
        await check_converged(informer)
        assert kinds(server) == ["stream", "watch"]
    listening.close()
    await server.stop()


@pytest.mark.parametrize("megabytes", [5, 20])
async def test_an_event_of_many_megabytes_is_decoded(megabytes: int) -> None:
    huge = pod("b", 20, spec={"padding": "x" * (megabytes * 2**20)})
    lines = [*FIRST, event_line("MODIFIED", huge), *(event_line(kind, obj) for kind, obj in WorkingServer.events[1:])]
    async with scripted_server(watch_stream(*lines, then=Exchange.stall)) as server, running_informer(server) as informer:
        await check_converged(informer)
        assert kinds(server) == ["stream"]


async def test_a_line_that_is_too_long_twice_causes_a_relist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.watch.MAX_LINE_BYTES", 2**16)
    endless = watch_stream(b"x" * 2**17, then=Exchange.stall)
    async with scripted_server(ENDED, endless, endless, WorkingServer()) as server, running_informer(server) as informer:
        await check_converged(informer)
        assert kinds(server) == ["stream", "watch", "watch", "stream"]


async def test_a_server_that_ends_every_watch_at_once_gets_few_requests() -> None:
    async def end_at_once(exchange: Exchange) -> None:
        await watch_stream(*(FIRST if "sendInitialEvents" in exchange.query else ()))(exchange)

    async with scripted_server(end_at_once) as server, running_informer(server) as informer:
        await asyncio.wait_for(informer.wait_synced(), 5)
        await asyncio.sleep(1.0)
        assert len(server.exchanges) < 20, "with the back-off of FAST; the real one is a hundred times longer"
        assert len(informer.cache) == 2


async def test_retry_after_is_honored() -> None:
    busy = respond(status=429, body=b"slow down", headers={"retry-after": "0.3"})
    async with scripted_server(ENDED, busy, WorkingServer()) as server, running_informer(server) as informer:
        await asyncio.wait_for(informer.wait_synced(), 5)
        started_at = asyncio.get_running_loop().time()
        await check_converged(informer)
        assert asyncio.get_running_loop().time() - started_at >= 0.3


class _RotatingCredentials:
    """A token that changes when the server has rejected it."""

    def __init__(self) -> None:
        self._number = 1

    async def read(self, *, rejected: bool) -> RequestAuth:
        self._number += rejected
        return RequestAuth(authorization=f"Bearer token-{self._number}")


async def test_a_token_that_expires_between_two_watches_is_refreshed() -> None:
    working = WorkingServer()

    async def only_with_the_second_token(exchange: Exchange) -> None:
        accepted = exchange.headers["authorization"] == "Bearer token-2"
        await (working(exchange) if accepted else status(401, "Unauthorized")(exchange))

    async with (
        scripted_server(ENDED, only_with_the_second_token) as server,
        running_informer(server, credentials=_RotatingCredentials()) as informer,
    ):
        await check_converged(informer)
        assert kinds(server) == ["stream", "watch", "watch"]
        assert informer.last_error == ""


async def test_slow_headers_time_out() -> None:
    async def drip(exchange: Exchange) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n":
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0.05)
        await exchange.stall()

    async with scripted_server(ENDED, drip, WorkingServer()) as server, running_informer(server, timings=SHORT_IDLE_TIMEOUT) as informer:
        await check_converged(informer)
        assert kinds(server) == ["stream", "watch", "watch"]


async def test_a_too_large_resource_version_causes_a_consistent_list() -> None:
    too_large = status_object(504, "Timeout", message="Too large resource version: 10, current: 3")
    too_large["details"] = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    script = watch_stream(*FIRST, GONE), respond(status=504, json=too_large), WorkingServer()
    async with scripted_server(*script) as server, running_informer(server) as informer:
        await check_converged(informer)
        assert kinds(server) == ["stream", "stream", "stream"]
        assert "resourceVersion=10" in server.exchanges[1].query.split("&")
        assert "resourceVersion=" not in server.exchanges[2].query


async def test_stopping_an_informer_closes_its_connection() -> None:
    async with scripted_server(WorkingServer()) as server:
        async with server.client() as client:
            running = asyncio.create_task(Informer(client, PODS, Pod, rng=Random(1)).run())
            await server.received()
            running.cancel()
            await asyncio.wait([running])
            await asyncio.wait_for(server.closed_by_client.wait(), 10)
        assert running.cancelled()
