"""The autoscaler on a real API server, with the permissions of the deployed operator and without them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from real_cluster import RealCluster

from dlop.api.types import Options
from dlop.deploy.apply import apply
from dlop.deploy.rbac import find_grants, permission_set_rbac
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.http.transport import connect
from dlop.kube.resources import EVENTS, NAMESPACES, NODES, PODS
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import NODE_NAME, ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from tests.cluster.deployed_operator import DeployedOperator, deploy_operator, discard

JOBS = PyTorchJob.job_type.resource
_LABEL = "autoscaler.dlop.dev/node"
_STAYS_SECONDS = 5.0
"""Longer than the autoscaler takes to decide."""


def elastic_job() -> JsonObject:
    """Its pods run on the node of this test only, and request far more than other nodes of the cluster have."""
    container = {"name": "pytorch", "image": "example.org/train:1", "resources": {"requests": {"cpu": "1000"}}}
    template = {"spec": {"containers": [container], "nodeSelector": {_LABEL: "true"}}}
    spec = {
        "elasticPolicy": {"minReplicas": 2, "maxReplicas": 6},
        "runPolicy": {"autoscale": True},
        "pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": template}},
    }
    return {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": {"name": "elastic"}, "spec": spec}


@asynccontextmanager
async def running_autoscaler(deployed: DeployedOperator, folder: Path) -> AsyncIterator[str]:
    """Run an operator for all namespaces, and a kubelet for a new namespace. Yields its name."""
    namespace = f"{deployed.options.namespace}-jobs"
    await deployed.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    transport = await connect(str(folder / "operator.kubeconfig"))
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off"})
    operator = RunningOperator(
        transport, frameworks=[PyTorchJob], clock=time.time, rng=random.Random(0), settings=settings, options=Options(autoscaler=True)
    )
    try:
        async with ScriptedKubelet(deployed.admin, namespace=namespace, time_scale=0.05):
            await deployed.admin.patch(NODES, NODE_NAME, {"metadata": {"labels": {_LABEL: "true"}}, "spec": {"taints": None}})
            operator.start()
            yield namespace
    finally:
        await operator.stop()
        await transport.close()
        await deployed.admin.delete(NAMESPACES, namespace)
        await deployed.admin.delete(NODES, NODE_NAME)


async def set_cpus(deployed: DeployedOperator, cpus: int) -> None:
    allocatable = {"cpu": str(cpus), "memory": "64Gi", "pods": "110"}
    await deployed.admin.patch(NODES, NODE_NAME, {"status": {"allocatable": allocatable}}, subresource="status")


async def running_pods(deployed: DeployedOperator, namespace: str) -> dict[str, str]:
    """UIDs by name."""
    pods = (await deployed.admin.list(PODS, namespace=namespace))["items"]
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods if pod["status"].get("phase") == "Running"}


async def until_running(deployed: DeployedOperator, namespace: str, *, count: int) -> dict[str, str]:
    async with asyncio.timeout(60):
        while True:
            uids = await running_pods(deployed, namespace)
            if len(uids) == count:
                return uids
            await asyncio.sleep(0.1)


async def test_a_job_is_scaled_with_the_permission_to_read_nodes(cluster_with_nodes: RealCluster, tmp_path: Path) -> None:
    async with (
        deploy_operator(cluster_with_nodes, tmp_path, one_namespace=False, kinds=(PyTorchJob,)) as deployed,
        running_autoscaler(deployed, tmp_path) as namespace,
    ):
        await set_cpus(deployed, 10_000)
        await deployed.admin.create(JOBS, elastic_job(), namespace=namespace)
        first = await until_running(deployed, namespace, count=2)
        await asyncio.sleep(_STAYS_SECONDS)
        assert await running_pods(deployed, namespace) == first
        grants = find_grants(["nodes"], [PyTorchJob])
        await apply(deployed.admin, permission_set_rbac(grants, deployed.options.account), report=discard)
        grown = await until_running(deployed, namespace, count=6)
        assert first.items() <= grown.items()
        await set_cpus(deployed, 1_000)
        shrunk = await until_running(deployed, namespace, count=2)
        assert shrunk == first
        record = (await deployed.admin.get(JOBS, "elastic", namespace=namespace))["status"]["dlop"]
        assert [each["change"] for each in record["scaleRecords"]] == [4, -4]
        events = (await deployed.admin.list(EVENTS, namespace=namespace))["items"]
        assert len([event for event in events if event["reason"] == "Scaled"]) == 2
