"""An elastic PyTorchJob with metrics has an autoscaler for as long as it goes on."""

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
async def test_the_autoscaler_is_that_of_the_policy_and_follows_it() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        job = await kit.submit(elastic())
        await kit.until(job, phase="Running")
        [found] = autoscalers(kit)
        assert found["metadata"]["name"] == "demo"
        assert found["metadata"]["ownerReferences"][0]["uid"] == job.body["metadata"]["uid"]
        assert found["spec"] == {
            "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "demo"},
            "minReplicas": 1,
            "maxReplicas": 3,
            "metrics": METRICS,
        }
        await kit.edit(job, {"spec": {"elasticPolicy": {"maxReplicas": 5}}})
        await kit.until(job, reached=lambda _: autoscalers(kit)[0]["spec"]["maxReplicas"] == 5)
        assert await kit.writes_at_rest() == []
        await kit.edit(job, {"spec": {"elasticPolicy": {"metrics": None}}})
        await kit.until(job, reached=lambda _: not autoscalers(kit))
        assert await kit.writes_at_rest() == []


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
async def test_bug_19_is_not_there_a_finished_job_has_no_autoscaler() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run().after(60).succeed()
        job = await kit.submit(elastic())
        await kit.until(job, phase="Running", reached=lambda _: len(autoscalers(kit)) == 1)
        await kit.until(job, phase="Succeeded", reached=lambda _: not autoscalers(kit))
        assert await kit.writes_at_rest() == []


@pytest.mark.parametrize("end", ["Succeeded", "Failed", "Suspended"])
@virtual_time
async def test_the_autoscaler_of_a_job_that_held_still_or_ended_under_the_old_operator_goes(end: str) -> None:
    async with OperatorKit(frameworks=[PyTorchJob], operator=False) as kit:
        body = elastic()
        body["spec"]["runPolicy"] = {"suspend": end == "Suspended"}
        job = await kit.submit(body)
        await kit.client.create(HORIZONTAL_POD_AUTOSCALERS, left_autoscaler(job.body["metadata"]["uid"]), namespace="default")
        await kit.client.create(HORIZONTAL_POD_AUTOSCALERS, left_autoscaler("", name="other"), namespace="default")
        conditions = [{"type": end, "status": "True", "reason": f"PyTorchJob{end}"}]
        status = {"status": {"conditions": conditions, "startTime": "2024-01-01T00:00:00Z"}}
        resource = PyTorchJob.job_type.resource
        await kit.client.patch(resource, "demo", status, namespace="default", patch_type=PatchType.MERGE, subresource="status")
        await kit.start_operator()
        await asyncio.sleep(60)
        assert [found["metadata"]["name"] for found in autoscalers(kit)] == ["other"]


def left_autoscaler(owner_uid: str, *, name: str = "demo") -> JsonObject:
    """An autoscaler as the old operator made it: it bears nothing but its owner. Without one, it is somebody else's."""
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name, "uid": owner_uid, "controller": True}
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": name}
    return {
        "apiVersion": HORIZONTAL_POD_AUTOSCALERS.api_version,
        "kind": HORIZONTAL_POD_AUTOSCALERS.kind,
        "metadata": {"name": name, "ownerReferences": [owner] if owner_uid else []},
        "spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": METRICS},
    }


@virtual_time
async def test_what_the_autoscaler_says_of_itself_every_few_seconds_is_nobodys_business() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        await kit.submit(elastic())
        await kit.until("default/demo", phase="Running", reached=lambda _: len(autoscalers(kit)) == 1)
        await asyncio.sleep(60)
        before = passes(kit)
        for current in range(10):
            body = {"status": {"currentReplicas": current, "desiredReplicas": 2}}
            await kit.client.patch(HORIZONTAL_POD_AUTOSCALERS, "demo", body, namespace="default", subresource="status")
            await asyncio.sleep(15)
        assert passes(kit) == before


def passes(kit: OperatorKit) -> float:
    text = generate_latest(kit.operator.operator.metrics.registry).decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("controller_runtime_reconcile_total"))
