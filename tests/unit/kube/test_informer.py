"""Informer: behavior with a fake API server, on virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from dlop.kube.cache import Cache, CacheChange
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError, TransportError
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, StreamResponse
from dlop.testing.virtual_time import virtual_time
from tests.fake_api_server import Cut, FakeApiServer, Fault, names, run_ready_callbacks, running_informer


@virtual_time
async def test_one_request_lists_and_watches_if_the_server_streams_lists() -> None:
    server = FakeApiServer()
    server.put("a")
    async with running_informer(server) as informer:
        server.put("b")
        await run_ready_callbacks()
        assert names(informer) == ["a", "b"]
    assert server.kinds == ["stream"]


@virtual_time
async def test_a_server_without_streaming_lists_gets_paged_lists_from_then_on() -> None:
    server = FakeApiServer(streams_lists=False)
    for number in range(7):
        server.put(f"pod-{number}")
    async with running_informer(server) as informer:
        await run_ready_callbacks()
        assert len(informer.cache) == 7
        server.compact()
        server.cut(Cut.GONE)
        await asyncio.sleep(5)
    assert server.kinds == ["stream", "list", "list", "list", "watch", "list", "list", "list", "watch"]
    assert server.requests[1][0] == 0.0, "the fallback is tried at once"


class OldServer(FakeApiServer):
    """Ignores `sendInitialEvents`, as servers without streaming lists do."""

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        query = tuple(pair for pair in request.query if pair[0] != "sendInitialEvents")
        async with super().stream(dataclasses.replace(request, query=query), idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response


@virtual_time
async def test_a_server_that_ignores_send_initial_events_gets_a_paged_list() -> None:
    server = OldServer()
    server.put("a")
    async with running_informer(server, synced=False) as informer, asyncio.timeout(100):
        await asyncio.sleep(25)
        server.put("b")  # events keep the idle timeout from firing
        await asyncio.sleep(25)
        server.put("c")
        await informer.wait_synced()
        assert names(informer) == ["a", "b", "c"]
    assert server.kinds == ["watch", "list", "watch"]


@virtual_time
async def test_a_watch_that_ends_normally_is_resumed_without_a_list_or_a_delay() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.put("a")
        await asyncio.sleep(700)
        server.put("b")
        await run_ready_callbacks()
        assert names(informer) == ["a", "b"]
    assert server.kinds == ["stream", "watch"]
    (_, opened), (reopened, query) = zip((at for at, _ in server.requests), server.queries, strict=True)
    assert reopened == int(opened["timeoutSeconds"])
    assert query["resourceVersion"] == str(server.version - 1)


@virtual_time
async def test_watches_have_a_random_timeout_of_five_to_ten_minutes_and_bookmarks() -> None:
    server = FakeApiServer()
    async with running_informer(server):
        await asyncio.sleep(20_000)
    timeouts = [int(query["timeoutSeconds"]) for query in server.queries]
    assert len(timeouts) > 30
    assert len(set(timeouts)) > 20
    assert min(timeouts) >= 300
    assert max(timeouts) <= 600
    assert all(query["allowWatchBookmarks"] == "true" for query in server.queries)


@virtual_time
async def test_bookmarks_advance_the_version_of_an_idle_cache() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.version += 5  # other resources have changed
        await asyncio.sleep(61)
        assert informer.cache.resource_version == server.version


@virtual_time
async def test_deletions_missed_while_disconnected_are_reported_with_the_last_known_state() -> None:
    server = FakeApiServer()
    deleted, kept = server.put("deleted"), server.put("kept")
    changes: list[CacheChange[Pod]] = []
    async with running_informer(server, handlers=[changes.append]) as informer:
        server.faults.append(Fault.REFUSED)
        server.cut(Cut.BROKEN)
        await run_ready_callbacks()
        server.delete("deleted")
        server.put("kept")
        server.compact()
        server.put("new")
        await asyncio.sleep(10)
        assert names(informer) == ["kept", "new"]
    reported = [(change.object.metadata.name, change.old is not None, change.new is not None) for change in changes[2:]]
    assert reported == [("deleted", True, False), ("kept", True, True), ("new", False, True)]
    assert changes[2].object.metadata.resource_version == deleted["metadata"]["resourceVersion"]
    assert changes[3].old is not None
    assert changes[3].old.metadata.resource_version == kept["metadata"]["resourceVersion"]


@virtual_time
async def test_a_relist_is_not_older_than_the_cache() -> None:
    server = FakeApiServer()
    async with running_informer(server):
        server.put("a")
        await run_ready_callbacks()
        server.cut(Cut.GONE)
        await asyncio.sleep(5)
    assert server.kinds == ["stream", "stream"]
    assert "resourceVersion" not in server.queries[0], "the first list is a consistent read"
    assert server.queries[1]["resourceVersion"] == str(server.version)
    assert server.queries[1]["resourceVersionMatch"] == "NotOlderThan"


@virtual_time
async def test_a_lagging_server_does_not_lower_the_version_of_the_cache() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.put("a")
        await run_ready_callbacks()
        server.lag_behind()
        server._visible = 1
        server.cut(Cut.GONE)
        await asyncio.sleep(60)
        assert names(informer) == ["a"]
        assert informer.cache.resource_version == server.version
    assert "resourceVersion" not in server.queries[-1] or server.kinds[-1] == "watch"


@virtual_time
async def test_changes_of_the_first_list_are_marked_initial() -> None:
    server = FakeApiServer()
    server.put("before")
    changes: list[CacheChange[Pod]] = []
    async with running_informer(server, handlers=[changes.append]):
        server.put("after")
        await run_ready_callbacks()
    assert [(change.object.metadata.name, change.initial) for change in changes] == [("before", True), ("after", False)]


@virtual_time
async def test_the_cache_contains_a_change_when_its_handler_runs() -> None:
    server = FakeApiServer()
    consistent: list[bool] = []
    caches: list[Cache[Pod]] = []

    def handler(change: CacheChange[Pod]) -> None:
        metadata = change.object.metadata
        consistent.append(caches[0].get(metadata.name, namespace="ns") is change.new)
        consistent.append(caches[0].resource_version >= int(metadata.resource_version))

    async with running_informer(server, handlers=[handler]) as informer:
        caches.append(informer.cache)
        server.put("a")
        server.delete("a")
        server.put("a")
        await run_ready_callbacks()
    assert consistent == [True] * 6


@virtual_time
async def test_waiters_for_a_version_wake_after_the_handlers() -> None:
    server = FakeApiServer()
    order: list[str] = []
    async with running_informer(server, handlers=[lambda _: order.append("handler")]) as informer:
        informer.cache.wait_for_version(server.version + 1).add_done_callback(lambda _: order.append("waiter"))
        server.put("a")
        await run_ready_callbacks()
    assert order == ["handler", "waiter"]


@virtual_time
async def test_a_failing_handler_affects_neither_other_handlers_nor_the_cache() -> None:
    server = FakeApiServer()
    server.put("a")
    notified: list[str] = []

    def fail(change: CacheChange[Pod]) -> None:
        raise RuntimeError(f"cannot handle {change.object.metadata.name}")

    async with running_informer(server, handlers=[fail, lambda change: notified.append(change.object.metadata.name)]) as informer:
        server.put("b")
        await run_ready_callbacks()
        assert names(informer) == notified == ["a", "b"]
    assert server.kinds == ["stream"]


@pytest.mark.parametrize("metadata", [{"name": 7}, {"name": "x", "labels": 3}, {"namespace": "ns"}, None])
@virtual_time
async def test_a_malformed_object_is_skipped_and_counted(metadata: Any) -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.version += 1
        server.history.append((server.version, "ADDED", {"metadata": metadata}))
        server.put("b")
        await run_ready_callbacks()
        assert names(informer) == ["b"]
        assert informer.malformed_count == 1
    assert server.kinds == ["stream"], "the stream continues"


@virtual_time
async def test_an_idle_stream_is_closed_and_resumed_where_it_stopped() -> None:
    server = FakeApiServer()
    async with running_informer(server, timings=InformerTimings(idle_timeout_seconds=150)) as informer:
        server.silence()
        server.put("a")
        await asyncio.sleep(149)
        assert (names(informer), server.kinds) == ([], ["stream"])
        await asyncio.sleep(5)
        assert (names(informer), server.kinds) == (["a"], ["stream", "watch"])
    assert server.open_streams == 0


@virtual_time
async def test_a_streaming_list_that_hangs_is_replaced_by_a_paged_list() -> None:
    server = FakeApiServer()
    server.put("a")
    server.faults.append(Fault.SILENT)
    async with running_informer(server) as informer:
        assert names(informer) == ["a"]
    assert server.kinds[:2] == ["stream", "list"]
    assert server.requests[1][0] < 35


@virtual_time
async def test_an_idle_stream_that_breaks_repeatedly_is_resumed_soon_and_without_a_list() -> None:
    server = FakeApiServer()
    async with running_informer(server):
        for _ in range(10):
            await asyncio.sleep(50)
            server.cut(Cut.BROKEN)
            await asyncio.sleep(5)
            assert server.open_streams == 1
    assert server.kinds == ["stream", *["watch"] * 10]


@virtual_time
async def test_a_watch_that_the_server_ends_at_once_is_not_reopened_in_a_hot_loop() -> None:
    server = FakeApiServer()
    server.faults.extend([Fault.ENDED] * 1000)
    async with running_informer(server, synced=False):
        await asyncio.sleep(3600)
    assert 50 < len(server.requests) < 200


@virtual_time
async def test_a_server_that_fails_is_retried_with_back_off_and_not_relisted_afterwards() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.faults.extend([Fault.ERROR] * 8)
        server.cut(Cut.BROKEN)
        await asyncio.sleep(600)
        server.put("a")
        await run_ready_callbacks()
        assert names(informer) == ["a"]
        assert informer.last_error == ""
    assert set(server.kinds[1:]) == {"watch"}
    delays = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(server.requests)]
    for delay, shortest in zip(delays, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30], strict=True):
        assert shortest <= delay <= 2 * shortest


@virtual_time
async def test_retry_after_is_honored() -> None:
    server = FakeApiServer()
    async with running_informer(server):
        server.faults.append(Fault.TOO_MANY)
        server.cut(Cut.CLEAN)
        await asyncio.sleep(0)
        await asyncio.sleep(20)
    _, rejected, accepted = (at for at, _ in server.requests)
    assert accepted - rejected >= 2


@virtual_time
async def test_missing_permissions_are_reported_until_they_are_granted() -> None:
    server = FakeApiServer()
    server.put("a")
    server.faults.extend([Fault.FORBIDDEN] * 5)
    async with running_informer(server, synced=False) as informer:
        await asyncio.sleep(10)
        assert not informer.synced
        assert informer.last_error == 'cannot list or watch pods: pods is forbidden: User "dlop" cannot list resource "pods"'
        await informer.wait_synced()
        assert informer.last_error == ""
        assert names(informer) == ["a"]


@virtual_time
async def test_an_informer_without_data_or_without_a_server_is_not_overdue() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.faults.extend([Fault.SILENT] * 20)
        server.silence()
        for _ in range(100):
            await asyncio.sleep(30)
            assert informer.overdue_seconds < 2
        server.kill()
        for _ in range(100):
            await asyncio.sleep(30)
            assert informer.overdue_seconds < 2


@virtual_time
async def test_an_informer_that_hangs_or_does_not_run_is_overdue() -> None:
    server = FakeApiServer()
    released = asyncio.Event()

    class HangingClient(Client):
        @asynccontextmanager
        async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # not even the watchdog of the informer ends it
                    await released.wait()
            if released.is_set():
                raise asyncio.CancelledError
            yield

    hanging: Informer[Pod] = Informer(HangingClient(server), PODS, Pod, rng=Random(1))
    task = asyncio.create_task(hanging.run())
    not_running: Informer[Pod] = Informer(Client(server), PODS, Pod, rng=Random(1))
    await asyncio.sleep(630)
    assert (hanging.overdue_seconds, not_running.overdue_seconds) == (600, 630)
    released.set()
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("turns", range(12))
@virtual_time
async def test_cancelling_at_any_moment_closes_the_stream(turns: int) -> None:
    server = FakeApiServer()
    server.put("a")
    async with running_informer(server, synced=False):
        for _ in range(turns):
            await asyncio.sleep(0)
    assert server.open_streams == 0


@virtual_time
async def test_an_unexpected_exception_causes_a_relist() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        put, informer.cache.put = informer.cache.put, None  # type: ignore[method-assign, assignment]
        server.put("a")
        await run_ready_callbacks()
        informer.cache.put = put  # type: ignore[method-assign]
        await asyncio.sleep(10)
        assert names(informer) == ["a"]
    assert server.kinds == ["stream", "stream"]


@virtual_time
async def test_a_refresh_updates_the_cache_even_if_the_stream_hangs() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.silence()
        server.put("a")
        await informer.refresh()
        assert names(informer) == ["a"]
        server.put("b")
        await run_ready_callbacks()
        assert names(informer) == ["a", "b"], "and the watch continues from there"
    assert server.kinds == ["stream", "stream"]
    assert server.requests[1][0] == 0.0
    assert "resourceVersion" not in server.queries[1]


@virtual_time
async def test_concurrent_refreshes_share_one_list() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        await asyncio.gather(*(informer.refresh() for _ in range(5)))
        await run_ready_callbacks()
    assert server.kinds == ["stream", "stream"]


@virtual_time
async def test_a_refresh_during_a_list_causes_another_list() -> None:
    server = FakeApiServer(streams_lists=False, page_size=10_000)
    for number in range(2000):
        server.put(f"pod-{number}")
    async with running_informer(server) as informer:
        first = asyncio.create_task(informer.refresh())
        while server.kinds.count("list") < 2:  # noqa: ASYNC110 - until the list is in progress
            await asyncio.sleep(0)
        server.put("new")
        await informer.refresh()
        assert first.done()
        assert informer.cache.get("new", namespace="ns") is not None
    assert server.kinds.count("list") == 3


class SlowServer(FakeApiServer):
    """Responses arrive one second late."""

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        async with super().stream(request, idle_timeout_seconds=idle_timeout_seconds) as response:
            first = await anext(response.chunks) if "sendInitialEvents" in dict(request.query) else b""
            await asyncio.sleep(1)
            yield StreamResponse(response.status, response.headers, _chained(first, response.chunks))


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for chunk in rest:
        yield chunk


@virtual_time
async def test_a_refresh_is_not_served_by_a_list_that_was_sent_before_it() -> None:
    server = SlowServer()
    async with running_informer(server) as informer:
        earlier = asyncio.create_task(informer.refresh())
        await asyncio.sleep(0.5)
        server.silence()
        server.put("a")
        await informer.refresh()
        assert earlier.done()
        assert names(informer) == ["a"]


@virtual_time
async def test_a_refresh_while_a_watch_is_being_opened_does_not_wait_for_an_event() -> None:
    server = SlowServer()
    async with running_informer(server) as informer:
        await asyncio.sleep(5)
        server.cut(Cut.CLEAN)
        await asyncio.sleep(0.5)
        async with asyncio.timeout(5):
            await informer.refresh()
    assert server.kinds == ["stream", "watch", "stream"]


@virtual_time
async def test_a_failed_refresh_raises_and_the_informer_continues() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.silence()
        server.put("a")
        server.faults.append(Fault.FORBIDDEN)
        with pytest.raises(ForbiddenError):
            await informer.refresh()
        await asyncio.sleep(200)
        assert names(informer) == ["a"]


@virtual_time
async def test_a_cancelled_refresh_is_dropped() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.faults.append(Fault.REFUSED)
        server.cut(Cut.BROKEN)
        await run_ready_callbacks()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(informer.refresh(), 0.1)
        await asyncio.sleep(10)
        assert server.kinds == ["stream", "watch", "watch"]


@virtual_time
async def test_an_informer_that_is_stopped_fails_pending_and_later_refreshes() -> None:
    server = FakeApiServer()
    async with running_informer(server) as informer:
        server.faults.append(Fault.SILENT)
        pending = asyncio.create_task(informer.refresh())
        await run_ready_callbacks()
    async with asyncio.timeout(1):
        with pytest.raises(TransportError, match="the informer of pods was stopped"):
            await pending
        with pytest.raises(TransportError, match="the informer of pods was stopped"):
            await informer.refresh()


@pytest.mark.parametrize("streams_lists", [True, False])
@virtual_time
async def test_other_tasks_run_during_a_long_list_and_a_long_relist(streams_lists: bool) -> None:
    server = FakeApiServer(streams_lists=streams_lists, page_size=10_000)
    for number in range(5000):
        server.put(f"pod-{number}")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(count_turns())
    async with running_informer(server) as informer:
        assert turns >= 20, "ten yields while decoding, ten while calling handlers"
        server.history = [(at, kind, {**body, "metadata": {**body["metadata"], "uid": "other"}}) for at, kind, body in server.history]
        turns = 0
        await informer.refresh()
        assert turns >= 10
        assert {pod.metadata.uid for pod in informer.cache} == {"other"}
        other.cancel()
        await asyncio.wait([other])
