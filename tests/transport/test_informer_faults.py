"""What an informer does on a wire that misbehaves: whatever came, its cache ends up with the server's truth, in few requests.

Each test scripts the faults of the first requests; after them the server behaves, and the cache must show what it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from dlop.kube.config.cluster import Access
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from tests.transport.wire import (
    Exchange,
    Handler,
    WireServer,
    answer,
    cut,
    event_line,
    reset,
    stall,
    status,
    status_object,
    watch_stream,
    wire,
)

# A hundredth of the real pauses, so that real sockets can be used.
HASTE = InformerTimings(short_watch_seconds=0.01, first_pause_seconds=0.008, longest_pause_seconds=0.3)
# Only where silence is the fault: a busy machine must not be taken for a silent server.
ALERT = replace(HASTE, quiet_seconds=1.0, list_quiet_seconds=1.0)
SILENCES = ("half-open", "never answered", "silent inside the list")


def pod(name: str, version: int, **extra: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, **extra}


def bookmark(version: int, *, ends_the_list: bool = False) -> dict[str, Any]:
    annotations = {"k8s.io/initial-events-end": "true"} if ends_the_list else {}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": str(version), "annotations": annotations}}


def listed(*pods: dict[str, Any], version: int) -> list[bytes]:
    """A streamed list."""
    return [*(event_line("ADDED", each) for each in pods), event_line("BOOKMARK", bookmark(version, ends_the_list=True))]


FIRST = listed(pod("a", 5), pod("b", 6), version=10)


class TruthfulServer:
    """The server when it behaves: three pods at version 30, and a history back to version 10."""

    truth = {"b": "20", "c": "21", "d": "30"}  # noqa: RUF012
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
        pods = [pod(name, int(version)) for name, version in self.truth.items()]
        if "watch" not in query:
            await exchange.answer(json={"metadata": {"resourceVersion": "30"}, "items": pods})
            return
        await exchange.begin()
        if "sendInitialEvents" in query:
            await exchange.chunk(b"".join(listed(*pods, version=30)))
        else:
            since = int(query["resourceVersion"])
            lines = [event_line(kind, each) for kind, each in self.events if int(each["metadata"]["resourceVersion"]) > since]
            await exchange.chunk(b"".join([*lines, event_line("BOOKMARK", bookmark(30))]))
        await exchange.stall()


@asynccontextmanager
async def following(server: WireServer, *, pace: InformerTimings = HASTE, **options: Any) -> AsyncIterator[Informer[Pod]]:
    async with server.client(**options) as client:
        informer: Informer[Pod] = Informer(client, PODS, Pod, rng=Random(1), pace=pace)
        running = asyncio.create_task(informer.run())
        try:
            yield informer
        finally:
            running.cancel()
            await asyncio.wait([running])


def pace_for(fault: str) -> InformerTimings:
    return ALERT if fault in SILENCES else HASTE


async def check_truth(informer: Informer[Pod]) -> None:
    """The cache shows what the server has."""
    async with asyncio.timeout(10):
        await informer.wait_synced()
        await informer.cache.reached(30)
    assert {found.metadata.name: found.metadata.resource_version for found in informer.cache} == TruthfulServer.truth


def kinds(server: WireServer) -> list[str]:
    """What each request was for."""
    return ["stream" if "sendInitialEvents" in each.query else "watch" if "watch=" in each.query else "list" for each in server.exchanges]


def cut_by(end: Callable[[Exchange], None]) -> Callable[[Exchange], Awaitable[None]]:
    """End a stream roughly, once its bytes have had time to arrive: a reset overtakes those that were not read."""

    async def later(exchange: Exchange) -> None:
        await asyncio.sleep(0.02)
        end(exchange)

    return later


# A first watch that does well and then ends as it should.
ENDED = watch_stream(*FIRST, then=cut_by(Exchange.cut), chunked=False)
HALF_A_LINE = event_line("MODIFIED", pod("b", 20))[:40]
GONE = event_line("ERROR", status_object(410, "Expired", message="too old resource version: 10 (25)"))

# How a watch that was going well ends, and what the next request is then for.
ENDINGS: dict[str, tuple[Handler, str]] = {
    "half-open": (watch_stream(*FIRST, then=Exchange.stall), "watch"),
    "ended properly": (watch_stream(*FIRST), "watch"),
    "chunked, closed between events": (watch_stream(*FIRST, then=cut_by(Exchange.cut)), "watch"),
    "chunked, closed inside an event": (watch_stream(*FIRST, HALF_A_LINE, then=cut_by(Exchange.cut)), "watch"),
    "chunked, reset inside an event": (watch_stream(*FIRST, HALF_A_LINE, then=cut_by(Exchange.reset)), "watch"),
    "close-delimited, closed inside an event": (watch_stream(*FIRST, HALF_A_LINE, then=cut_by(Exchange.cut), chunked=False), "watch"),
    "close-delimited, closed between events": (watch_stream(*FIRST, then=cut_by(Exchange.cut), chunked=False), "watch"),
    "a line that is no JSON": (watch_stream(*FIRST, b"<html>oops</html>\n", then=Exchange.stall), "watch"),
    "a line of an unknown type": (watch_stream(*FIRST, b'{"type":"NEWS","object":{}}\n', then=Exchange.stall), "watch"),
    "410 inside the stream": (watch_stream(*FIRST, GONE, then=Exchange.stall), "stream"),
    "500 inside the stream": (watch_stream(*FIRST, event_line("ERROR", status_object(500, "InternalError"))), "stream"),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_a_watch_that_ends_badly_is_taken_up_or_listed_anew(ending: str) -> None:
    handler, next_request = ENDINGS[ending]
    async with wire(handler, TruthfulServer()) as server, following(server, pace=pace_for(ending)) as informer:
        await check_truth(informer)
        assert kinds(server) == ["stream", next_request]
        assert informer.last_error == ""


# What may become of the request that takes up a watch, and what is asked for after it.
REFUSALS: dict[str, tuple[Handler, str]] = {
    "429 in plain text": (answer(status=429, body=b"slow down", headers={"retry-after": "0"}), "watch"),
    "429 with a status": (status(429, "TooManyRequests"), "watch"),
    "500 in plain text": (answer(status=500, body=b"oops"), "watch"),
    "500 with a status": (status(500, "InternalError"), "watch"),
    "503 from a proxy": (answer(status=503, body=b"<html>no backend</html>"), "watch"),
    "410": (status(410, "Expired"), "stream"),
    "closed before the headers": (cut(), "watch"),
    "reset before the headers": (reset(), "watch"),
    "never answered": (stall(), "watch"),
    "a 200 that is a web page": (answer(body=b"<html>log in</html>"), "watch"),
    "404": (status(404, "NotFound"), "stream"),
    "403": (status(403, "Forbidden"), "watch"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_watch_that_is_refused_is_asked_for_again(refusal: str) -> None:
    handler, next_request = REFUSALS[refusal]
    async with wire(ENDED, handler, TruthfulServer()) as server, following(server, pace=pace_for(refusal)) as informer:
        await check_truth(informer)
        assert kinds(server) == ["stream", "watch", next_request]


# What may become of the very first request, and of what kind the next one is.
FIRST_REQUESTS: dict[str, tuple[Handler, str]] = {
    "streaming refused with 422": (status(422, "Invalid", message="sendInitialEvents is forbidden for watch"), "list"),
    "streaming refused with 400": (status(400, "BadRequest"), "list"),
    "429": (answer(status=429, body=b"slow down", headers={"retry-after": "0"}), "stream"),
    "500": (status(500, "InternalError"), "stream"),
    "403": (status(403, "Forbidden"), "stream"),
    "closed before the headers": (cut(), "stream"),
    "never answered": (stall(), "stream"),
    "cut off inside the list": (watch_stream(FIRST[0], then=cut_by(Exchange.cut)), "list"),
    "ended inside the list": (watch_stream(FIRST[0]), "list"),
    "silent inside the list": (watch_stream(FIRST[0], then=Exchange.stall), "list"),
    "410 inside the list": (watch_stream(FIRST[0], GONE), "list"),
}


@pytest.mark.parametrize("fault", FIRST_REQUESTS)
async def test_a_first_list_that_fails_is_asked_for_again_and_nothing_of_it_is_shown(fault: str) -> None:
    handler, next_request = FIRST_REQUESTS[fault]
    async with wire(handler, TruthfulServer()) as server, following(server, pace=pace_for(fault)) as informer:
        await check_truth(informer)
        assert kinds(server)[:2] == ["stream", next_request]
        assert len(server.exchanges) <= 3


PAGE_FAULTS: dict[str, Handler] = {
    "cut off": cut(),
    "500": status(500, "InternalError"),
    "410": status(410, "Expired", message="the provided continue parameter is too old"),
    "a web page": answer(body=b"<html>log in</html>"),
    "half a body": answer(body=b'{"metadata":{"resourceVersion":"30"},"items":[{"meta'),
}


@pytest.mark.parametrize("fault", PAGE_FAULTS)
async def test_a_list_that_fails_at_its_second_page_is_begun_anew(fault: str) -> None:
    first_page = answer(json={"metadata": {"resourceVersion": "29", "continue": "more"}, "items": [pod("ghost", 1)]})
    script = status(422, "Invalid"), first_page, PAGE_FAULTS[fault], TruthfulServer()
    async with wire(*script) as server, following(server) as informer:
        await check_truth(informer)
        assert len(server.exchanges) <= 6


async def test_a_list_without_a_version_is_not_believed() -> None:
    odd = answer(json={"metadata": {}, "items": [pod("ghost", 1)]})
    async with wire(status(422, "Invalid"), odd, TruthfulServer()) as server, following(server) as informer:
        await check_truth(informer)


async def test_refused_connections_are_tried_again_and_the_watch_goes_on_without_a_list() -> None:
    server = WireServer((watch_stream(*FIRST, then=cut_by(Exchange.cut)), TruthfulServer()), tls=None)
    listening = await server.start()
    port = listening.sockets[0].getsockname()[1]
    async with following(server) as informer:
        await asyncio.wait_for(informer.wait_synced(), 5)
        listening.close()
        async with asyncio.timeout(10):
            while "no connection" not in informer.last_error:  # noqa: ASYNC110 - the informer has no event for it
                await asyncio.sleep(0.01)
        listening = await asyncio.start_server(server._accept, "127.0.0.1", port)
        await check_truth(informer)
        assert kinds(server) == ["stream", "watch"]
    listening.close()
    await server.stop()


@pytest.mark.parametrize("megabytes", [5, 20])
async def test_an_event_of_many_megabytes_is_taken_in(megabytes: int) -> None:
    huge = pod("b", 20, spec={"padding": "x" * (megabytes * 2**20)})
    lines = [*FIRST, event_line("MODIFIED", huge), *(event_line(kind, each) for kind, each in TruthfulServer.events[1:])]
    async with wire(watch_stream(*lines, then=Exchange.stall)) as server, following(server) as informer:
        await check_truth(informer)
        assert kinds(server) == ["stream"]


async def test_a_line_that_is_too_long_each_time_leads_to_a_list_instead_of_an_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.watch.MAX_LINE_BYTES", 2**16)
    endless = watch_stream(b"x" * 2**17, then=Exchange.stall)
    async with wire(ENDED, endless, endless, TruthfulServer()) as server, following(server) as informer:
        await check_truth(informer)
        assert kinds(server) == ["stream", "watch", "watch", "stream"]


async def test_a_server_that_ends_every_watch_at_once_is_not_flooded() -> None:
    async def end_at_once(exchange: Exchange) -> None:
        await watch_stream(*(FIRST if "sendInitialEvents" in exchange.query else ()))(exchange)

    async with wire(end_at_once) as server, following(server) as informer:
        await asyncio.wait_for(informer.wait_synced(), 5)
        await asyncio.sleep(1.0)
        assert len(server.exchanges) < 20, "with the pauses of HASTE; with real ones it is a hundredth of that"
        assert len(informer.cache) == 2


async def test_retry_after_is_waited_for() -> None:
    refusal = answer(status=429, body=b"slow down", headers={"retry-after": "0.3"})
    async with wire(ENDED, refusal, TruthfulServer()) as server, following(server) as informer:
        await asyncio.wait_for(informer.wait_synced(), 5)
        began = asyncio.get_running_loop().time()
        await check_truth(informer)
        assert asyncio.get_running_loop().time() - began >= 0.3


class _RotatingCredentials:
    """A token that changes whenever the server has refused it."""

    def __init__(self) -> None:
        self._number = 1

    async def read(self, *, refused: bool) -> Access:
        self._number += refused
        return Access(authorization=f"Bearer token-{self._number}")


async def test_a_token_that_expires_between_two_watches_is_read_anew() -> None:
    truth = TruthfulServer()

    async def only_with_the_second_token(exchange: Exchange) -> None:
        accepted = exchange.headers["authorization"] == "Bearer token-2"
        await (truth(exchange) if accepted else status(401, "Unauthorized")(exchange))

    async with (
        wire(ENDED, only_with_the_second_token) as server,
        following(server, credentials=_RotatingCredentials()) as informer,
    ):
        await check_truth(informer)
        assert kinds(server) == ["stream", "watch", "watch"]
        assert informer.last_error == ""


async def test_a_slow_head_is_given_up() -> None:
    async def drip(exchange: Exchange) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n":
            await exchange.send(bytes([byte]))
            await asyncio.sleep(0.05)
        await exchange.stall()

    async with wire(ENDED, drip, TruthfulServer()) as server, following(server, pace=ALERT) as informer:
        await check_truth(informer)
        assert kinds(server) == ["stream", "watch", "watch"]


async def test_too_large_a_version_leads_to_a_consistent_list() -> None:
    too_large = status_object(504, "Timeout", message="Too large resource version: 10, current: 3")
    too_large["details"] = {"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]}
    script = watch_stream(*FIRST, GONE), answer(status=504, json=too_large), TruthfulServer()
    async with wire(*script) as server, following(server) as informer:
        await check_truth(informer)
        assert kinds(server) == ["stream", "stream", "stream"]
        assert "resourceVersion=10" in server.exchanges[1].query.split("&")
        assert "resourceVersion=" not in server.exchanges[2].query


async def test_stopping_an_informer_closes_its_connection() -> None:
    async with wire(TruthfulServer()) as server:
        async with server.client() as client:
            running = asyncio.create_task(Informer(client, PODS, Pod, rng=Random(1)).run())
            await server.received()
            running.cancel()
            await asyncio.wait([running])
            await asyncio.wait_for(server.closed_by_client.wait(), 10)
        assert running.cancelled()
