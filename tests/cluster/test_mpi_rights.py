"""MPI jobs on the real API server, under an operator with the rights of its service account: those of everybody, and those for MPI."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from real_cluster import RealCluster

from dlop.deploy.apply import apply
from dlop.deploy.rbac import given
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import EVENTS, NAMESPACES, PODS
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import Kubelet
from dlop.testing.operator_runner import RunningOperator
from tests.cluster.test_rights import Place, deployed

JOBS = MPIJob.job_type.resource
PATIENCE_SECONDS = 90.0


def job() -> JsonObject:
    template = {"spec": {"containers": [{"name": "mpi", "image": "example.org/train:1"}]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "demo"}, "spec": {"mpiReplicaSpecs": roles}}


@asynccontextmanager
async def operating(place: Place, folder: Path, namespace: str) -> AsyncIterator[None]:
    """An operator with the rights of its account, and a kubelet, for jobs of one namespace."""
    transport = await connect(str(folder / "operator.kubeconfig"))
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=[MPIJob], clock=time.time, rng=random.Random(0), settings=settings)
    try:
        async with Kubelet(place.admin, namespace=namespace):
            operator.start()
            yield
    finally:
        await operator.stop()
        await transport.close()


async def until(client: Client, namespace: str, condition: str, holds: Callable[[JsonObject], bool] = lambda _: True) -> JsonObject:
    """Wait until a condition of the job holds."""
    async with asyncio.timeout(PATIENCE_SECONDS), client.watch(JOBS, namespace=namespace, bookmarks=False) as events:
        async for event in events:
            conditions = event.decode().get("status", {}).get("conditions", ())
            found: JsonObject | None = next((each for each in conditions if each["type"] == condition and each["status"] == "True"), None)
            if found is not None and holds(found):
                return found
    raise AssertionError("the watch has ended")


async def test_an_mpi_job_tells_what_rights_the_operator_lacks_and_runs_when_it_has_them(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with deployed(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,)) as place:
        # One that takes pods of any sort, unlike that of the operator.
        namespace = f"{place.chosen.namespace}-jobs"
        await place.admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        async with operating(place, tmp_path, namespace):
            await place.admin.create(JOBS, job(), namespace=namespace)
            blocked = await until(place.admin, namespace, "Blocked")
            assert blocked["reason"] == "Forbidden"
            assert "rolebindings.rbac.authorization.k8s.io" in blocked["message"]
            assert "add `--with mpi` to the `dlop deploy` line that was used" in blocked["message"]
            assert (await place.admin.list(PODS, namespace=namespace))["items"] == []
            assert MPIJob.optional_rights is not None
            await apply(place.admin, given([MPIJob.optional_rights], place.chosen.account, [namespace]), say=lambda _: None)
            await until(place.admin, namespace, "Running")
        told = (await place.admin.list(EVENTS, namespace=namespace))["items"]
        assert [event["note"] for event in told if event["reason"] == "Forbidden"] == [blocked["message"]]
        await place.admin.delete(NAMESPACES, namespace)
