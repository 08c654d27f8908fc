"""Faults on request, each in both fronts: what was asked to go wrong goes wrong, that often, and nothing else does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlop.embedded.apiserver.faults import Match
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.transports.inprocess import InProcessTransport
from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.errors import AmbiguousWriteError, GoneError, NotFoundError, ServerError, TooManyRequestsError, TransportError
from dlop.kube.http.transport import connect
from dlop.kube.resources import CONFIG_MAPS, SECRETS
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEvent, WatchEventType
from dlop.testing.stale_view import add_stale_server

_PATIENCE_SECONDS = 20.0
_OVERLOADED: JsonObject = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "not now"}
_BROKEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "broken"}


@dataclass
class Setting:
    """A cluster, and a way to make a client of any of its servers over one of the fronts."""

    cluster: EmbeddedCluster
    over_http: bool
    folder: Path

    async def client(self, server: ApiServer | None = None) -> Client:
        server = server or self.cluster.server
        if not self.over_http:
            return Client(InProcessTransport(server))
        front = await self.cluster.serve(server=server)
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(front.kubeconfig()))
        return Client(await connect(path))


@pytest.fixture(params=["in-process", "http"])
async def setting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setting]:
    async with EmbeddedCluster() as cluster:
        yield Setting(cluster, request.param == "http", tmp_path)


@pytest.fixture
async def client(setting: Setting) -> AsyncIterator[Client]:
    made = await setting.client()
    yield made
    await made.close()


@pytest.fixture
def cluster(setting: Setting) -> EmbeddedCluster:
    return setting.cluster


def config_map(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


async def create(client: Client, name: str) -> JsonObject:
    return await client.create(CONFIG_MAPS, config_map(name), namespace="default")


async def exists(cluster: EmbeddedCluster, name: str) -> bool:
    try:
        await cluster.client().get(CONFIG_MAPS, name, namespace="default")
    except NotFoundError:
        return False
    return True


async def next_name(events: AsyncIterator[WatchEvent]) -> str:
    async with asyncio.timeout(_PATIENCE_SECONDS):
        name: str = (await anext(events)).decode()["metadata"]["name"]
        return name


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_request_that_fails_before_the_commit_has_changed_nothing(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_before(_OVERLOADED, match=Match(verb="create", plural="configmaps"))
    with pytest.raises(TooManyRequestsError, match="not now"):
        await create(client, "a")
    assert not await exists(cluster, "a")
    await create(client, "a")
    assert await exists(cluster, "a")


async def test_a_request_that_fails_after_the_commit_has_happened(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_after(_BROKEN, match=Match(verb="create"))
    with pytest.raises(ServerError, match="broken"):
        await create(client, "a")
    assert await exists(cluster, "a")


@pytest.mark.parametrize("happened", [False, True])
async def test_a_connection_that_drops_leaves_a_write_in_doubt(cluster: EmbeddedCluster, client: Client, *, happened: bool) -> None:
    await create(client, "before")  # over HTTP: a connection that is there already
    arm = cluster.faults.fail_after if happened else cluster.faults.fail_before
    arm(None, match=Match(verb="create", plural="configmaps"))
    with pytest.raises(AmbiguousWriteError):
        await create(client, "a")
    assert await exists(cluster, "a") is happened
    await create(client, "b")


async def test_a_read_whose_connection_drops_is_a_transport_error(cluster: EmbeddedCluster, client: Client) -> None:
    await create(client, "a")
    # More than once: over HTTP a read is tried again when a connection that was used before turns out to be closed.
    cluster.faults.fail_before(None, match=Match(verb="get"), times=5)
    with pytest.raises(TransportError):
        await client.get(CONFIG_MAPS, "a", namespace="default")
    cluster.faults.clear()
    assert (await client.get(CONFIG_MAPS, "a", namespace="default"))["metadata"]["name"] == "a"


async def test_a_delayed_request_is_carried_out_late_and_others_pass_it(cluster: EmbeddedCluster, client: Client) -> None:
    fault = cluster.faults.delay(0.3, match=Match(verb="create", plural="configmaps", namespace="default"))
    slow = asyncio.create_task(create(client, "slow"))
    await fault.met.wait()
    fast = await create(client, "fast")
    assert int(fast["metadata"]["resourceVersion"]) < int((await slow)["metadata"]["resourceVersion"])


async def test_a_fault_meets_only_what_it_is_meant_for_and_only_so_often(cluster: EmbeddedCluster, client: Client) -> None:
    fault = cluster.faults.fail_before(_OVERLOADED, match=Match(verb="get", plural="configmaps", namespace="default", name="b"), times=2)
    await create(client, "a")
    await create(client, "b")
    assert await client.get(CONFIG_MAPS, "a", namespace="default")
    assert await client.list(CONFIG_MAPS, namespace="default")
    for _ in range(2):
        with pytest.raises(TooManyRequestsError):
            await client.get(CONFIG_MAPS, "b", namespace="default")
    assert fault.is_spent
    assert await client.get(CONFIG_MAPS, "b", namespace="default")


async def test_what_is_cleared_no_longer_happens(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_before(_OVERLOADED, times=100)
    cluster.faults.clear()
    await create(client, "a")


async def test_retry_after_is_told_and_obeyed(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_before({**_OVERLOADED, "details": {"retryAfterSeconds": 1}}, match=Match(verb="create"), times=1)
    await create(client, "a")
    assert await exists(cluster, "a")


# --- watches ---------------------------------------------------------------------------------------------------------


async def test_a_dropped_watch_breaks_and_another_goes_on_where_it_was(cluster: EmbeddedCluster, client: Client) -> None:
    seen = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        assert cluster.faults.drop_watches(match=Match(plural="configmaps")) == 1
        with pytest.raises(TransportError):
            await next_name(events)
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
        assert await next_name(events) == "b"


async def test_a_watch_can_also_be_ended_properly(cluster: EmbeddedCluster, client: Client) -> None:
    seen = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        cluster.faults.drop_watches(torn=False)
        async with asyncio.timeout(_PATIENCE_SECONDS):
            assert [event async for event in events] == []


async def test_a_held_watch_says_nothing_until_it_is_released_and_then_everything(cluster: EmbeddedCluster, client: Client) -> None:
    seen = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        hold = cluster.faults.hold_watches(match=Match(plural="configmaps"))
        await create(client, "c")
        waiting = asyncio.create_task(next_name(events))
        async with client.watch(SECRETS, namespace="default", resource_version=seen) as others:
            await client.create(SECRETS, {"metadata": {"name": "s"}}, namespace="default")
            assert await next_name(others) == "s"
        assert not waiting.done()
        hold.release()
        assert await waiting == "c"
        await create(client, "d")
        assert await next_name(events) == "d"


async def test_a_watch_that_begins_while_others_are_held_is_held_too(cluster: EmbeddedCluster, client: Client) -> None:
    hold = cluster.faults.hold_watches()
    await create(client, "a")
    async with client.watch(CONFIG_MAPS, namespace="default", send_initial_events=True) as events:
        waiting = asyncio.create_task(next_name(events))
        await create(client, "b")
        await client.list(CONFIG_MAPS, namespace="default")
        assert not waiting.done()
        hold.release()
        assert await waiting == "a"
        assert await next_name(events) == "b"


async def test_after_a_compaction_an_old_version_is_gone(cluster: EmbeddedCluster, client: Client) -> None:
    old = (await create(client, "a"))["metadata"]["resourceVersion"]
    await create(client, "b")
    cluster.faults.compact()
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=old) as events:
        with pytest.raises(GoneError):
            await anext(events)
    with pytest.raises(GoneError):
        await client.list(CONFIG_MAPS, namespace="default", resource_version=old, resource_version_match="Exact")


# --- a server that lags behind ---------------------------------------------------------------------------------------


async def test_a_lagging_server_shows_the_past_and_takes_writes_into_the_present(setting: Setting, client: Client) -> None:
    await create(client, "a")
    server, view = add_stale_server(setting.cluster)
    late = await setting.client(server)
    try:
        await create(client, "b")
        await client.delete(CONFIG_MAPS, "a", namespace="default")
        assert [item["metadata"]["name"] for item in (await late.list(CONFIG_MAPS, namespace="default"))["items"]] == ["a"]
        assert (await late.get(CONFIG_MAPS, "a", namespace="default"))["metadata"]["name"] == "a"
        with pytest.raises(NotFoundError):
            await late.get(CONFIG_MAPS, "b", namespace="default")
        await create(late, "c")
        assert await exists(setting.cluster, "c")
        view.advance()
        assert [item["metadata"]["name"] for item in (await late.list(CONFIG_MAPS, namespace="default"))["items"]] == ["b", "c"]
    finally:
        await late.close()


async def test_a_lagging_server_asks_for_patience_with_a_version_that_it_has_not_seen(setting: Setting, client: Client) -> None:
    server, _ = add_stale_server(setting.cluster)
    late = await setting.client(server)
    try:
        newer = (await create(client, "a"))["metadata"]["resourceVersion"]
        with pytest.raises(ServerError) as refused:
            await late.call("GET", CONFIG_MAPS.path(namespace="default"), query=(("resourceVersion", newer),), timeout_seconds=0.5)
        assert refused.value.status_code == 504
        assert refused.value.has_cause("ResourceVersionTooLarge")
    finally:
        await late.close()


async def test_a_watch_of_a_lagging_server_goes_on_when_the_server_does(setting: Setting, client: Client) -> None:
    seen = (await create(client, "a"))["metadata"]["resourceVersion"]
    server, view = add_stale_server(setting.cluster)
    late = await setting.client(server)
    try:
        async with late.watch(CONFIG_MAPS, namespace="default", resource_version=seen) as events:
            waiting = asyncio.create_task(next_name(events))
            await create(client, "b")
            third = (await create(client, "c"))["metadata"]["resourceVersion"]
            await late.list(CONFIG_MAPS, namespace="default")
            assert not waiting.done()
            view.advance(int(third) - 1)
            assert await waiting == "b"
            view.advance()
            assert await next_name(events) == "c"
    finally:
        await late.close()


async def test_the_first_bookmark_of_a_lagging_server_is_as_old_as_it_is(setting: Setting, client: Client) -> None:
    await create(client, "a")
    server, view = add_stale_server(setting.cluster)
    late = await setting.client(server)
    try:
        await create(client, "b")
        async with late.watch(CONFIG_MAPS, namespace="default", send_initial_events=True) as events:
            first, second = await anext(events), await anext(events)
        assert (first.type, second.type) == (WatchEventType.ADDED, WatchEventType.BOOKMARK)
        assert second.decode()["metadata"]["resourceVersion"] == str(view.version)
    finally:
        await late.close()
