"""A client disconnects in the middle of a DELETE, and the real API server leaves the pod terminating. The operator deletes it again."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_build import require_assets
from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.cluster.ring_jobs import RINGS, observe, operator_process, ring_flags
from tests.sim.ring_job import RingJob, ring

WORKERS = 40
MAX_ROUNDS = 50
TIMEOUT_SECONDS = 100


@pytest.fixture
def cluster_without_controllers() -> Iterator[RealCluster]:
    """The garbage collector of pods would delete the pods as well, every 20 seconds."""
    require_assets(("etcd", "kube-apiserver"))
    with RealCluster.started() as cluster:
        yield cluster


async def test_pods_that_an_interrupted_delete_left_terminating_are_replaced(
    cluster_without_controllers: RealCluster, tmp_path: Path
) -> None:
    cluster = cluster_without_controllers
    client = Client(await connect(cluster.kubeconfig_path))
    await apply(client, build_crds([RingJob]), report=lambda _: None)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), observe(client, "default") as observed:
            job = await client.create(RINGS, ring(workers=WORKERS), namespace="default")
            stuck = await _interrupt_deletes(cluster, client, job)
            async with operator_process(cluster, tmp_path / "operator.log", *ring_flags("default")):
                await observed.until(lambda: [pod.metadata.deletion_timestamp for pod in observed.pods.cache] == [None] * WORKERS)
            assert stuck.isdisjoint(pod.metadata.uid for pod in observed.pods.cache)
    finally:
        await client.close()


async def _interrupt_deletes(cluster: RealCluster, client: Client, job: JsonObject) -> set[str]:
    """Create the pods of a job and delete them, and disconnect in the middle, until some stay terminating. Returns their UIDs.

    Pods without a node have no grace period, so the server marks and removes them in the same request.
    """
    rng, loop = random.Random(0), asyncio.get_running_loop()
    pods = [body for body in render(job, Registry([RingJob])) if body["kind"] == "Pod"]
    for _ in range(MAX_ROUNDS):
        await asyncio.gather(*(client.create(PODS, pod, namespace="default") for pod in pods))
        first, *names = (pod["metadata"]["name"] for pod in pods)
        started_at = loop.time()
        await client.delete(PODS, first, namespace="default")
        duration = loop.time() - started_at
        for name in names:
            await _send_and_disconnect(cluster, PODS.path(namespace="default", name=name), after=rng.uniform(0, duration))
        # The server finishes what it has started.
        await asyncio.sleep(0.5)
        remaining = (await client.list(PODS, namespace="default"))["items"]
        stuck = {pod["metadata"]["uid"] for pod in remaining if pod["metadata"].get("deletionGracePeriodSeconds") == 0}
        if stuck:
            return stuck
        await asyncio.gather(*(client.delete(PODS, pod["metadata"]["name"], namespace="default") for pod in remaining))
    raise AssertionError(f"no delete was interrupted between its two steps in {MAX_ROUNDS} rounds")


async def _send_and_disconnect(cluster: RealCluster, path: str, *, after: float) -> None:
    host, _, port = cluster.url.partition("://")[2].partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    lines = (f"DELETE {path} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {cluster.token}", "Content-Length: 0", "", "")
    writer.write("\r\n".join(lines).encode())
    await writer.drain()
    await asyncio.sleep(after)
    writer.transport.abort()
