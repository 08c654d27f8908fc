"""Watches over time: bookmarks, time-outs, selectors and slow readers, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from dlop.embedded.apiserver.store import Store
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.errors import GoneError
from dlop.kube.resources import CONFIG_MAPS, SECRETS, Resource
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEvent, WatchEventType
from dlop.testing.virtual_time import virtual_time

_BOOKMARK = WatchEventType.BOOKMARK


@asynccontextmanager
async def client_of_a_fresh_cluster(*, history_limit: int = 20_000) -> AsyncIterator[Client]:
    async with EmbeddedCluster(store=Store(history_limit=history_limit)) as cluster:
        yield cluster.client()


async def create(client: Client, name: str, *, resource: Resource = CONFIG_MAPS, **labels: str) -> str:
    body: JsonObject = {"metadata": {"name": name, "labels": labels}}
    version: str = (await client.create(resource, body, namespace="default"))["metadata"]["resourceVersion"]
    return version


async def relabel(client: Client, name: str, **labels: str | None) -> None:
    await client.patch(CONFIG_MAPS, name, {"metadata": {"labels": labels}}, namespace="default")


def now() -> float:
    return asyncio.get_running_loop().time()


def version_of(event: WatchEvent) -> str:
    version: str = event.decode()["metadata"]["resourceVersion"]
    return version


def shown(event: WatchEvent) -> tuple[str, str]:
    return event.type, event.decode()["metadata"]["name"]


@virtual_time
async def test_a_quiet_watch_sends_a_bookmark_a_minute_and_one_shortly_before_its_end() -> None:
    async with client_of_a_fresh_cluster() as client:
        seen = await create(client, "a")
        began, heard = now(), list[float]()
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen, timeout_seconds=200) as events:
            async for event in events:
                assert event.type is _BOOKMARK
                heard.append(now() - began)
        assert heard == pytest.approx([60, 120, 180, 198])
        assert now() - began == pytest.approx(200)


@virtual_time
async def test_a_watch_without_bookmarks_says_nothing_when_nothing_happens() -> None:
    async with client_of_a_fresh_cluster() as client:
        seen = await create(client, "a")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen, timeout_seconds=300, bookmarks=False) as events:
            assert [event async for event in events] == []


@virtual_time
async def test_bookmarks_follow_the_changes_of_other_resources() -> None:
    async with client_of_a_fresh_cluster() as client:
        seen = await create(client, "a")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen, timeout_seconds=100) as events:
            newer = await create(client, "s", resource=SECRETS)
            bookmark = await anext(events)
            assert bookmark.type is _BOOKMARK
            assert int(version_of(bookmark)) >= int(newer)


@virtual_time
async def test_a_bookmark_never_promises_what_was_not_sent_yet() -> None:
    async with client_of_a_fresh_cluster() as client:
        seen = await create(client, "a")
        for number in range(1_200):
            await create(client, f"b-{number}")
        sent = 0
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen, timeout_seconds=100) as events:
            async for event in events:
                if event.type is _BOOKMARK:
                    break
                sent += 1
                newest = version_of(event)
        assert sent == 1_200
        assert int(version_of(event)) >= int(newest)


@virtual_time
async def test_a_long_streamed_list_ends_with_one_bookmark_after_its_last_object() -> None:
    async with client_of_a_fresh_cluster() as client:
        for number in range(1_100):
            await create(client, f"a-{number:04}")
        names = []
        async with client.watch(CONFIG_MAPS, namespace="default", send_initial_events=True) as events:
            async for event in events:
                if event.type is _BOOKMARK:
                    break
                names.append(event.decode()["metadata"]["name"])
        assert names == [f"a-{number:04}" for number in range(1_100)]
        assert event.decode()["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@virtual_time
async def test_an_object_that_begins_to_match_is_added_and_one_that_ceases_to_is_deleted() -> None:
    async with client_of_a_fresh_cluster() as client:
        seen = await create(client, "outside")
        async with client.watch(
            CONFIG_MAPS, namespace="default", resource_version=seen, label_selector="on=yes", bookmarks=False
        ) as events:
            await create(client, "a", on="yes")
            await create(client, "never", on="no")
            await relabel(client, "outside", on="yes")
            await relabel(client, "a", other="1")
            await relabel(client, "a", on="no")
            await relabel(client, "a", on="yes")
            await client.delete(CONFIG_MAPS, "a", namespace="default")
            heard = [shown(await anext(events)) for _ in range(6)]
        assert heard == [
            ("ADDED", "a"),
            ("ADDED", "outside"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
            ("DELETED", "a"),
        ]


@virtual_time
async def test_an_object_that_ceases_to_match_is_shown_as_it_was_under_the_version_at_which_it_went() -> None:
    async with client_of_a_fresh_cluster() as client:
        seen = await create(client, "a", on="yes")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen, label_selector="on=yes") as events:
            await relabel(client, "a", on=None)
            gone = (await anext(events)).decode()
        now_there = await client.get(CONFIG_MAPS, "a", namespace="default")
        assert gone["metadata"]["labels"] == {"on": "yes"}
        assert gone["metadata"]["resourceVersion"] == now_there["metadata"]["resourceVersion"]


@virtual_time
async def test_a_reader_that_falls_behind_what_is_remembered_is_told_so() -> None:
    async with client_of_a_fresh_cluster(history_limit=40) as client:
        seen = await create(client, "first")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
            for number in range(60):
                await create(client, f"a-{number}")
            with pytest.raises(GoneError) as refused:
                await anext(events)
        assert refused.value.status_reason == "Expired"


@virtual_time
async def test_all_watchers_of_a_change_hear_the_same() -> None:
    async with EmbeddedCluster() as cluster:
        client = cluster.client(reads_in_flight=64)
        seen = await create(client, "a")

        async def first_line() -> msgspec.Raw:
            async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
                return (await anext(events)).object

        waiting = [asyncio.create_task(first_line()) for _ in range(20)]
        await asyncio.sleep(1)
        await create(client, "b")
        heard = await asyncio.gather(*waiting)
        assert len({bytes(line) for line in heard}) == 1
