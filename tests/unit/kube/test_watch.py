"""Watches of the embedded server: bookmarks, timeouts, selectors and slow readers, on virtual time."""

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
async def embedded_client(*, history_limit: int = 20_000) -> AsyncIterator[Client]:
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


def resource_version_of(event: WatchEvent) -> str:
    version: str = event.decode()["metadata"]["resourceVersion"]
    return version


def type_and_name(event: WatchEvent) -> tuple[str, str]:
    return event.type, event.decode()["metadata"]["name"]


@virtual_time
async def test_an_idle_watch_sends_a_bookmark_per_minute_and_one_shortly_before_its_end() -> None:
    async with embedded_client() as client:
        version = await create(client, "a")
        started_at, bookmark_times = now(), list[float]()
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version, timeout_seconds=200) as events:
            async for event in events:
                assert event.type is _BOOKMARK
                bookmark_times.append(now() - started_at)
        assert bookmark_times == pytest.approx([60, 120, 180, 198])
        assert now() - started_at == pytest.approx(200)


@virtual_time
async def test_an_idle_watch_without_bookmarks_sends_nothing() -> None:
    async with embedded_client() as client:
        version = await create(client, "a")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version, timeout_seconds=300, bookmarks=False) as events:
            assert [event async for event in events] == []


@virtual_time
async def test_bookmarks_advance_with_changes_of_other_resources() -> None:
    async with embedded_client() as client:
        version = await create(client, "a")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version, timeout_seconds=100) as events:
            newer = await create(client, "s", resource=SECRETS)
            bookmark = await anext(events)
            assert bookmark.type is _BOOKMARK
            assert int(resource_version_of(bookmark)) >= int(newer)


@virtual_time
async def test_a_bookmark_is_sent_after_all_events_up_to_its_version() -> None:
    async with embedded_client() as client:
        version = await create(client, "a")
        for number in range(1_200):
            await create(client, f"b-{number}")
        sent = 0
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version, timeout_seconds=100) as events:
            async for event in events:
                if event.type is _BOOKMARK:
                    break
                sent += 1
                newest = resource_version_of(event)
        assert sent == 1_200
        assert int(resource_version_of(event)) >= int(newest)


@virtual_time
async def test_a_long_streaming_list_ends_with_a_bookmark_after_its_last_object() -> None:
    async with embedded_client() as client:
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
async def test_an_object_that_starts_to_match_is_added_and_one_that_stops_is_deleted() -> None:
    async with embedded_client() as client:
        version = await create(client, "outside")
        async with client.watch(
            CONFIG_MAPS, namespace="default", resource_version=version, label_selector="on=yes", bookmarks=False
        ) as events:
            await create(client, "a", on="yes")
            await create(client, "never", on="no")
            await relabel(client, "outside", on="yes")
            await relabel(client, "a", other="1")
            await relabel(client, "a", on="no")
            await relabel(client, "a", on="yes")
            await client.delete(CONFIG_MAPS, "a", namespace="default")
            received = [type_and_name(await anext(events)) for _ in range(6)]
        assert received == [
            ("ADDED", "a"),
            ("ADDED", "outside"),
            ("MODIFIED", "a"),
            ("DELETED", "a"),
            ("ADDED", "a"),
            ("DELETED", "a"),
        ]


@virtual_time
async def test_the_deleted_event_of_an_object_that_stops_matching_has_its_old_state_and_the_new_version() -> None:
    async with embedded_client() as client:
        version = await create(client, "a", on="yes")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version, label_selector="on=yes") as events:
            await relabel(client, "a", on=None)
            deleted = (await anext(events)).decode()
        current = await client.get(CONFIG_MAPS, "a", namespace="default")
        assert deleted["metadata"]["labels"] == {"on": "yes"}
        assert deleted["metadata"]["resourceVersion"] == current["metadata"]["resourceVersion"]


@virtual_time
async def test_a_reader_that_falls_behind_the_history_gets_an_expired_error() -> None:
    async with embedded_client(history_limit=40) as client:
        version = await create(client, "first")
        async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
            for number in range(60):
                await create(client, f"a-{number}")
            with pytest.raises(GoneError) as raised:
                await anext(events)
        assert raised.value.status_reason == "Expired"


@virtual_time
async def test_all_watchers_receive_the_same_event() -> None:
    async with EmbeddedCluster() as cluster:
        client = cluster.client(reads_in_flight=64)
        version = await create(client, "a")

        async def first_event() -> msgspec.Raw:
            async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
                return (await anext(events)).object

        waiting = [asyncio.create_task(first_event()) for _ in range(20)]
        await asyncio.sleep(1)
        await create(client, "b")
        received = await asyncio.gather(*waiting)
        assert len({bytes(event) for event in received}) == 1
