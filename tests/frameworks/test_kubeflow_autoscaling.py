"""The HorizontalPodAutoscaler of an elastic PyTorchJob with metrics."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import generate_latest

from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.client import PatchType
from dlop.kube.resources import HORIZONTAL_POD_AUTOSCALERS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import manifest

METRICS: list[JsonObject] = [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]


def elastic(**more: Any) -> JsonObject:
    policy = {"minReplicas": 1, "maxReplicas": 3, "metrics": METRICS, **more}
    return manifest(PyTorchJob, {"Worker": 2}, elasticPolicy=policy)


def autoscalers(kit: OperatorKit) -> list[JsonObject]:
    return [stored.body for _, stored in kit.cluster.store.list("horizontalpodautoscalers.autoscaling", namespace="default")]


@virtual_time
async def test_the_autoscaler_is_created_updated_and_deleted_with_the_policy() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(elastic())
        await kit.until(job, phase="Running")
        [autoscaler] = autoscalers(kit)
        assert autoscaler["metadata"]["name"] == "demo"
        assert autoscaler["metadata"]["ownerReferences"][0]["uid"] == job.body["metadata"]["uid"]
        assert autoscaler["spec"] == {
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "demo"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": METRICS,
        }
        await kit.edit(job, {"spec": {"elasticPolicy": {"maxReplicas": 5}}})
        await kit.until(job, reached=lambda _: autoscalers(kit)[0]["spec"]["maxReplicas"] == 5)
        assert await kit.writes_when_idle() == []
        await kit.edit(job, {"spec": {"elasticPolicy": {"metrics": None}}})
        await kit.until(job, reached=lambda _: not autoscalers(kit))
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_suspended_job_has_no_autoscaler_until_it_is_resumed() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(elastic())
        await kit.until(job, phase="Running")
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(job, phase="Suspended", reached=lambda _: not autoscalers(kit))
        await kit.edit(job, {"spec": {"runPolicy": {"suspend": False}}})
        await kit.until(job, phase="Running", reached=lambda _: len(autoscalers(kit)) == 1)


@virtual_time
async def test_a_finished_job_has_no_autoscaler() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run().after(60).succeed()
        job = await kit.submit(elastic())
        await kit.until(job, phase="Running", reached=lambda _: len(autoscalers(kit)) == 1)
        await kit.until(job, phase="Succeeded", reached=lambda _: not autoscalers(kit))
        assert await kit.writes_when_idle() == []


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "Suspended"])
@virtual_time
async def test_the_autoscaler_that_kubeflows_operator_left_on_an_inactive_job_is_deleted(end: str) -> None:
    async with OperatorKit(frameworks=[PyTorchJob], operator=False) as kit:
        body = elastic()
        body["spec"]["runPolicy"] = {"suspend": end == "Suspended"}
        job = await kit.submit(body)
        await kit.client.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler_manifest(job.body["metadata"]["uid"]), namespace="default")
        await kit.client.create(HORIZONTAL_POD_AUTOSCALERS, autoscaler_manifest("", name="other"), namespace="default")
        conditions = [{"type": end, "status": "True", "reason": f"PyTorchJob{end}"}]
        status = {"status": {"conditions": conditions, "startTime": "2024-01-01T00:00:00Z"}}
        resource = PyTorchJob.job_type.resource
        await kit.client.patch(resource, "demo", status, namespace="default", patch_type=PatchType.MERGE, subresource="status")
        await kit.start_operator()
        await asyncio.sleep(60)
        assert [body["metadata"]["name"] for body in autoscalers(kit)] == ["other"]


def autoscaler_manifest(owner_uid: str, *, name: str = "demo") -> JsonObject:
    """An autoscaler as Kubeflow's operator creates it, with an owner reference only. Without `owner_uid` it has no owner."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": owner_uid, "controller": True}
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name}
    return {
        "apiVersion": HORIZONTAL_POD_AUTOSCALERS.api_version,
        "kind": HORIZONTAL_POD_AUTOSCALERS.kind,
        "metadata": {"name": name, "ownerReferences": [owner] if owner_uid else []},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": METRICS},
    }


@virtual_time
async def test_status_updates_of_the_autoscaler_do_not_trigger_a_reconcile_pass() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        await kit.submit(elastic())
        await kit.until("default/demo", phase="Running", reached=lambda _: len(autoscalers(kit)) == 1)
        await asyncio.sleep(60)
        before = reconcile_passes(kit)
        for current in range(10):
            body = {"status": {"currentReplicas": current, "desiredReplicas": 2}}
            await kit.client.patch(HORIZONTAL_POD_AUTOSCALERS, "demo", body, namespace="default", subresource="status")
            await asyncio.sleep(15)
        assert reconcile_passes(kit) == before


def reconcile_passes(kit: OperatorKit) -> float:
    text = generate_latest(kit.operator.operator.metrics.registry).decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("controller_runtime_reconcile_total"))
