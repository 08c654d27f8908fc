"""The informer on real API servers that crash, compact their history or reject requests. Its cache must equal a new list."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from real_cluster import RealCluster

from dlop.kube.cache import CacheChange
from dlop.kube.client import Client
from dlop.kube.config import load
from dlop.kube.errors import TooManyRequestsError
from dlop.kube.http.transport import HttpTransport
from dlop.kube.informer import Informer
from dlop.kube.objects import PartialObject, Pod
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CONFIG_MAPS, EVENTS, LEASES, PODS, SERVICES
from dlop.kube.transport import Request, Response
from tests.cluster.load_balancer import LoadBalancer, run_load_balancer
from tests.kubernetes_versions import STREAMING_LISTS, is_at_least

NAMESPACE = "default"


class CountingTransport(HttpTransport):
    """Counts the responses by status code."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.responses: Counter[int] = Counter()

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        response = await super().send(request, timeout_seconds=timeout_seconds)
        self.responses[response.status] += 1
        return response


@asynccontextmanager
async def connect_client(
    cluster: RealCluster, folder: Path, *, user: str = "admin", server: int = 0, through: LoadBalancer | None = None
) -> AsyncIterator[Client]:
    """A client of one API server, or of the load balancer."""
    connection = await load.load(cluster.write_kubeconfig(folder / f"{user}-{server}", user=user, server=server))
    if through is not None:
        connection = replace(connection, server=through.url)
    client = Client(CountingTransport(connection))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def run_informer(client: Client, changes: list[CacheChange[Pod]] | None = None) -> AsyncIterator[Informer[Pod]]:
    handlers = [] if changes is None else [changes.append]
    informer: Informer[Pod] = Informer(client, PODS, Pod, rng=Random(1), namespace=NAMESPACE, labels=["app"], handlers=handlers)
    task = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 30)
        yield informer
    finally:
        task.cancel()
        await asyncio.wait([task])


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container]}}


async def create(client: Client, *names: str) -> None:
    for name in names:
        await client.create(PODS, pod(name), namespace=NAMESPACE)


async def relabel(client: Client, name: str) -> None:
    await client.patch(PODS, name, {"metadata": {"labels": {"app": "changed"}}}, namespace=NAMESPACE)


async def assert_cache_matches_server(informer: Informer[Pod], client: Client) -> None:
    """The cache must equal a new list."""
    listed = await client.list(PODS, namespace=NAMESPACE)
    await asyncio.wait_for(informer.cache.wait_for_version(_newest_version(listed)), 60)
    expected = {item["metadata"]["name"]: (item["metadata"]["uid"], item["metadata"]["resourceVersion"]) for item in listed["items"]}
    assert {pod.metadata.name: (pod.metadata.uid, pod.metadata.resource_version) for pod in informer.cache} == expected
    labels = Counter(item["metadata"]["labels"]["app"] for item in listed["items"])
    assert {value: len(informer.cache.orphans("app", value, namespace=NAMESPACE)) for value in labels} == labels


def _newest_version(listed: dict[str, Any]) -> int:
    """The version of the newest object. Without changes or bookmarks the cache does not reach the version of a list."""
    return max(int(item["metadata"]["resourceVersion"]) for item in listed["items"])


async def test_an_informer_reconnects_to_another_server_when_its_server_is_killed(tmp_path: Path) -> None:
    with RealCluster.started(api_servers=2) as cluster:
        ports = [cluster.programs[f"kube-apiserver-{index}"].port for index in (0, 1)]
        async with (
            run_load_balancer(ports) as load_balancer,
            connect_client(cluster, tmp_path, through=load_balancer) as client,
            connect_client(cluster, tmp_path, server=1) as survivor,
            run_informer(client) as informer,
        ):
            await create(survivor, "before", "deleted-meanwhile", "changed-meanwhile")
            await assert_cache_matches_server(informer, survivor)
            assert load_balancer.connections_to(ports[0]) > 0

            cluster.kill_api_server(0)
            await create(survivor, "after")
            await relabel(survivor, "changed-meanwhile")
            await survivor.delete(PODS, "deleted-meanwhile", namespace=NAMESPACE, grace_seconds=0)
            await create(survivor, "last")
            await assert_cache_matches_server(informer, survivor)
            assert load_balancer.connections_to(ports[1]) > 0
            assert isinstance(client.transport, CountingTransport)
            # An informer streams its list if the server supports it. It lists once, also if it reconnects.
            lists = {} if is_at_least(STREAMING_LISTS) else {200: 1}
            assert client.transport.responses == lists


async def test_informers_are_back_two_seconds_after_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    resources = (PODS, SERVICES, CONFIG_MAPS, LEASES, EVENTS)
    with RealCluster.started() as cluster:
        async with connect_client(cluster, tmp_path) as client, connect_client(cluster, tmp_path) as direct, asyncio.TaskGroup() as group:
            informers = [Informer(client, resource, PartialObject, rng=Random(resource.plural)) for resource in resources]
            tasks = [group.create_task(informer.run()) for informer in informers]
            async with asyncio.timeout(30):
                for informer in informers:
                    await informer.wait_synced()
            for kill in range(4):
                cluster.kill_api_server(0)
                await asyncio.sleep(5)  # an outage in which a back-off would grow
                cluster.compact()
                await asyncio.to_thread(cluster.restart_api_server, 0)
                async with asyncio.timeout(2):
                    while any(informer.last_error for informer in informers):  # noqa: ASYNC110 - informers have no event for it
                        await asyncio.sleep(0.01)
                await create(direct, f"pod-{kill}")
                created = await direct.get(PODS, f"pod-{kill}", namespace=NAMESPACE)
                await asyncio.wait_for(informers[0].cache.wait_for_version(int(created["metadata"]["resourceVersion"])), 2)
            for task in tasks:
                task.cancel()


async def test_an_informer_relists_when_its_resource_version_was_compacted(tmp_path: Path) -> None:
    # Without the watch cache, a watch reads the history of etcd and fails when it is compacted.
    with RealCluster.started(extra_flags=["--watch-cache=false"]) as cluster:
        changes: list[CacheChange[Pod]] = []
        async with (
            run_load_balancer([cluster.programs["kube-apiserver-0"].port]) as load_balancer,
            connect_client(cluster, tmp_path, through=load_balancer) as client,
            connect_client(cluster, tmp_path) as direct,
            run_informer(client, changes) as informer,
        ):
            await create(direct, "kept", "deleted-while-disconnected", "replaced-while-disconnected")
            await assert_cache_matches_server(informer, direct)
            replaced = informer.cache.get("replaced-while-disconnected", namespace=NAMESPACE)
            assert replaced is not None

            await load_balancer.disconnect()
            for name in ("deleted-while-disconnected", "replaced-while-disconnected"):
                await direct.delete(PODS, name, namespace=NAMESPACE, grace_seconds=0)
            await create(direct, "replaced-while-disconnected", "new")
            cluster.compact()
            changes.clear()
            load_balancer.reconnect()
            await assert_cache_matches_server(informer, direct)

        by_name = {change.object.metadata.name: change for change in changes}
        assert by_name["deleted-while-disconnected"].new is None
        assert by_name["replaced-while-disconnected"].old is replaced, "a new pod with the same name is one update"
        assert by_name.keys() == {"deleted-while-disconnected", "replaced-while-disconnected", "new"}


async def test_an_informer_syncs_when_the_server_rejects_most_requests(tmp_path: Path) -> None:
    # One request at a time, and no streamed lists, because watches are exempt from the limit.
    flags = ["--enable-priority-and-fairness=false", "--max-requests-inflight=1", "--max-mutating-requests-inflight=1"]
    with RealCluster.started(extra_flags=[*flags, "--feature-gates=WatchList=false"]) as cluster:
        async with connect_client(cluster, tmp_path) as admin, connect_client(cluster, tmp_path, user="alice") as client:
            await admin.create(CLUSTER_ROLE_BINDINGS, _cluster_admin_binding("alice"))
            await create(admin, *(f"pod-{number}" for number in range(20)))
            async with run_informer(client) as informer, asyncio.TaskGroup() as group:
                flood = [group.create_task(_flood(client)) for _ in range(8)]
                for number in range(5):
                    await create(admin, f"new-{number}")
                    await admin.delete(PODS, f"pod-{number}", namespace=NAMESPACE, grace_seconds=0)
                    await asyncio.wait_for(informer.refresh(), 60)
                await assert_cache_matches_server(informer, admin)
                for task in flood:
                    task.cancel()
            assert isinstance(client.transport, CountingTransport)
            assert client.transport.responses[429] > 0, "the server rejected no request"


async def _flood(client: Client) -> None:
    while True:
        try:
            await client.list(PODS)
        except TooManyRequestsError:
            continue


def _cluster_admin_binding(user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"cluster-admin-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
