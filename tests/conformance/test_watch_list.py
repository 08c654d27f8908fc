"""Bookmarks and streaming lists (`sendInitialEvents`)."""

from __future__ import annotations

import asyncio

from dlop.kube.errors import InvalidError
from dlop.kube.resources import LEASES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import lease
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, over_https, resource_version_of
from tests.kubernetes_versions import STREAMING_LISTS, since

pytestmark = over_https(reason="a watch is a stream whose chunks can split events")

NEEDS_STREAMING_LISTS = since(STREAMING_LISTS, reason="the server streams lists by default")
INITIAL_EVENTS_END = "k8s.io/initial-events-end"


@NEEDS_STREAMING_LISTS
async def test_a_streaming_list_sends_existing_objects_and_then_a_bookmark(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.create(LEASES, lease(name))
    newest = await api.list(LEASES)
    async with api.watch(LEASES, send_initial_events=True, bookmarks=True) as watch:
        assert sorted(await watch.next_changes(3)) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        event_type, bookmark = await watch.next()
    assert event_type is WatchEventType.BOOKMARK
    assert bookmark["metadata"]["annotations"] == {INITIAL_EVENTS_END: "true"}
    assert resource_version_of(bookmark) >= resource_version_of(newest)


@NEEDS_STREAMING_LISTS
async def test_an_empty_streaming_list_sends_the_bookmark_immediately(api: Api) -> None:
    async with api.watch(LEASES, send_initial_events=True, bookmarks=True) as watch:
        event_type, bookmark = await watch.next()
    assert (event_type, bookmark["metadata"]["annotations"]) == (WatchEventType.BOOKMARK, {INITIAL_EVENTS_END: "true"})


@NEEDS_STREAMING_LISTS
async def test_a_bookmark_has_only_a_kind_a_resource_version_and_annotations(api: Api) -> None:
    async with api.watch(LEASES, send_initial_events=True, bookmarks=True) as watch:
        _, bookmark = await watch.next()
    assert (bookmark["apiVersion"], bookmark["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert {key for key, value in bookmark["metadata"].items() if value is not None} == {"resourceVersion", "annotations"}


@NEEDS_STREAMING_LISTS
async def test_a_streaming_list_continues_as_a_watch(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    async with api.watch(WIDGETS, send_initial_events=True, bookmarks=True) as watch:
        assert await watch.next_changes(1) == [("ADDED", "a")]
        event_type, _ = await watch.next()
        assert event_type is WatchEventType.BOOKMARK
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}})
        await api.delete(WIDGETS, "a")
        assert await watch.next_changes(2) == [("MODIFIED", "a"), ("DELETED", "a")]


@NEEDS_STREAMING_LISTS
async def test_a_streaming_list_applies_its_selector(api: Api) -> None:
    await api.create(LEASES, lease("a", labels={"x": "y"}))
    await api.create(LEASES, lease("b"))
    async with api.watch(LEASES, send_initial_events=True, bookmarks=True, label_selector="x=y") as watch:
        assert await watch.next_changes(1) == [("ADDED", "a")]
        assert (await watch.next())[0] is WatchEventType.BOOKMARK


@NEEDS_STREAMING_LISTS
async def test_a_streaming_list_is_at_least_as_new_as_its_resource_version(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    version = created["metadata"]["resourceVersion"]
    async with api.watch(LEASES, send_initial_events=True, bookmarks=True, resource_version=version) as watch:
        assert await watch.next() == (WatchEventType.ADDED, created)
        assert resource_version_of((await watch.next())[1]) >= int(version)


@NEEDS_STREAMING_LISTS
async def test_a_watch_can_be_resumed_from_a_bookmark(api: Api) -> None:
    async with api.watch(LEASES, send_initial_events=True, bookmarks=True) as watch:
        _, bookmark = await watch.next()
    await api.create(LEASES, lease("a"))
    async with api.watch(LEASES, resource_version=bookmark["metadata"]["resourceVersion"]) as watch:
        assert await watch.next_changes(1) == [("ADDED", "a")]


async def test_a_watch_with_bookmarks_sends_one_before_it_ends(api: Api) -> None:
    with_bookmarks = api.watch(LEASES, bookmarks=True, timeout_seconds=3)
    without_bookmarks = api.watch(LEASES, bookmarks=False, timeout_seconds=3)
    async with with_bookmarks as first, without_bookmarks as second:
        created = await api.client.create(LEASES, lease(api.namespace), namespace="default")
        bookmarks, events = await asyncio.gather(first.read_to_end(), second.read_to_end())
    assert events == []
    assert {event_type for event_type, _ in bookmarks} == {WatchEventType.BOOKMARK}
    assert resource_version_of(bookmarks[-1][1]) >= resource_version_of(created)


@NEEDS_STREAMING_LISTS
async def test_a_streaming_list_requires_a_resource_version_match(api: Api) -> None:
    query = (("watch", "true"), ("sendInitialEvents", "true"), ("timeoutSeconds", "1"))
    error = await expect_error(api.client.call("GET", api.path(LEASES), query=query), InvalidError)
    message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "resourceVersionMatch"}]


async def test_send_initial_events_is_forbidden_for_a_list(api: Api) -> None:
    error = await expect_error(api.client.call("GET", api.path(LEASES), query=(("sendInitialEvents", "true"),)), InvalidError)
    message = "Forbidden: sendInitialEvents is forbidden for list"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "sendInitialEvents"}]


async def test_a_resource_version_match_is_forbidden_for_a_plain_watch(api: Api) -> None:
    query = (("watch", "true"), ("resourceVersionMatch", "NotOlderThan"), ("timeoutSeconds", "1"))
    error = await expect_error(api.client.call("GET", api.path(LEASES), query=query), InvalidError)
    message = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "resourceVersionMatch"}]


async def test_all_watches_receive_the_same_events(api: Api) -> None:
    async def read_changes(ready: asyncio.Barrier) -> list[tuple[str, str]]:
        async with api.watch(LEASES) as watch:
            await ready.wait()
            return await watch.next_changes(3)

    ready = asyncio.Barrier(6)
    tasks = [asyncio.create_task(read_changes(ready)) for _ in range(5)]
    await ready.wait()
    for name in ("a", "b"):
        await api.create(LEASES, lease(name))
    await api.delete(LEASES, "a")
    results = await asyncio.gather(*tasks)
    assert results == [[("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]] * 5
