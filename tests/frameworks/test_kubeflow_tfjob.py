"""TFJob of kubeflow.org/v1 beyond the recordings: dynamic workers, cluster domain and success policy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlop import DLJob, Options
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.resources import PODS
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import environment, manifest, role, spec_of
from tests.unit.job.jobs import make


def job(roles: dict[str, Any], *, options: Options | None = None, **more: Any) -> DLJob:
    return make(TFJob, spec_of(TFJob, roles, **more), name="demo", options=options)


def config(tf_job: DLJob, role_name: str, index: int = 0) -> Any:
    return json.loads(environment(tf_job, role_name, index)["TF_CONFIG"])


def test_host_names_end_with_the_configured_cluster_domain() -> None:
    demo = job({"Worker": 2}, options=Options(cluster_domain="example.org"))
    assert config(demo, "Worker")["cluster"] == {
        "worker": ["demo-worker-0.lab.svc.example.org:2222", "demo-worker-1.lab.svc.example.org:2222"]
    }


@pytest.mark.parametrize(
    ("name", "index", "cluster"),
    [
        ("Worker", 1, {"worker": {"1": "demo-worker-1.lab.svc:2222"}, "ps": ["demo-ps-0.lab.svc:2222", "demo-ps-1.lab.svc:2222"]}),
        ("PS", 1, {"worker": {}, "ps": ["demo-ps-1.lab.svc:2222"]}),
        ("Chief", 0, {"worker": {}, "ps": []}),
    ],
)
def test_tf_config_of_a_dynamic_cluster_is_sparse(name: str, index: int, cluster: Any) -> None:
    demo = job({"Chief": 1, "PS": 2, "Worker": 2}, enableDynamicWorker=True)
    assert config(demo, name, index) == {"cluster": cluster, "task": {"type": name.lower(), "index": index}}


def test_tf_config_of_dynamic_workers_without_parameter_servers() -> None:
    assert config(job({"Worker": 2}, enableDynamicWorker=True), "Worker")["cluster"]["ps"] is None
    assert config(job({"PS": 0, "Worker": 2}, enableDynamicWorker=True), "Worker")["cluster"]["ps"] == []


def test_only_the_tensorflow_container_has_tf_config() -> None:
    worker = role(TFJob, 2)
    worker["template"]["spec"]["containers"].append({"name": "logger", "image": "x"})
    demo = job({"Worker": worker})
    assert "TF_CONFIG" in environment(demo, "Worker", container=0)
    assert environment(demo, "Worker", container=1) == {}


def test_role_names_are_case_insensitive() -> None:
    assert [role_spec.name for role_spec in job({"worker": 2, "ps": 1}).spec.roles] == ["PS", "Worker"]


@virtual_time
async def test_the_success_policy_all_workers_requires_all_workers() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-worker-0").run().after(60).succeed()
        kit.script.when("*-worker-1").run().after(600).succeed()
        demo = await kit.submit(manifest(TFJob, {"Worker": 2}, successPolicy="AllWorkers"))
        await kit.until(demo, reached=lambda view: view.pod_phases.get("demo-worker-0") == "Succeeded")
        await kit.until(demo, reached=lambda view: view.status["replicaStatuses"]["Worker"].get("succeeded") == 1)
        assert demo.phase == "Running"
        await kit.until(demo, phase="Succeeded")
        assert demo.pod_phases == {"demo-worker-0": "Succeeded", "demo-worker-1": "Succeeded"}


@virtual_time
async def test_a_job_that_succeeds_with_its_chief_is_not_failed_by_workers() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-chief-*").run().after(60).succeed()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        demo = await kit.submit(manifest(TFJob, {"Chief": 1, "Worker": 2}))
        await kit.until(demo, phase="Succeeded")
        assert demo.condition("Failed") is None


@virtual_time
async def test_a_deleted_worker_is_replaced_and_the_job_continues() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*").run().after(600).succeed()
        demo = await kit.submit(manifest(TFJob, {"Worker": 2}))
        await kit.until(demo, phase="Running")
        first = demo.pods["demo-worker-1"]["metadata"]["uid"]
        await kit.client.delete(PODS, "demo-worker-1", namespace="default")
        await kit.until(demo, reached=lambda view: "demo-worker-1" in view.pods and view.pods["demo-worker-1"]["metadata"]["uid"] != first)
        await kit.until(demo, phase="Succeeded")
        assert demo.condition("Failed") is None


@virtual_time
async def test_a_failed_dynamic_worker_is_tolerated_while_another_one_is_active() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-worker-0").run().after(600).fail(exit_code=1)
        kit.script.when("*-worker-1").run().after(60).fail(exit_code=1)
        demo = await kit.submit(manifest(TFJob, {"Worker": 2}, enableDynamicWorker=True))
        await kit.until(demo, reached=lambda view: view.status.get("replicaStatuses", {}).get("Worker", {}).get("failed") == 1)
        assert demo.phase == "Running"
        await kit.until(demo, phase="Failed")
        failed = demo.condition("Failed")
        assert failed is not None
        assert failed["message"] == "TFJob default/demo has failed because 2 Worker replica(s) failed."


@virtual_time
async def test_all_dynamic_workers_may_fail_if_the_job_has_a_chief() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        kit.script.when("*-chief-0").run().after(600).succeed()
        demo = await kit.submit(manifest(TFJob, {"Chief": 1, "PS": 1, "Worker": 2}, enableDynamicWorker=True))
        await kit.until(demo, reached=lambda view: view.status.get("replicaStatuses", {}).get("Worker", {}).get("failed") == 2)
        assert demo.phase == "Running"
        await kit.until(demo, phase="Succeeded")
        assert demo.condition("Failed") is None
