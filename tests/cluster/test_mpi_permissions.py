"""MPI jobs on the real API server, with and without the optional permissions for MPI."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from real_cluster import RealCluster

from dlop.deploy.apply import apply
from dlop.deploy.rbac import find_permission_sets, permission_set_rbac
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import EVENTS, NAMESPACES, PODS
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from tests.cluster.deployed_operator import DeployedOperator, deploy_operator

JOBS = MPIJob.job_type.resource
TIMEOUT_SECONDS = 90.0


def job() -> JsonObject:
    template = {"spec": {"containers": [{"name": "mpi", "image": "example.org/train:1"}]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "demo"}, "spec": {"mpiReplicaSpecs": roles}}


@asynccontextmanager
async def run_operator(deployed: DeployedOperator, folder: Path, namespace: str) -> AsyncIterator[None]:
    """Run an operator with the permissions of its service account, and a kubelet, for one namespace."""
    transport = await connect(str(folder / "operator.kubeconfig"))
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[MPIJob], clock=time.time, rng=random.Random(0), settings=settings)
    try:
        async with ScriptedKubelet(deployed.admin, namespace=namespace):
            operator.start()
            yield
    finally:
        await operator.stop()
        await transport.close()


async def wait_for_condition(
    client: Client, namespace: str, condition: str, predicate: Callable[[JsonObject], bool] = lambda _: True
) -> JsonObject:
    """Wait until a condition is True and satisfies the predicate, and return it."""
    async with asyncio.timeout(TIMEOUT_SECONDS), client.watch(JOBS, namespace=namespace, bookmarks=False) as events:
        async for event in events:
            conditions = event.decode().get("status", {}).get("conditions", ())
            current: JsonObject | None = next((item for item in conditions if item["type"] == condition and item["status"] == "True"), None)
            if current is not None and predicate(current):
                return current
    raise AssertionError("the watch ended")


async def test_an_mpi_job_reports_missing_permissions_and_runs_when_they_are_granted(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,)) as deployed:
        # A namespace without pod security enforcement, unlike that of the operator.
        namespace = f"{deployed.options.namespace}-jobs"
        await deployed.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        async with run_operator(deployed, tmp_path, namespace):
            await deployed.admin.create(JOBS, job(), namespace=namespace)
            blocked = await wait_for_condition(deployed.admin, namespace, "Blocked")
            assert blocked["reason"] == "Forbidden"
            assert "rolebindings.rbac.authorization.k8s.io" in blocked["message"]
            assert "add `--with mpi` to the `dlop deploy` line that was used" in blocked["message"]
            assert (await deployed.admin.list(PODS, namespace=namespace))["items"] == []
            await apply(
                deployed.admin,
                permission_set_rbac(find_permission_sets(["mpi"], [MPIJob]), deployed.options.account, [namespace]),
                report=lambda _: None,
            )
            await wait_for_condition(deployed.admin, namespace, "Running")
        events = (await deployed.admin.list(EVENTS, namespace=namespace))["items"]
        assert [event["note"] for event in events if event["reason"] == "Forbidden"] == [blocked["message"]]
        await deployed.admin.delete(NAMESPACES, namespace)
