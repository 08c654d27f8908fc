"""What a watch does on a wire that misbehaves: only whole events come out, and nothing hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dlop.kube.client import Client
from dlop.kube.errors import GoneError, KubeError, ServerError, StatusError, TooManyRequestsError, TransportError
from dlop.kube.resources import PODS
from dlop.kube.watch import UnreadableLineError
from tests.transport.wire import (
    Exchange,
    Handler,
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


def pod(name: str, **extra: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": "7"}, **extra}


async def names(client: Client, **options: Any) -> list[str]:
    """The names of the objects of a whole watch."""
    async with client.watch(PODS, **options) as events:
        return [event.decode()["metadata"]["name"] async for event in events]


async def broken(client: Client, **options: Any) -> tuple[list[str], KubeError]:
    """The names that arrived before the watch broke, and what it broke with."""
    found: list[str] = []
    try:
        async with client.watch(PODS, **options) as events:
            async for event in events:
                found.append(event.decode()["metadata"]["name"])  # noqa: PERF401 - what came before the error counts
    except KubeError as error:
        return found, error
    pytest.fail(f"the watch ended properly, after {found}")


async def test_events_arrive_whole_and_in_order_until_the_server_ends_the_stream() -> None:
    async with (
        wire(watch_stream(event_line("ADDED", pod("a")) + event_line("MODIFIED", pod("b")), event_line("DELETED", pod("c")))) as server,
        server.client() as client,
    ):
        assert await names(client) == ["a", "b", "c"]


async def test_a_half_open_connection_is_noticed_after_the_idle_time() -> None:
    async with wire(watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)) as server, server.client() as client:
        found, error = await broken(client, idle_timeout_seconds=0.3)
        assert found == ["a"]
        assert isinstance(error, TransportError)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_a_half_open_connection_is_noticed_shortly_after_the_promised_end_of_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.client._WATCH_GRACE_SECONDS", 0.05)
    async with wire(watch_stream(then=Exchange.stall)) as server, server.client() as client:
        _, error = await broken(client, timeout_seconds=0)
        assert isinstance(error, TransportError)


async def test_a_half_open_connection_is_noticed_while_waiting_for_the_headers() -> None:
    async with wire(stall()) as server, server.client(timeout_seconds=0.4) as client:
        found, error = await broken(client, idle_timeout_seconds=60)
        assert (found, type(error)) == ([], TransportError)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_a_refusal_whose_body_never_ends_is_noticed() -> None:
    async def half_a_refusal(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 429 Said\r\ncontent-length: 100\r\n\r\nhalf")
        await exchange.stall()

    async with wire(half_a_refusal) as server, server.client(timeout_seconds=0.05) as client:
        _, error = await broken(client, idle_timeout_seconds=60)
        assert isinstance(error, TransportError)


async def test_events_keep_a_slow_stream_alive_beyond_the_idle_time() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.begin()
        for name in "abcd":
            await asyncio.sleep(0.2)
            await exchange.event("ADDED", pod(name))
        await exchange.end()

    async with wire(drip) as server, server.client() as client:
        assert await names(client, idle_timeout_seconds=0.6) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("code", "kind"), [(429, TooManyRequestsError), (500, ServerError), (502, ServerError), (503, ServerError)])
async def test_a_refusal_in_plain_text_is_an_error_with_its_patience_and_never_an_event(code: int, kind: type[StatusError]) -> None:
    async with wire(answer(status=code, body=b"slow down", headers={"retry-after": "3"})) as server, server.client() as client:
        found, error = await broken(client)
        assert found == []
        assert isinstance(error, kind)
        assert (str(error), error.retry_after_seconds) == ("slow down", 3.0)
        assert len(server.exchanges) == 1


async def test_a_refusal_with_a_status_is_that_error_and_the_client_lives_on() -> None:
    script = status(500, "InternalError", message="etcd is away"), watch_stream(event_line("ADDED", pod("a")))
    async with wire(*script) as server, server.client() as client:
        _, error = await broken(client)
        assert isinstance(error, ServerError)
        assert (error.status_reason, str(error)) == ("InternalError", "etcd is away")
        assert await names(client) == ["a"]


async def test_410_as_an_http_status_is_gone_at_once() -> None:
    async with wire(status(410, "Expired", message="too old resource version")) as server, server.client() as client:
        _, error = await broken(client, resource_version="1")
        assert isinstance(error, GoneError)
        assert len(server.exchanges) == 1


async def test_410_inside_the_stream_is_gone_after_the_events_before_it() -> None:
    lines = event_line("ADDED", pod("a")), event_line("ERROR", status_object(410, "Expired"))
    async with wire(watch_stream(*lines, then=Exchange.stall)) as server, server.client() as client:
        found, error = await broken(client)
        assert found == ["a"]
        assert isinstance(error, GoneError)
        assert len(server.exchanges) == 1


async def test_a_stream_that_the_server_ends_at_once_is_an_empty_watch_and_not_reopened_behind_the_back() -> None:
    async with wire(watch_stream()) as server, server.client() as client:
        assert await names(client) == []
        assert len(server.exchanges) == 1


@pytest.mark.parametrize("end", [Exchange.cut, Exchange.reset], ids=["closed", "reset"])
async def test_a_chunked_stream_cut_inside_an_event_gives_the_whole_events_and_an_error(end: Any) -> None:
    lines = event_line("ADDED", pod("a")), event_line("ADDED", pod("b"))[:20]

    async def handle(exchange: Exchange) -> None:
        await exchange.begin()
        for line in lines:
            await exchange.chunk(line)
        await asyncio.sleep(0.02)  # a reset overtakes bytes that were not read yet
        end(exchange)

    async with wire(handle) as server, server.client() as client:
        found, error = await broken(client)
        assert (found, type(error)) == (["a"], UnreadableLineError)


async def test_a_chunked_stream_cut_between_events_is_an_error_too() -> None:
    async with wire(watch_stream(event_line("ADDED", pod("a")), then=lambda exchange: exchange.cut())) as server, server.client() as client:
        found, error = await broken(client)
        assert (found, type(error)) == (["a"], TransportError)


async def test_a_close_delimited_stream_cut_inside_an_event_never_gives_half_an_event() -> None:
    lines = event_line("ADDED", pod("a")), event_line("ADDED", pod("b"))[:20]
    async with wire(watch_stream(*lines, chunked=False, then=lambda exchange: exchange.cut())) as server, server.client() as client:
        found, error = await broken(client)
        assert (found, type(error)) == (["a"], UnreadableLineError)
        assert "cut off" in str(error)


async def test_a_close_delimited_stream_that_ends_between_events_is_a_proper_end() -> None:
    handler = watch_stream(event_line("ADDED", pod("a")), chunked=False, then=lambda exchange: exchange.cut())
    async with wire(handler) as server, server.client() as client:
        assert await names(client) == ["a"]


@pytest.mark.parametrize("megabytes", [5, 24])
async def test_a_line_of_many_megabytes_is_one_event(megabytes: int) -> None:
    line = event_line("ADDED", pod("a", data="x" * (megabytes * 2**20)))
    pieces = [line[start : start + 2**18] for start in range(0, len(line), 2**18)]
    async with wire(watch_stream(*pieces, event_line("ADDED", pod("b")))) as server, server.client() as client:
        assert await names(client) == ["a", "b"]


async def test_a_line_without_an_end_is_given_up_before_it_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.watch.MAX_LINE_BYTES", 2**20)

    async def endless(exchange: Exchange) -> None:
        await exchange.begin()
        while True:
            await exchange.chunk(b"x" * 2**16)

    async with wire(endless) as server, server.client() as client:
        _, error = await broken(client)
        assert isinstance(error, TransportError)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_events_torn_at_every_byte_come_out_whole() -> None:
    stream = event_line("ADDED", pod("ä")) + event_line("BOOKMARK", pod("b")) + event_line("DELETED", pod("c"))
    async with wire(watch_stream(*(stream[place : place + 1] for place in range(len(stream))))) as server, server.client() as client:
        assert await names(client) == ["ä", "b", "c"]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>\n",
        b'{"type":"NEWS","object":{}}\n',
        b'{"type":"ADDED"}\n',
        b'{"type":"ERROR","object":7}\n',
        b"\xff\xfe\n",
        b'{"type":"\xff"}\n',
    ],
)
async def test_a_line_that_is_no_event_breaks_the_watch(line: bytes) -> None:
    async with wire(watch_stream(event_line("ADDED", pod("a")), line, then=Exchange.stall)) as server, server.client() as client:
        found, error = await broken(client)
        assert (found, type(error)) == (["a"], UnreadableLineError)


@pytest.mark.parametrize("fault", [cut(), reset()], ids=["closed", "reset"])
async def test_a_connection_lost_before_the_headers_is_an_error_of_the_transport(fault: Handler) -> None:
    async with wire(fault) as server, server.client() as client:
        _, error = await broken(client)
        assert isinstance(error, TransportError)


async def test_leaving_a_watch_closes_its_connection_at_once() -> None:
    async with wire(watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)) as server, server.client() as client:
        async with client.watch(PODS) as events:
            assert (await anext(events)).decode()["metadata"]["name"] == "a"
            assert server.open_connections == 1
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_a_cancelled_watch_closes_its_connection_at_once() -> None:
    async with wire(watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)) as server, server.client() as client:
        started = asyncio.Event()

        async def read() -> None:
            async with client.watch(PODS) as events:
                async for _ in events:
                    started.set()

        reading = asyncio.create_task(read())
        await asyncio.wait_for(started.wait(), 10)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_closing_the_client_ends_its_open_watches() -> None:
    stream = watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)
    async with wire(stream) as server, server.client() as client, client.watch(PODS) as events:
        await anext(events)
        await client.close()
        with pytest.raises(TransportError):
            await anext(events)


async def test_the_client_asks_for_what_the_caller_wants() -> None:
    async with wire(watch_stream()) as server, server.client() as client:
        await names(client, namespace="lab", resource_version="12", label_selector="a=b,c", send_initial_events=True, timeout_seconds=40)
        asked = server.exchanges[0]
        assert asked.path == "/api/v1/namespaces/lab/pods"
        assert set(asked.query.split("&")) == {
            "watch=true",
            "resourceVersion=12",
            "labelSelector=a%3Db%2Cc",
            "allowWatchBookmarks=true",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "timeoutSeconds=40",
        }


async def test_a_watch_does_not_take_a_place_from_other_reads() -> None:
    script: tuple[Handler, ...] = (watch_stream(then=Exchange.stall), answer(json=pod("a")))
    async with wire(*script) as server, server.client(reads_in_flight=1) as client, client.watch(PODS):
        assert await client.get(PODS, "a", namespace="lab") == pod("a")
