"""The informer on real API servers that crash, forget and refuse: in the end its cache equals a fresh list."""

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
from dlop.kube.objects import Pod
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, PODS
from dlop.kube.transport import Request, Response
from tests.cluster.balancer import Balancer, balancing

NAMESPACE = "default"


class CountingTransport(HttpTransport):
    """A transport that counts the answers by their status."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.answers: Counter[int] = Counter()

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        response = await super().send(request, timeout_seconds=timeout_seconds)
        self.answers[response.status] += 1
        return response


@asynccontextmanager
async def client_of(
    cluster: RealCluster, folder: Path, *, user: str = "admin", server: int = 0, through: Balancer | None = None
) -> AsyncIterator[Client]:
    """A client of one API server, or of the balancer in front of them."""
    connection = await load.load(cluster.write_kubeconfig(folder / f"{user}-{server}", user=user, server=server))
    if through is not None:
        connection = replace(connection, server=through.url)
    client = Client(CountingTransport(connection))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def following(client: Client, changes: list[CacheChange[Pod]] | None = None) -> AsyncIterator[Informer[Pod]]:
    handlers = [] if changes is None else [changes.append]
    informer: Informer[Pod] = Informer(client, PODS, Pod, rng=Random(1), namespace=NAMESPACE, labels=["app"], handlers=handlers)
    running = asyncio.create_task(informer.run())
    try:
        await asyncio.wait_for(informer.wait_synced(), 30)
        yield informer
    finally:
        running.cancel()
        await asyncio.wait([running])


def pod(name: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": {"containers": [container]}}


async def create(client: Client, *names: str) -> None:
    for name in names:
        await client.create(PODS, pod(name), namespace=NAMESPACE)


async def relabel(client: Client, name: str) -> None:
    await client.patch(PODS, name, {"metadata": {"labels": {"app": "changed"}}}, namespace=NAMESPACE)


async def check_truth(informer: Informer[Pod], client: Client) -> None:
    """The cache shows what a fresh list shows."""
    fresh = await client.list(PODS, namespace=NAMESPACE)
    await asyncio.wait_for(informer.cache.reached(_last_change(fresh)), 60)
    expected = {each["metadata"]["name"]: (each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in fresh["items"]}
    assert {found.metadata.name: (found.metadata.uid, found.metadata.resource_version) for found in informer.cache} == expected
    labels = Counter(each["metadata"]["labels"]["app"] for each in fresh["items"])
    assert {value: len(informer.cache.labelled("app", value, namespace=NAMESPACE)) for value in labels} == labels


def _last_change(fresh: dict[str, Any]) -> int:
    """Without bookmarks, the cache of a quiet namespace need not reach the version of a list, but that of its newest object."""
    return max(int(each["metadata"]["resourceVersion"]) for each in fresh["items"])


async def test_an_informer_moves_to_the_other_server_when_its_own_is_killed(tmp_path: Path) -> None:
    with RealCluster.started(api_servers=2) as cluster:
        ports = [cluster.programs[f"kube-apiserver-{index}"].port for index in (0, 1)]
        async with (
            balancing(ports) as balancer,
            client_of(cluster, tmp_path, through=balancer) as client,
            client_of(cluster, tmp_path, server=1) as survivor,
            following(client) as informer,
        ):
            await create(survivor, "before", "deleted-meanwhile", "changed-meanwhile")
            await check_truth(informer, survivor)
            assert balancer.connections_to(ports[0]) == 1

            cluster.kill_api_server(0)
            await create(survivor, "after")
            await relabel(survivor, "changed-meanwhile")
            await survivor.delete(PODS, "deleted-meanwhile", namespace=NAMESPACE, grace_seconds=0)
            await create(survivor, "last")
            await check_truth(informer, survivor)
            assert balancer.connections_to(ports[1]) == 1
            assert isinstance(client.transport, CountingTransport)
            assert not client.transport.answers, "the list was streamed, and no other request than watches was needed"


async def test_an_informer_lists_anew_when_its_version_was_compacted_away(tmp_path: Path) -> None:
    # Without the watch cache, a watch reads etcd's history itself and fails when that is gone.
    with RealCluster.started(extra_flags=["--watch-cache=false"]) as cluster:
        changes: list[CacheChange[Pod]] = []
        async with (
            balancing([cluster.programs["kube-apiserver-0"].port]) as balancer,
            client_of(cluster, tmp_path, through=balancer) as client,
            client_of(cluster, tmp_path) as direct,
            following(client, changes) as informer,
        ):
            await create(direct, "kept", "deleted-unseen", "replaced-unseen")
            await check_truth(informer, direct)
            replaced = informer.cache.get("replaced-unseen", namespace=NAMESPACE)
            assert replaced is not None

            await balancer.cut_off()
            for name in ("deleted-unseen", "replaced-unseen"):
                await direct.delete(PODS, name, namespace=NAMESPACE, grace_seconds=0)
            await create(direct, "replaced-unseen", "new")
            cluster.compact()
            changes.clear()
            balancer.restore()
            await check_truth(informer, direct)

        told = {change.object.metadata.name: change for change in changes}
        assert told["deleted-unseen"].unseen
        assert told["replaced-unseen"].old is replaced, "another pod of that name is one update that shows both"
        assert told.keys() == {"deleted-unseen", "replaced-unseen", "new"}


async def test_an_informer_gets_through_when_the_server_refuses_most_requests(tmp_path: Path) -> None:
    # One request at a time, and no streamed lists, which are watches and as such are let through.
    flags = ["--enable-priority-and-fairness=false", "--max-requests-inflight=1", "--max-mutating-requests-inflight=1"]
    with RealCluster.started(extra_flags=[*flags, "--feature-gates=WatchList=false"]) as cluster:
        async with client_of(cluster, tmp_path) as admin, client_of(cluster, tmp_path, user="alice") as client:
            await admin.create(CLUSTER_ROLE_BINDINGS, _everything_for("alice"))
            await create(admin, *(f"pod-{number}" for number in range(20)))
            async with following(client) as informer, asyncio.TaskGroup() as group:
                flood = [group.create_task(_flood(client)) for _ in range(8)]
                for number in range(5):
                    await create(admin, f"new-{number}")
                    await admin.delete(PODS, f"pod-{number}", namespace=NAMESPACE, grace_seconds=0)
                    await asyncio.wait_for(informer.refresh(), 60)
                await check_truth(informer, admin)
                for task in flood:
                    task.cancel()
            assert isinstance(client.transport, CountingTransport)
            assert client.transport.answers[429] > 0, "the server did not refuse anything"


async def _flood(client: Client) -> None:
    while True:
        try:
            await client.list(PODS)
        except TooManyRequestsError:
            continue


def _everything_for(user: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"everything-for-{user}"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
