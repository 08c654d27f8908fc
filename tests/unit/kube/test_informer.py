"""The informer's promises, one by one, on virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.errors import ForbiddenError
from dlop.kube.informer import Informer, InformerTimings
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, StreamResponse
from dlop.testing.virtual_time import virtual_time
from tests.toy_server import Cut, Fault, ToyServer, following, names, settle


@virtual_time
async def test_one_request_lists_and_goes_on_watching_where_the_server_streams_lists() -> None:
    server = ToyServer()
    server.put("a")
    async with following(server) as informer:
        server.put("b")
        await settle()
        assert names(informer) == ["a", "b"]
    assert server.kinds == ["stream"]


@virtual_time
async def test_a_server_that_does_not_stream_lists_is_asked_for_pages_and_never_asked_again_to_stream() -> None:
    server = ToyServer(streams_lists=False)
    for number in range(7):
        server.put(f"pod-{number}")
    async with following(server) as informer:
        await settle()
        assert len(informer.cache) == 7
        server.compact()
        server.cut(Cut.GONE)
        await asyncio.sleep(5)
    assert server.kinds == ["stream", "list", "list", "list", "watch", "list", "list", "list", "watch"]
    assert server.requests[1][0] == 0.0, "the other way is tried at once"


class OldServer(ToyServer):
    """A server that has never heard of streamed lists and ignores that it is asked for one."""

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        query = tuple(pair for pair in request.query if pair[0] != "sendInitialEvents")
        async with super().stream(dataclasses.replace(request, query=query), idle_timeout_seconds=idle_timeout_seconds) as response:
            yield response


@virtual_time
async def test_a_server_that_ignores_the_question_for_a_streamed_list_is_asked_for_pages() -> None:
    server = OldServer()
    server.put("a")
    async with following(server, synced=False) as informer, asyncio.timeout(100):
        await asyncio.sleep(25)
        server.put("b")  # a busy stream is never quiet
        await asyncio.sleep(25)
        server.put("c")
        await informer.wait_synced()
        assert names(informer) == ["a", "b", "c"]
    assert server.kinds == ["watch", "list", "watch"]


@virtual_time
async def test_a_watch_that_ends_in_its_own_time_is_taken_up_without_a_list_or_a_pause() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.put("a")
        await asyncio.sleep(700)
        server.put("b")
        await settle()
        assert names(informer) == ["a", "b"]
    assert server.kinds == ["stream", "watch"]
    (_, opened), (reopened, query) = zip((at for at, _ in server.requests), server.queries, strict=True)
    assert reopened == int(opened["timeoutSeconds"])
    assert query["resourceVersion"] == str(server.version - 1)


@virtual_time
async def test_watches_ask_for_a_random_time_between_five_and_ten_minutes_and_for_bookmarks() -> None:
    server = ToyServer()
    async with following(server):
        await asyncio.sleep(20_000)
    asked = [int(query["timeoutSeconds"]) for query in server.queries]
    assert len(asked) > 30
    assert len(set(asked)) > 20
    assert min(asked) >= 300
    assert max(asked) <= 600
    assert all(query["allowWatchBookmarks"] == "true" for query in server.queries)


@virtual_time
async def test_bookmarks_advance_the_version_of_a_quiet_cache() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.version += 5  # something happened to other resources
        await asyncio.sleep(61)
        assert informer.cache.resource_version == server.version


@virtual_time
async def test_deletions_missed_while_disconnected_come_as_tombstones_of_the_last_known_state() -> None:
    server = ToyServer()
    gone, kept = server.put("gone"), server.put("kept")
    changes: list[CacheChange[Pod]] = []
    async with following(server, handlers=[changes.append]) as informer:
        server.faults.append(Fault.REFUSED)
        server.cut(Cut.BROKEN)
        await settle()
        server.delete("gone")
        server.put("kept")
        server.compact()
        server.put("new")
        await asyncio.sleep(10)
        assert names(informer) == ["kept", "new"]
    told = [(change.object.metadata.name, change.old is not None, change.new is not None, change.unseen) for change in changes[2:]]
    assert told == [("gone", True, False, True), ("kept", True, True, False), ("new", False, True, False)]
    assert changes[2].object.metadata.resource_version == gone["metadata"]["resourceVersion"]
    assert changes[3].old is not None
    assert changes[3].old.metadata.resource_version == kept["metadata"]["resourceVersion"]


@virtual_time
async def test_a_relist_asks_for_nothing_older_than_what_was_seen() -> None:
    server = ToyServer()
    async with following(server):
        server.put("a")
        await settle()
        server.cut(Cut.GONE)
        await asyncio.sleep(5)
    assert server.kinds == ["stream", "stream"]
    assert "resourceVersion" not in server.queries[0], "the first list is a consistent read"
    assert server.queries[1]["resourceVersion"] == str(server.version)
    assert server.queries[1]["resourceVersionMatch"] == "NotOlderThan"


@virtual_time
async def test_a_server_that_lags_behind_does_not_take_the_cache_back_in_time() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.put("a")
        await settle()
        server.lag_behind()
        server._visible = 1
        server.cut(Cut.GONE)
        await asyncio.sleep(60)
        assert names(informer) == ["a"]
        assert informer.cache.resource_version == server.version
    assert "resourceVersion" not in server.queries[-1] or server.kinds[-1] == "watch"


@virtual_time
async def test_handlers_know_the_first_list_from_what_happens_later() -> None:
    server = ToyServer()
    server.put("before")
    changes: list[CacheChange[Pod]] = []
    async with following(server, handlers=[changes.append]):
        server.put("after")
        await settle()
    assert [(change.object.metadata.name, change.initial) for change in changes] == [("before", True), ("after", False)]


@virtual_time
async def test_a_late_handler_is_told_of_what_is_there_and_then_of_every_change() -> None:
    server = ToyServer()
    server.put("before")
    changes: list[CacheChange[Pod]] = []
    async with following(server) as informer:
        informer.add_handler(changes.append)
        server.put("after")
        await settle()
    assert [(change.object.metadata.name, change.initial) for change in changes] == [("before", True), ("after", False)]


@virtual_time
async def test_a_handler_that_is_added_amid_a_long_first_list_is_told_of_everything_once() -> None:
    server = ToyServer()
    for number in range(2000):
        server.put(f"pod-{number}")
    told: list[str] = []
    early: list[str] = []
    begun = asyncio.Event()

    def first(change: CacheChange[Pod]) -> None:
        early.append(change.object.metadata.name)
        begun.set()

    async with following(server, synced=False, handlers=[first]) as informer:
        await begun.wait()
        assert not informer.synced
        informer.add_handler(lambda change: told.append(change.object.metadata.name))
        await informer.wait_synced()
    assert len(told) == len(set(told)) == 2000
    assert sorted(early) == sorted(told)


@virtual_time
async def test_a_handler_sees_the_cache_as_the_change_left_it() -> None:
    server = ToyServer()
    seen: list[bool] = []
    async with following(server) as informer:

        def handler(change: CacheChange[Pod]) -> None:
            metadata = change.object.metadata
            seen.append(informer.cache.get(metadata.name, namespace="ns") is change.new)
            seen.append(informer.cache.resource_version >= int(metadata.resource_version))

        informer.add_handler(handler)
        server.put("a")
        server.delete("a")
        server.put("a")
        await settle()
    assert seen == [True] * 6


@virtual_time
async def test_whoever_waits_for_a_version_wakes_after_the_handlers() -> None:
    server = ToyServer()
    order: list[str] = []
    async with following(server, handlers=[lambda _: order.append("handler")]) as informer:
        informer.cache.reached(server.version + 1).add_done_callback(lambda _: order.append("waiter"))
        server.put("a")
        await settle()
    assert order == ["handler", "waiter"]


@virtual_time
async def test_a_failing_handler_hurts_neither_the_others_nor_the_cache() -> None:
    server = ToyServer()
    server.put("a")
    told: list[str] = []

    def fail(change: CacheChange[Pod]) -> None:
        raise RuntimeError(f"no idea what to do with {change.object.metadata.name}")

    async with following(server, handlers=[fail, lambda change: told.append(change.object.metadata.name)]) as informer:
        server.put("b")
        await settle()
        assert names(informer) == told == ["a", "b"]
    assert server.kinds == ["stream"]


@pytest.mark.parametrize("metadata", [{"name": 7}, {"name": "x", "labels": 3}, {"namespace": "ns"}, None])
@virtual_time
async def test_an_object_that_makes_no_sense_is_skipped_and_counted(metadata: Any) -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.version += 1
        server.history.append((server.version, "ADDED", {"metadata": metadata}))
        server.put("b")
        await settle()
        assert names(informer) == ["b"]
        assert informer.malformed_count == 1
    assert server.kinds == ["stream"], "the stream goes on"


@virtual_time
async def test_a_stream_that_has_gone_quiet_is_cut_and_taken_up_where_it_stopped() -> None:
    server = ToyServer()
    async with following(server, pace=InformerTimings(quiet_seconds=150)) as informer:
        server.silence()
        server.put("a")
        await asyncio.sleep(149)
        assert (names(informer), server.kinds) == ([], ["stream"])
        await asyncio.sleep(5)
        assert (names(informer), server.kinds) == (["a"], ["stream", "watch"])
    assert server.open_streams == 0


@virtual_time
async def test_a_streamed_list_that_hangs_gives_way_to_pages() -> None:
    server = ToyServer()
    server.put("a")
    server.faults.append(Fault.SILENT)
    async with following(server) as informer:
        assert names(informer) == ["a"]
    assert server.kinds[:2] == ["stream", "list"]
    assert server.requests[1][0] < 35


@virtual_time
async def test_a_quiet_stream_that_is_cut_again_and_again_is_taken_up_soon_and_without_a_list() -> None:
    server = ToyServer()
    async with following(server):
        for _ in range(10):
            await asyncio.sleep(50)
            server.cut(Cut.BROKEN)
            await asyncio.sleep(5)
            assert server.open_streams == 1
    assert server.kinds == ["stream", *["watch"] * 10]


@virtual_time
async def test_a_watch_that_the_server_ends_at_once_is_not_reopened_in_a_hot_loop() -> None:
    server = ToyServer()
    server.faults.extend([Fault.ENDED] * 1000)
    async with following(server, synced=False):
        await asyncio.sleep(3600)
    assert 50 < len(server.requests) < 200


@virtual_time
async def test_a_server_that_is_away_is_asked_ever_more_seldom_and_not_for_a_list_when_it_is_back() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.faults.extend([Fault.REFUSED] * 8)
        server.cut(Cut.BROKEN)
        await asyncio.sleep(600)
        server.put("a")
        await settle()
        assert names(informer) == ["a"]
        assert informer.last_error == ""
    assert set(server.kinds[1:]) == {"watch"}
    pauses = [later - earlier for (earlier, _), (later, _) in itertools.pairwise(server.requests)]
    for pause, shortest in zip(pauses, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30, 30], strict=True):
        assert shortest <= pause <= 2 * shortest


@virtual_time
async def test_retry_after_is_honoured() -> None:
    server = ToyServer()
    async with following(server):
        server.faults.append(Fault.TOO_MANY)
        server.cut(Cut.CLEAN)
        await asyncio.sleep(0)
        await asyncio.sleep(20)
    _, refused, accepted = (at for at, _ in server.requests)
    assert accepted - refused >= 2


@virtual_time
async def test_a_refusal_for_good_is_told_in_a_sentence_and_ends_when_the_right_is_given() -> None:
    server = ToyServer()
    server.put("a")
    server.faults.extend([Fault.FORBIDDEN] * 5)
    async with following(server, synced=False) as informer:
        await asyncio.sleep(10)
        assert not informer.synced
        assert informer.last_error == 'pods cannot be followed: pods is forbidden: User "dlop" cannot list resource "pods"'
        await informer.wait_synced()
        assert informer.last_error == ""
        assert names(informer) == ["a"]


@virtual_time
async def test_health_shows_how_long_ago_the_server_was_heard() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.silence()
        await asyncio.sleep(100)
        assert informer.last_contact_seconds_ago == 100
    idle: Informer[Pod] = Informer(Client(server), PODS, Pod, rng=Random(1))
    assert idle.last_contact_seconds_ago is None


@pytest.mark.parametrize("turns", range(12))
@virtual_time
async def test_cancelling_at_any_moment_closes_the_stream(turns: int) -> None:
    server = ToyServer()
    server.put("a")
    async with following(server, synced=False):
        for _ in range(turns):
            await asyncio.sleep(0)
    assert server.open_streams == 0


@virtual_time
async def test_a_bug_in_the_way_of_an_event_is_survived_by_listing_anew() -> None:
    server = ToyServer()
    async with following(server) as informer:
        put, informer.cache.put = informer.cache.put, None  # type: ignore[method-assign, assignment]
        server.put("a")
        await settle()
        informer.cache.put = put  # type: ignore[method-assign]
        await asyncio.sleep(10)
        assert names(informer) == ["a"]
    assert server.kinds == ["stream", "stream"]


@virtual_time
async def test_a_refresh_shows_what_the_server_has_even_if_the_stream_hangs() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.silence()
        server.put("a")
        await informer.refresh()
        assert names(informer) == ["a"]
        server.put("b")
        await settle()
        assert names(informer) == ["a", "b"], "and goes on from there"
    assert server.kinds == ["stream", "stream"]
    assert server.requests[1][0] == 0.0
    assert "resourceVersion" not in server.queries[1]


@virtual_time
async def test_many_refreshes_at_once_are_one_list() -> None:
    server = ToyServer()
    async with following(server) as informer:
        await asyncio.gather(*(informer.refresh() for _ in range(5)))
        await settle()
    assert server.kinds == ["stream", "stream"]


@virtual_time
async def test_a_refresh_that_is_asked_for_amid_a_list_is_another_list() -> None:
    server = ToyServer(streams_lists=False, page_size=10_000)
    for number in range(2000):
        server.put(f"pod-{number}")
    async with following(server) as informer:
        first = asyncio.create_task(informer.refresh())
        while server.kinds.count("list") < 2:  # noqa: ASYNC110 - the moment is amid the list
            await asyncio.sleep(0)
        server.put("new")
        await informer.refresh()
        assert first.done()
        assert informer.cache.get("new", namespace="ns") is not None
    assert server.kinds.count("list") == 3


class FarAwayServer(ToyServer):
    """A server whose answers are a second old when they arrive."""

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
async def test_a_refresh_is_not_served_by_a_list_that_was_asked_for_before_it() -> None:
    server = FarAwayServer()
    async with following(server) as informer:
        earlier = asyncio.create_task(informer.refresh())
        await asyncio.sleep(0.5)
        server.silence()
        server.put("a")
        await informer.refresh()
        assert earlier.done()
        assert names(informer) == ["a"]


@virtual_time
async def test_a_refresh_that_is_asked_for_while_a_watch_is_being_opened_does_not_wait_for_an_event() -> None:
    server = FarAwayServer()
    async with following(server) as informer:
        await asyncio.sleep(5)
        server.cut(Cut.CLEAN)
        await asyncio.sleep(0.5)
        async with asyncio.timeout(5):
            await informer.refresh()
    assert server.kinds == ["stream", "watch", "stream"]


@virtual_time
async def test_a_refresh_that_fails_says_so_and_the_informer_goes_on() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.silence()
        server.put("a")
        server.faults.append(Fault.FORBIDDEN)
        with pytest.raises(ForbiddenError):
            await informer.refresh()
        await asyncio.sleep(200)
        assert names(informer) == ["a"]


@virtual_time
async def test_a_refresh_that_was_given_up_is_forgotten() -> None:
    server = ToyServer()
    async with following(server) as informer:
        server.faults.append(Fault.REFUSED)
        server.cut(Cut.BROKEN)
        await settle()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(informer.refresh(), 0.1)
        await asyncio.sleep(10)
        assert server.kinds == ["stream", "watch", "watch"]


@pytest.mark.parametrize("streams_lists", [True, False])
@virtual_time
async def test_other_tasks_get_their_turns_during_a_long_list_and_a_long_relist(streams_lists: bool) -> None:
    server = ToyServer(streams_lists=streams_lists, page_size=10_000)
    for number in range(5000):
        server.put(f"pod-{number}")
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    async with following(server) as informer:
        assert turns >= 20, "ten slices of decoding, ten of telling the handlers"
        server.history = [(at, kind, {**body, "metadata": {**body["metadata"], "uid": "other"}}) for at, kind, body in server.history]
        turns = 0
        await informer.refresh()
        assert turns >= 10
        assert {found.metadata.uid for found in informer.cache} == {"other"}
        other.cancel()
        await asyncio.wait([other])
