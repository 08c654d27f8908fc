"""Jobs in queues of Kueue itself: its quota, its preemption, and its webhooks, which validate what the operator writes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.kube.client import PatchType
from dlop.kube.http.transport import connect
from dlop.kube.resources import RESOURCE_FLAVORS, WORKLOADS, Resource
from dlop.kube.types import JsonObject
from tests.frameworks.kubedl_manifests import kubedl_job, role
from tests.frameworks.kueue_process import CLUSTER_QUEUES, LOCAL_QUEUES, run_kueue
from tests.frameworks.kueue_workloads import flavor
from tests.frameworks.sandbox import Sandbox, open_sandbox
from tests.shared_clusters import Clusters, ClusterSpec

pytestmark = pytest.mark.kueue
CPUS = 4


def queue(name: str, resource: Resource, spec: JsonObject) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


def training(name: str, *, workers: int, priority: int) -> JsonObject:
    """A job that needs a CPU for each of its pods: a parameter server and the workers."""
    container = {"resources": {"requests": {"cpu": "1"}}}
    roles = {"PS": role(1, container=container), "Worker": role(workers, container=container)}
    return kubedl_job(XDLJob, roles, name=name, schedulingPolicy={"queue": "research", "priority": priority})


async def conditions(sandbox: Sandbox, job: str) -> dict[str, tuple[str, str]]:
    """Status and reason of the conditions of the Workload of a job."""
    for workload in (await sandbox.all(WORKLOADS)).values():
        if workload["metadata"]["ownerReferences"][0]["name"] == job:
            return {each["type"]: (each["status"], each["reason"]) for each in workload.get("status", {}).get("conditions", ())}
    return {}


async def pods_of(sandbox: Sandbox, job: str) -> list[str]:
    return [name for name in await sandbox.pods() if name.startswith(f"{job}-")]


async def test_jobs_share_the_quota_of_their_queue(clusters: Clusters, tmp_path: Path) -> None:
    cluster = clusters.get(ClusterSpec(name="kueue itself"))
    transport = await connect(cluster.kubeconfig_path)
    try:
        async with run_kueue(cluster, tmp_path), open_sandbox(transport, XDLJob, clock=time.time) as sandbox:
            await share_quota(sandbox)
    finally:
        await transport.close()


async def share_quota(sandbox: Sandbox) -> None:
    client = sandbox.client
    sandbox.script.when("urgent-*").until_released().succeed()
    sandbox.script.when("*").run()
    sandbox.start()
    await sandbox.submit(training("demo", workers=2, priority=1))

    async def is_queued() -> bool:
        return (await conditions(sandbox, "demo")).get("QuotaReserved", ("", ""))[0] == "False"

    # Its queue does not exist yet.
    await sandbox.until(is_queued)
    assert await sandbox.pods() == {}
    await client.create(RESOURCE_FLAVORS, flavor("spot"))
    quota = [{"coveredResources": ["cpu"], "flavors": [{"name": "spot", "resources": [{"name": "cpu", "nominalQuota": CPUS}]}]}]
    spec: JsonObject = {"namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"}, "resourceGroups": quota}
    await client.create(CLUSTER_QUEUES, queue("all", CLUSTER_QUEUES, spec))
    await client.create(LOCAL_QUEUES, queue("research", LOCAL_QUEUES, {"clusterQueue": "all"}), namespace=sandbox.namespace)
    await sandbox.until_running(3)
    assert {pod["spec"]["nodeSelector"]["flavor"] for pod in (await sandbox.pods()).values()} == {"spot"}

    # A job with a higher priority takes its place, and gives it back.
    await sandbox.submit(training("urgent", workers=2, priority=10))

    async def has_replaced() -> bool:
        return len(await pods_of(sandbox, "urgent")) == 3

    await sandbox.until(has_replaced)
    assert await pods_of(sandbox, "demo") == []
    assert (await conditions(sandbox, "demo"))["Evicted"] == ("True", "Preempted")
    for name in await pods_of(sandbox, "urgent"):
        sandbox.kubelet.release(f"{sandbox.namespace}/{name}")

    async def is_finished() -> bool:
        return (await conditions(sandbox, "urgent")).get("Finished") == ("True", "Succeeded")

    await sandbox.until(is_finished)

    async def runs_again() -> bool:
        return (await conditions(sandbox, "demo")).get("PodsReady") == ("True", "Started")

    await sandbox.until(runs_again)
    assert len(await pods_of(sandbox, "demo")) == 3

    # It grows to the size of the quota, and must wait when it grows further.
    patch: JsonObject = {"spec": {"xdlReplicaSpecs": {"Worker": {"replicas": CPUS - 1}}}}
    await client.patch(sandbox.resource, "demo", patch, namespace=sandbox.namespace, patch_type=PatchType.MERGE)

    async def has_grown() -> bool:
        return len(await pods_of(sandbox, "demo")) == CPUS and await runs_again()

    await sandbox.until(has_grown)
    patch["spec"]["xdlReplicaSpecs"]["Worker"]["replicas"] = CPUS
    await client.patch(sandbox.resource, "demo", patch, namespace=sandbox.namespace, patch_type=PatchType.MERGE)
    await sandbox.until(is_queued)
    await sandbox.settle()
    assert await pods_of(sandbox, "demo") == []

    # A queue that is stopped evicts its jobs, and does not admit them before it is started again.
    patch["spec"]["xdlReplicaSpecs"]["Worker"]["replicas"] = 1
    await client.patch(sandbox.resource, "demo", patch, namespace=sandbox.namespace, patch_type=PatchType.MERGE)
    await sandbox.until(runs_again)
    await client.patch(CLUSTER_QUEUES, "all", {"spec": {"stopPolicy": "HoldAndDrain"}}, patch_type=PatchType.MERGE)

    async def is_stopped() -> bool:
        return (await conditions(sandbox, "demo")).get("QuotaReserved") == ("False", "Pending") and not await pods_of(sandbox, "demo")

    await sandbox.until(is_stopped)
    assert (await conditions(sandbox, "demo"))["Evicted"] == ("True", "ClusterQueueStopped")
    await client.patch(CLUSTER_QUEUES, "all", {"spec": {"stopPolicy": "None"}}, patch_type=PatchType.MERGE)
    await sandbox.until(runs_again)
    assert len(await pods_of(sandbox, "demo")) == 2
