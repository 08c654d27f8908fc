"""MPI jobs on the real API server, with and without the optional permissions for MPI."""

from __future__ import annotations

from pathlib import Path

from real_cluster import RealCluster

from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.kube.resources import EVENTS, PODS
from dlop.kube.types import JsonObject
from tests.cluster.deployed_operator import deploy_operator
from tests.cluster.restricted_operator import grant, run_restricted_operator, wait_for_condition

JOBS = MPIJob.job_type.resource


def job() -> JsonObject:
    template = {"spec": {"containers": [{"name": "mpi", "image": "example.org/train:1"}]}}
    roles = {"Launcher": {"template": template}, "Worker": {"replicas": 2, "template": template}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "demo"}, "spec": {"mpiReplicaSpecs": roles}}


async def test_an_mpi_job_reports_missing_permissions_and_runs_when_they_are_granted(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with (
        deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(MPIJob,)) as deployed,
        run_restricted_operator(deployed, tmp_path, kind=MPIJob) as namespace,
    ):
        await deployed.admin.create(JOBS, job(), namespace=namespace)
        blocked = await wait_for_condition(deployed.admin, JOBS, "demo", "Blocked", namespace=namespace)
        assert blocked["reason"] == "Forbidden"
        assert "rolebindings.rbac.authorization.k8s.io" in blocked["message"]
        assert f"add `--with mpi:{namespace}`, or `--with mpi` for all namespaces, to the `dlop deploy` line" in blocked["message"]
        assert (await deployed.admin.list(PODS, namespace=namespace))["items"] == []
        await grant(deployed, "mpi", kind=MPIJob, namespace=namespace)
        await wait_for_condition(deployed.admin, JOBS, "demo", "Running", namespace=namespace)
        events = (await deployed.admin.list(EVENTS, namespace=namespace))["items"]
        assert [event["note"] for event in events if event["reason"] == "Forbidden"] == [blocked["message"]]
