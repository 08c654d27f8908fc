"""Bookmarks, and lists that arrive as a stream (`sendInitialEvents`)."""

from __future__ import annotations

import asyncio

from dlop.kube.errors import InvalidError
from dlop.kube.resources import LEASES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import lease
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, refused, version_of

END = "k8s.io/initial-events-end"


async def test_a_streamed_list_gives_what_is_there_and_then_says_that_it_is_through(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.create(LEASES, lease(name))
    newest = await api.list(LEASES)
    async with api.watching(LEASES, send_initial_events=True, bookmarks=True) as watch:
        assert sorted(await watch.story(3)) == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")]
        kind, mark = await watch.next()
    assert kind is WatchEventType.BOOKMARK
    assert mark["metadata"]["annotations"] == {END: "true"}
    assert version_of(mark) >= version_of(newest)


async def test_a_streamed_list_of_nothing_says_so_at_once(api: Api) -> None:
    async with api.watching(LEASES, send_initial_events=True, bookmarks=True) as watch:
        kind, mark = await watch.next()
    assert (kind, mark["metadata"]["annotations"]) == (WatchEventType.BOOKMARK, {END: "true"})


async def test_a_bookmark_has_the_kind_of_the_watched_objects_and_a_version_alone(api: Api) -> None:
    async with api.watching(LEASES, send_initial_events=True, bookmarks=True) as watch:
        _, mark = await watch.next()
    assert (mark["apiVersion"], mark["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert {key for key, value in mark["metadata"].items() if value is not None} == {"resourceVersion", "annotations"}


async def test_a_streamed_list_goes_on_as_a_watch(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    async with api.watching(WIDGETS, send_initial_events=True, bookmarks=True) as watch:
        assert await watch.story(1) == [("ADDED", "a")]
        kind, _ = await watch.next()
        assert kind is WatchEventType.BOOKMARK
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}})
        await api.delete(WIDGETS, "a")
        assert await watch.story(2) == [("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_streamed_list_keeps_to_its_selector(api: Api) -> None:
    await api.create(LEASES, lease("a", labels={"x": "y"}))
    await api.create(LEASES, lease("b"))
    async with api.watching(LEASES, send_initial_events=True, bookmarks=True, label_selector="x=y") as watch:
        assert await watch.story(1) == [("ADDED", "a")]
        assert (await watch.next())[0] is WatchEventType.BOOKMARK


async def test_a_streamed_list_is_at_least_as_new_as_the_named_version(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    version = created["metadata"]["resourceVersion"]
    async with api.watching(LEASES, send_initial_events=True, bookmarks=True, resource_version=version) as watch:
        assert await watch.next() == (WatchEventType.ADDED, created)
        assert version_of((await watch.next())[1]) >= int(version)


async def test_a_watch_can_be_resumed_from_a_bookmark(api: Api) -> None:
    async with api.watching(LEASES, send_initial_events=True, bookmarks=True) as watch:
        _, mark = await watch.next()
    await api.create(LEASES, lease("a"))
    async with api.watching(LEASES, resource_version=mark["metadata"]["resourceVersion"]) as watch:
        assert await watch.story(1) == [("ADDED", "a")]


async def test_a_watch_that_is_about_to_end_says_how_far_it_came_if_it_was_asked_to(api: Api) -> None:
    asked = api.watching(LEASES, bookmarks=True, timeout_seconds=3)
    silent = api.watching(LEASES, bookmarks=False, timeout_seconds=3)
    async with asked as told, silent as untold:
        elsewhere = await api.client.create(LEASES, lease(api.namespace), namespace="default")
        marks, silence = await asyncio.gather(told.rest(), untold.rest())
    assert silence == []
    assert {kind for kind, _ in marks} == {WatchEventType.BOOKMARK}
    assert version_of(marks[-1][1]) >= version_of(elsewhere)


async def test_a_streamed_list_must_say_how_new_it_has_to_be(api: Api) -> None:
    query = (("watch", "true"), ("sendInitialEvents", "true"), ("timeoutSeconds", "1"))
    error = await refused(api.client.call("GET", api.path(LEASES), query=query), InvalidError)
    message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "resourceVersionMatch"}]


async def test_a_plain_list_cannot_be_streamed(api: Api) -> None:
    error = await refused(api.client.call("GET", api.path(LEASES), query=(("sendInitialEvents", "true"),)), InvalidError)
    message = "Forbidden: sendInitialEvents is forbidden for list"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "sendInitialEvents"}]


async def test_a_plain_watch_cannot_ask_how_new_its_list_has_to_be(api: Api) -> None:
    query = (("watch", "true"), ("resourceVersionMatch", "NotOlderThan"), ("timeoutSeconds", "1"))
    error = await refused(api.client.call("GET", api.path(LEASES), query=query), InvalidError)
    message = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "resourceVersionMatch"}]


async def test_many_watchers_all_hear_the_same_story(api: Api) -> None:
    async def listener(ready: asyncio.Barrier) -> list[tuple[str, str]]:
        async with api.watching(LEASES) as watch:
            await ready.wait()
            return await watch.story(3)

    ready = asyncio.Barrier(6)
    listeners = [asyncio.create_task(listener(ready)) for _ in range(5)]
    await ready.wait()
    for name in ("a", "b"):
        await api.create(LEASES, lease(name))
    await api.delete(LEASES, "a")
    stories = await asyncio.gather(*listeners)
    assert stories == [[("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]] * 5
