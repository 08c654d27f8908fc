"""PyTorch jobs on the real API server, with and without the optional permissions for autoscalers."""

from __future__ import annotations

from pathlib import Path

from real_cluster import RealCluster

from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.resources import EVENTS, HORIZONTAL_POD_AUTOSCALERS, PODS
from dlop.kube.types import JsonObject
from tests.cluster.deployed_operator import deploy_operator
from tests.cluster.restricted_operator import grant, run_restricted_operator, wait_for_condition

JOBS = PyTorchJob.job_type.resource
VERBS = ("get", "list", "watch", "create", "patch", "delete")
METRICS = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]


def job(name: str, policy: JsonObject) -> JsonObject:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example.org/train:1"}]}}
    spec = {"elasticPolicy": policy, "pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name}, "spec": spec}


async def test_only_a_job_with_metrics_needs_the_permissions_for_autoscalers(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with (
        deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(PyTorchJob,)) as deployed,
        run_restricted_operator(deployed, tmp_path, kind=PyTorchJob) as namespace,
    ):
        denied = [(HORIZONTAL_POD_AUTOSCALERS.group, HORIZONTAL_POD_AUTOSCALERS.plural, verb) for verb in VERBS]
        assert await deployed.unexpected(denied, expected=False, namespace=namespace) == []
        bounds = {"minReplicas": 1, "maxReplicas": 2}
        await deployed.admin.create(JOBS, job("plain", bounds), namespace=namespace)
        await deployed.admin.create(JOBS, job("scaled", {**bounds, "metrics": METRICS}), namespace=namespace)
        await wait_for_condition(deployed.admin, JOBS, "plain", "Running", namespace=namespace)
        blocked = await wait_for_condition(deployed.admin, JOBS, "scaled", "Blocked", namespace=namespace)
        assert blocked["reason"] == "Forbidden"
        assert "horizontalpodautoscalers.autoscaling" in blocked["message"]
        assert f"add `--with hpa:{namespace}`, or `--with hpa` for all namespaces, to the `dlop deploy` line" in blocked["message"]
        pods = (await deployed.admin.list(PODS, namespace=namespace))["items"]
        assert [pod["metadata"]["name"] for pod in pods] == ["plain-worker-0"]
        await grant(deployed, "hpa", kind=PyTorchJob, namespace=namespace)
        await wait_for_condition(deployed.admin, JOBS, "scaled", "Running", namespace=namespace)
        autoscalers = (await deployed.admin.list(HORIZONTAL_POD_AUTOSCALERS, namespace=namespace))["items"]
        assert [autoscaler["metadata"]["name"] for autoscaler in autoscalers] == ["scaled"]
        events = (await deployed.admin.list(EVENTS, namespace=namespace))["items"]
        assert [event["regarding"]["name"] for event in events if event["reason"] == "Forbidden"] == ["scaled"]
