"""Watches with network and server faults: only complete events are returned, and nothing hangs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dlop.kube.client import Client
from dlop.kube.errors import GoneError, KubeError, ServerError, StatusError, TooManyRequestsError, TransportError
from dlop.kube.resources import PODS
from dlop.kube.watch import MalformedWatchEventError
from tests.transport.scripted_server import (
    Exchange,
    Handler,
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


def pod(name: str, **extra: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, "resourceVersion": "7"}, **extra}


async def names(client: Client, **options: Any) -> list[str]:
    """The names of the objects of a watch that ends normally."""
    async with client.watch(PODS, **options) as events:
        return [event.decode()["metadata"]["name"] async for event in events]


async def until_error(client: Client, **options: Any) -> tuple[list[str], KubeError]:
    """The names that arrived before the watch failed, and the error."""
    received: list[str] = []
    try:
        async with client.watch(PODS, **options) as events:
            async for event in events:
                received.append(event.decode()["metadata"]["name"])  # noqa: PERF401 - a comprehension would lose them on an error
    except KubeError as error:
        return received, error
    pytest.fail(f"the watch ended normally, after {received}")


async def test_events_are_returned_in_order_until_the_server_ends_the_stream() -> None:
    async with (
        scripted_server(
            watch_stream(event_line("ADDED", pod("a")) + event_line("MODIFIED", pod("b")), event_line("DELETED", pod("c")))
        ) as server,
        server.client() as client,
    ):
        assert await names(client) == ["a", "b", "c"]


async def test_a_half_open_connection_is_detected_after_the_idle_timeout() -> None:
    async with scripted_server(watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)) as server, server.client() as client:
        received, error = await until_error(client, idle_timeout_seconds=0.3)
        assert received == ["a"]
        assert isinstance(error, TransportError)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_a_half_open_connection_is_detected_shortly_after_the_watch_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.client._WATCH_GRACE_SECONDS", 0.05)
    async with scripted_server(watch_stream(then=Exchange.stall)) as server, server.client() as client:
        _, error = await until_error(client, timeout_seconds=0)
        assert isinstance(error, TransportError)


async def test_a_half_open_connection_is_detected_while_waiting_for_the_headers() -> None:
    async with scripted_server(stall()) as server, server.client(timeout_seconds=0.4) as client:
        received, error = await until_error(client, idle_timeout_seconds=60)
        assert (received, type(error)) == ([], TransportError)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_an_incomplete_error_response_is_a_transport_error() -> None:
    async def half_an_error(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 429 Test\r\ncontent-length: 100\r\n\r\nhalf")
        await exchange.stall()

    async with scripted_server(half_an_error) as server, server.client(timeout_seconds=0.05) as client:
        _, error = await until_error(client, idle_timeout_seconds=60)
        assert isinstance(error, TransportError)


async def test_events_reset_the_idle_timeout() -> None:
    async def drip(exchange: Exchange) -> None:
        await exchange.start_stream()
        for name in "abcd":
            await asyncio.sleep(0.6)
            await exchange.event("ADDED", pod(name))
        await exchange.end_stream()

    async with scripted_server(drip) as server, server.client() as client:
        assert await names(client, idle_timeout_seconds=2.0) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("code", "error_type"), [(429, TooManyRequestsError), (500, ServerError), (502, ServerError), (503, ServerError)])
async def test_a_plain_text_error_has_its_message_and_retry_after(code: int, error_type: type[StatusError]) -> None:
    async with scripted_server(respond(status=code, body=b"slow down", headers={"retry-after": "3"})) as server, server.client() as client:
        received, error = await until_error(client)
        assert received == []
        assert isinstance(error, error_type)
        assert (str(error), error.retry_after_seconds) == ("slow down", 3.0)
        assert len(server.exchanges) == 1


async def test_an_error_response_does_not_affect_the_next_watch() -> None:
    script = status(500, "InternalError", message="etcd is unavailable"), watch_stream(event_line("ADDED", pod("a")))
    async with scripted_server(*script) as server, server.client() as client:
        _, error = await until_error(client)
        assert isinstance(error, ServerError)
        assert (error.status_reason, str(error)) == ("InternalError", "etcd is unavailable")
        assert await names(client) == ["a"]


async def test_http_status_410_is_a_gone_error() -> None:
    async with scripted_server(status(410, "Expired", message="too old resource version")) as server, server.client() as client:
        _, error = await until_error(client, resource_version="1")
        assert isinstance(error, GoneError)
        assert len(server.exchanges) == 1


async def test_410_inside_the_stream_is_raised_after_the_events_before_it() -> None:
    lines = event_line("ADDED", pod("a")), event_line("ERROR", status_object(410, "Expired"))
    async with scripted_server(watch_stream(*lines, then=Exchange.stall)) as server, server.client() as client:
        received, error = await until_error(client)
        assert received == ["a"]
        assert isinstance(error, GoneError)
        assert len(server.exchanges) == 1


async def test_a_stream_that_ends_at_once_is_an_empty_watch() -> None:
    async with scripted_server(watch_stream()) as server, server.client() as client:
        assert await names(client) == []
        assert len(server.exchanges) == 1


@pytest.mark.parametrize("end", [Exchange.cut, Exchange.reset], ids=["closed", "reset"])
async def test_a_chunked_stream_cut_inside_an_event_returns_the_complete_events_and_an_error(end: Any) -> None:
    lines = event_line("ADDED", pod("a")), event_line("ADDED", pod("b"))[:20]

    async def handle(exchange: Exchange) -> None:
        await exchange.start_stream()
        for line in lines:
            await exchange.chunk(line)
        await asyncio.sleep(0.02)  # a reset discards bytes that were not read yet
        end(exchange)

    async with scripted_server(handle) as server, server.client() as client:
        received, error = await until_error(client)
        assert (received, type(error)) == (["a"], MalformedWatchEventError)


async def test_a_chunked_stream_cut_between_events_is_an_error() -> None:
    async with (
        scripted_server(watch_stream(event_line("ADDED", pod("a")), then=lambda exchange: exchange.cut())) as server,
        server.client() as client,
    ):
        received, error = await until_error(client)
        assert (received, type(error)) == (["a"], TransportError)


async def test_a_close_delimited_stream_cut_inside_an_event_is_an_error() -> None:
    lines = event_line("ADDED", pod("a")), event_line("ADDED", pod("b"))[:20]
    async with (
        scripted_server(watch_stream(*lines, chunked=False, then=lambda exchange: exchange.cut())) as server,
        server.client() as client,
    ):
        received, error = await until_error(client)
        assert (received, type(error)) == (["a"], MalformedWatchEventError)
        assert "ended inside a line" in str(error)


async def test_a_close_delimited_stream_that_ends_between_events_is_complete() -> None:
    handler = watch_stream(event_line("ADDED", pod("a")), chunked=False, then=lambda exchange: exchange.cut())
    async with scripted_server(handler) as server, server.client() as client:
        assert await names(client) == ["a"]


@pytest.mark.parametrize("megabytes", [5, 24])
async def test_a_line_of_many_megabytes_is_one_event(megabytes: int) -> None:
    line = event_line("ADDED", pod("a", data="x" * (megabytes * 2**20)))
    chunks = [line[start : start + 2**18] for start in range(0, len(line), 2**18)]
    async with scripted_server(watch_stream(*chunks, event_line("ADDED", pod("b")))) as server, server.client() as client:
        assert await names(client) == ["a", "b"]


async def test_a_line_that_is_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlop.kube.watch.MAX_LINE_BYTES", 2**20)

    async def endless(exchange: Exchange) -> None:
        await exchange.start_stream()
        while True:
            await exchange.chunk(b"x" * 2**16)

    async with scripted_server(endless) as server, server.client() as client:
        _, error = await until_error(client)
        assert isinstance(error, TransportError)
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_events_split_at_every_byte_are_complete() -> None:
    stream = event_line("ADDED", pod("ä")) + event_line("BOOKMARK", pod("b")) + event_line("DELETED", pod("c"))
    async with (
        scripted_server(watch_stream(*(stream[position : position + 1] for position in range(len(stream))))) as server,
        server.client() as client,
    ):
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
async def test_a_line_that_is_not_an_event_is_an_error(line: bytes) -> None:
    async with scripted_server(watch_stream(event_line("ADDED", pod("a")), line, then=Exchange.stall)) as server, server.client() as client:
        received, error = await until_error(client)
        assert (received, type(error)) == (["a"], MalformedWatchEventError)


@pytest.mark.parametrize("fault", [cut(), reset()], ids=["closed", "reset"])
async def test_a_connection_lost_before_the_headers_is_a_transport_error(fault: Handler) -> None:
    async with scripted_server(fault) as server, server.client() as client:
        _, error = await until_error(client)
        assert isinstance(error, TransportError)


async def test_leaving_a_watch_closes_its_connection() -> None:
    async with scripted_server(watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)) as server, server.client() as client:
        async with client.watch(PODS) as events:
            assert (await anext(events)).decode()["metadata"]["name"] == "a"
            assert server.open_connections == 1
        await asyncio.wait_for(server.closed_by_client.wait(), 10)


async def test_a_cancelled_watch_closes_its_connection() -> None:
    async with scripted_server(watch_stream(event_line("ADDED", pod("a")), then=Exchange.stall)) as server, server.client() as client:
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
    async with scripted_server(stream) as server, server.client() as client, client.watch(PODS) as events:
        await anext(events)
        await client.close()
        with pytest.raises(TransportError):
            await anext(events)


async def test_the_options_of_a_watch_become_query_parameters() -> None:
    async with scripted_server(watch_stream()) as server, server.client() as client:
        await names(client, namespace="lab", resource_version="12", label_selector="a=b,c", send_initial_events=True, timeout_seconds=40)
        exchange = server.exchanges[0]
        assert exchange.path == "/api/v1/namespaces/lab/pods"
        assert set(exchange.query.split("&")) == {
            "watch=true",
            "resourceVersion=12",
            "labelSelector=a%3Db%2Cc",
            "allowWatchBookmarks=true",
            "sendInitialEvents=true",
            "resourceVersionMatch=NotOlderThan",
            "timeoutSeconds=40",
        }


async def test_a_watch_does_not_use_an_in_flight_slot() -> None:
    script: tuple[Handler, ...] = (watch_stream(then=Exchange.stall), respond(json=pod("a")))
    async with scripted_server(*script) as server, server.client(reads_in_flight=1) as client, client.watch(PODS):
        assert await client.get(PODS, "a", namespace="lab") == pod("a")
