"""Queues of Kueue on the real API server, with and without the optional permissions for Workloads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from real_cluster import RealCluster

from dlop.deploy.apply import apply
from dlop.kube.client import Client
from dlop.kube.resources import EVENTS, PODS, WORKLOADS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.script import Script
from tests.cluster.deployed_operator import deploy_operator, discard
from tests.cluster.permission_jobs import JOBS, TIMEOUT_SECONDS, has_condition, job, run_operator, wait_for_job
from tests.frameworks.kueue_workloads import KUEUE_CRDS, WorkloadKueue
from tests.shared_clusters import Clusters, ClusterSpec

Value = TypeVar("Value")


@pytest.fixture
def cluster(clusters: Clusters) -> RealCluster:
    """A control plane of its own: with the CRDs of Kueue, the jobs of other tests would wait in queues."""
    return clusters.get(ClusterSpec(name="kueue"))


async def poll(get: Callable[[], Awaitable[Value]]) -> Value:
    """The first true value."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            value = await get()
            if value:
                return value
            await asyncio.sleep(0.1)


def queued(name: str) -> JsonObject:
    manifest = job(name)
    manifest["spec"]["runPolicy"]["schedulingPolicy"] = {"queue": "research"}
    return manifest


async def test_a_job_waits_in_its_queue_with_the_kueue_permissions(cluster: RealCluster, tmp_path: Path) -> None:
    log, script = tmp_path / "operator.log", Script()
    script.when("first-*").run().after(2).succeed()
    async with deploy_operator(cluster, tmp_path, one_namespace=False, permission_sets=("kueue",)) as deployed:
        own, admin = deployed.options.namespace, deployed.admin
        await apply(admin, KUEUE_CRDS, report=discard)
        kueue = WorkloadKueue(admin, own)
        await kueue.create_flavors("spot")
        async with ScriptedKubelet(admin, script, namespace=own), run_operator(deployed, tmp_path / "operator.kubeconfig", log):
            await admin.create(JOBS, queued("first"), namespace=own)
            await poll(kueue.workload)
            await wait_for_job(admin, "first", own, has_condition("Suspended"))
            pods = (await admin.list(PODS, namespace=own))["items"]
            assert [pod for pod in pods if pod["metadata"]["name"].startswith("first-")] == []
            await kueue.admit("spot")
            await wait_for_job(admin, "first", own, has_condition("Running"))
            await kueue.evict()
            await poll(lambda: returned_quota(kueue))
            await kueue.admit("spot")
            await wait_for_job(admin, "first", own, has_condition("Succeeded"))
            await wait_for_job(admin, "first", own, lambda job: job is None)
        assert [line for line in log.read_text().splitlines() if "forbidden" in line.lower()] == []


@pytest.mark.parametrize(
    ("one_namespace", "permission_sets", "hint"),
    [
        pytest.param(False, (), "--with kueue", id="without the permissions"),
        pytest.param(True, ("kueue",), "run one for all namespaces", id="in one namespace"),
    ],
)
async def test_a_job_starts_without_its_queue_if_the_operator_cannot_read_kueue(
    cluster: RealCluster, tmp_path: Path, hint: str, permission_sets: tuple[str, ...], *, one_namespace: bool
) -> None:
    log, script = tmp_path / "operator.log", Script()
    script.when("*").run()
    async with deploy_operator(cluster, tmp_path, one_namespace=one_namespace, permission_sets=permission_sets) as deployed:
        own, admin = deployed.options.namespace, deployed.admin
        await apply(admin, KUEUE_CRDS, report=discard)
        flags = ("--namespaces", own) if one_namespace else ()
        async with ScriptedKubelet(admin, script, namespace=own), run_operator(deployed, tmp_path / "operator.kubeconfig", log, *flags):
            await admin.create(JOBS, queued("first"), namespace=own)
            await wait_for_job(admin, "first", own, has_condition("Running"))
            (note,) = await poll(lambda: ignored_queues(admin, own))
            assert hint in note
            assert (await admin.list(WORKLOADS, namespace=own))["items"] == []


async def returned_quota(kueue: WorkloadKueue) -> bool:
    return not await kueue.holds_quota()


async def ignored_queues(client: Client, namespace: str) -> list[str]:
    """The warnings about queues without effect."""
    events = (await client.list(EVENTS, namespace=namespace))["items"]
    return [event["note"] for event in events if event["reason"] == "QueueIgnored"]
