"""Fault injection of the embedded API server, over both transports."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlop.embedded.apiserver.faults import RequestMatch
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

_TIMEOUT_SECONDS = 20.0
_OVERLOADED: JsonObject = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "not now"}
_BROKEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "broken"}


@dataclass
class Fixture:
    """A cluster, and clients for its servers over one of the transports."""

    cluster: EmbeddedCluster
    over_http: bool
    directory: Path

    async def client(self, server: ApiServer | None = None) -> Client:
        server = server or self.cluster.server
        if not self.over_http:
            return Client(InProcessTransport(server, token=server.token))
        http_server = await self.cluster.serve(server=server)
        path = self.directory / "kubeconfig"
        path.write_text(json.dumps(http_server.kubeconfig()))
        return Client(await connect(path))


@pytest.fixture(params=["in-process", "http"])
async def fixture(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Fixture]:
    async with EmbeddedCluster() as cluster:
        yield Fixture(cluster, request.param == "http", tmp_path)


@pytest.fixture
async def client(fixture: Fixture) -> AsyncIterator[Client]:
    client = await fixture.client()
    yield client
    await client.close()


@pytest.fixture
def cluster(fixture: Fixture) -> EmbeddedCluster:
    return fixture.cluster


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
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        name: str = (await anext(events)).decode()["metadata"]["name"]
        return name


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_a_request_that_fails_before_the_commit_changes_nothing(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_before(_OVERLOADED, match=RequestMatch(verb="create", plural="configmaps"))
    with pytest.raises(TooManyRequestsError, match="not now"):
        await create(client, "a")
    assert not await exists(cluster, "a")
    await create(client, "a")
    assert await exists(cluster, "a")


async def test_a_request_that_fails_after_the_commit_takes_effect(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_after(_BROKEN, match=RequestMatch(verb="create"))
    with pytest.raises(ServerError, match="broken"):
        await create(client, "a")
    assert await exists(cluster, "a")


@pytest.mark.parametrize("committed", [False, True])
async def test_a_dropped_connection_makes_a_write_ambiguous(cluster: EmbeddedCluster, client: Client, *, committed: bool) -> None:
    await create(client, "before")  # so that HTTP reuses a connection
    inject = cluster.faults.fail_after if committed else cluster.faults.fail_before
    inject(None, match=RequestMatch(verb="create", plural="configmaps"))
    with pytest.raises(AmbiguousWriteError):
        await create(client, "a")
    assert await exists(cluster, "a") is committed
    await create(client, "b")


async def test_a_dropped_connection_of_a_read_is_a_transport_error(cluster: EmbeddedCluster, client: Client) -> None:
    await create(client, "a")
    # More than once, because over HTTP a read on a reused connection is repeated.
    cluster.faults.fail_before(None, match=RequestMatch(verb="get"), times=5)
    with pytest.raises(TransportError):
        await client.get(CONFIG_MAPS, "a", namespace="default")
    cluster.faults.clear()
    assert (await client.get(CONFIG_MAPS, "a", namespace="default"))["metadata"]["name"] == "a"


async def test_a_delayed_request_is_overtaken_by_others(cluster: EmbeddedCluster, client: Client) -> None:
    fault = cluster.faults.delay(0.3, match=RequestMatch(verb="create", plural="configmaps", namespace="default"))
    slow = asyncio.create_task(create(client, "slow"))
    await fault.triggered.wait()
    fast = await create(client, "fast")
    assert int(fast["metadata"]["resourceVersion"]) < int((await slow)["metadata"]["resourceVersion"])


async def test_a_fault_affects_only_matching_requests_and_only_n_times(cluster: EmbeddedCluster, client: Client) -> None:
    fault = cluster.faults.fail_before(
        _OVERLOADED, match=RequestMatch(verb="get", plural="configmaps", namespace="default", name="b"), times=2
    )
    await create(client, "a")
    await create(client, "b")
    assert await client.get(CONFIG_MAPS, "a", namespace="default")
    assert await client.list(CONFIG_MAPS, namespace="default")
    for _ in range(2):
        with pytest.raises(TooManyRequestsError):
            await client.get(CONFIG_MAPS, "b", namespace="default")
    assert fault.is_exhausted
    assert await client.get(CONFIG_MAPS, "b", namespace="default")


async def test_cleared_faults_do_not_occur(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_before(_OVERLOADED, times=100)
    cluster.faults.clear()
    await create(client, "a")


async def test_retry_after_is_sent_and_honored(cluster: EmbeddedCluster, client: Client) -> None:
    cluster.faults.fail_before({**_OVERLOADED, "details": {"retryAfterSeconds": 1}}, match=RequestMatch(verb="create"), times=1)
    await create(client, "a")
    assert await exists(cluster, "a")


# --- watches ---------------------------------------------------------------------------------------------------------


async def test_a_dropped_watch_can_be_resumed(cluster: EmbeddedCluster, client: Client) -> None:
    version = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        assert cluster.faults.drop_watches(match=RequestMatch(plural="configmaps")) == 1
        with pytest.raises(TransportError):
            await next_name(events)
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
        assert await next_name(events) == "b"


async def test_a_watch_can_be_ended_normally(cluster: EmbeddedCluster, client: Client) -> None:
    version = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        cluster.faults.drop_watches(abort=False)
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            assert [event async for event in events] == []


async def test_a_held_watch_sends_its_events_after_it_is_released(cluster: EmbeddedCluster, client: Client) -> None:
    version = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        hold = cluster.faults.hold_watches(match=RequestMatch(plural="configmaps"))
        await create(client, "c")
        waiting = asyncio.create_task(next_name(events))
        async with client.watch(SECRETS, namespace="default", resource_version=version) as others:
            await client.create(SECRETS, {"metadata": {"name": "s"}}, namespace="default")
            assert await next_name(others) == "s"
        assert not waiting.done()
        hold.release()
        assert await waiting == "c"
        await create(client, "d")
        assert await next_name(events) == "d"


async def test_a_held_watch_can_send_one_event(cluster: EmbeddedCluster, client: Client) -> None:
    version = (await create(client, "a"))["metadata"]["resourceVersion"]
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
        await create(client, "b")
        assert await next_name(events) == "b"
        hold = cluster.faults.hold_watches()
        await create(client, "c")
        await create(client, "d")
        hold.send_next()
        assert await next_name(events) == "c"
        waiting = asyncio.create_task(next_name(events))
        await client.list(CONFIG_MAPS, namespace="default")
        assert not waiting.done()
        hold.release()
        assert await waiting == "d"


async def test_a_watch_that_starts_during_a_hold_is_held_too(cluster: EmbeddedCluster, client: Client) -> None:
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


async def test_after_a_compaction_an_old_version_is_expired(cluster: EmbeddedCluster, client: Client) -> None:
    old = (await create(client, "a"))["metadata"]["resourceVersion"]
    await create(client, "b")
    cluster.faults.compact()
    async with client.watch(CONFIG_MAPS, namespace="default", resource_version=old) as events:
        with pytest.raises(GoneError):
            await anext(events)
    with pytest.raises(GoneError):
        await client.list(CONFIG_MAPS, namespace="default", resource_version=old, resource_version_match="Exact")


# --- stale servers ---------------------------------------------------------------------------------------------------


async def test_a_stale_server_has_stale_reads_and_current_writes(fixture: Fixture, client: Client) -> None:
    await create(client, "a")
    server, view = add_stale_server(fixture.cluster)
    stale = await fixture.client(server)
    try:
        await create(client, "b")
        await client.delete(CONFIG_MAPS, "a", namespace="default")
        assert [item["metadata"]["name"] for item in (await stale.list(CONFIG_MAPS, namespace="default"))["items"]] == ["a"]
        assert (await stale.get(CONFIG_MAPS, "a", namespace="default"))["metadata"]["name"] == "a"
        with pytest.raises(NotFoundError):
            await stale.get(CONFIG_MAPS, "b", namespace="default")
        await create(stale, "c")
        assert await exists(fixture.cluster, "c")
        view.advance()
        assert [item["metadata"]["name"] for item in (await stale.list(CONFIG_MAPS, namespace="default"))["items"]] == ["b", "c"]
    finally:
        await stale.close()


async def test_a_stale_server_rejects_a_newer_resource_version_with_a_timeout(fixture: Fixture, client: Client) -> None:
    server, _ = add_stale_server(fixture.cluster)
    stale = await fixture.client(server)
    try:
        await stale.list(CONFIG_MAPS, namespace="default")  # connects, so that the timeout is that of the server
        newer = (await create(client, "a"))["metadata"]["resourceVersion"]
        with pytest.raises(ServerError) as raised:
            await stale.call("GET", CONFIG_MAPS.path(namespace="default"), query=(("resourceVersion", newer),), timeout_seconds=0.5)
        assert raised.value.status_code == 504
        assert raised.value.has_cause("ResourceVersionTooLarge")
    finally:
        await stale.close()


async def test_a_watch_of_a_stale_server_continues_when_the_server_catches_up(fixture: Fixture, client: Client) -> None:
    version = (await create(client, "a"))["metadata"]["resourceVersion"]
    server, view = add_stale_server(fixture.cluster)
    stale = await fixture.client(server)
    try:
        async with stale.watch(CONFIG_MAPS, namespace="default", resource_version=version) as events:
            waiting = asyncio.create_task(next_name(events))
            await create(client, "b")
            third = (await create(client, "c"))["metadata"]["resourceVersion"]
            await stale.list(CONFIG_MAPS, namespace="default")
            assert not waiting.done()
            view.advance(int(third) - 1)
            assert await waiting == "b"
            view.advance()
            assert await next_name(events) == "c"
    finally:
        await stale.close()


async def test_the_first_bookmark_of_a_stale_server_has_its_stale_version(fixture: Fixture, client: Client) -> None:
    await create(client, "a")
    server, view = add_stale_server(fixture.cluster)
    stale = await fixture.client(server)
    try:
        await create(client, "b")
        async with stale.watch(CONFIG_MAPS, namespace="default", send_initial_events=True) as events:
            first, second = await anext(events), await anext(events)
        assert (first.type, second.type) == (WatchEventType.ADDED, WatchEventType.BOOKMARK)
        assert second.decode()["metadata"]["resourceVersion"] == str(view.version)
    finally:
        await stale.close()
