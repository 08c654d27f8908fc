"""TFJob of kubeflow.org/v1 where the recordings say nothing: dynamic workers, domains, and who decides."""

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


def config(found: DLJob, name: str, index: int = 0) -> Any:
    return json.loads(environment(found, name, index)["TF_CONFIG"])


def test_hosts_end_with_the_domain_of_the_cluster_where_the_operator_was_told_it() -> None:
    found = job({"Worker": 2}, options=Options(cluster_domain="example.org"))
    assert config(found, "Worker")["cluster"] == {
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
def test_a_replica_of_a_cluster_that_changes_knows_itself_and_the_servers(name: str, index: int, cluster: Any) -> None:
    found = job({"Chief": 1, "PS": 2, "Worker": 2}, enableDynamicWorker=True)
    assert config(found, name, index) == {"cluster": cluster, "task": {"type": name.lower(), "index": index}}


def test_dynamic_workers_without_servers_are_told_that_there_are_none() -> None:
    assert config(job({"Worker": 2}, enableDynamicWorker=True), "Worker")["cluster"]["ps"] is None
    assert config(job({"PS": 0, "Worker": 2}, enableDynamicWorker=True), "Worker")["cluster"]["ps"] == []


def test_only_the_container_of_tensorflow_is_told() -> None:
    worker = role(TFJob, 2)
    worker["template"]["spec"]["containers"].append({"name": "logger", "image": "x"})
    found = job({"Worker": worker})
    assert "TF_CONFIG" in environment(found, "Worker", container=0)
    assert environment(found, "Worker", container=1) == {}


def test_roles_may_be_written_in_any_case() -> None:
    assert [each.name for each in job({"worker": 2, "ps": 1}).spec.roles] == ["PS", "Worker"]


@virtual_time
async def test_all_workers_are_waited_for_where_the_manifest_asks_all() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-worker-0").run().after(60).succeed()
        kit.script.when("*-worker-1").run().after(600).succeed()
        found = await kit.submit(manifest(TFJob, {"Worker": 2}, successPolicy="AllWorkers"))
        await kit.until(found, reached=lambda view: view.pod_phases.get("demo-worker-0") == "Succeeded")
        await kit.until(found, reached=lambda view: view.status["replicaStatuses"]["Worker"].get("succeeded") == 1)
        assert found.phase == "Running"
        await kit.until(found, phase="Succeeded")
        assert found.pod_phases == {"demo-worker-0": "Succeeded", "demo-worker-1": "Succeeded"}


@virtual_time
async def test_bug_13_is_not_there_a_job_does_not_both_succeed_and_fail() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-chief-*").run().after(60).succeed()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        found = await kit.submit(manifest(TFJob, {"Chief": 1, "Worker": 2}))
        await kit.until(found, phase="Succeeded")
        assert found.condition("Failed") is None


@virtual_time
async def test_bug_5_is_not_there_a_worker_that_is_deleted_is_replaced_and_the_job_goes_on() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*").run().after(600).succeed()
        found = await kit.submit(manifest(TFJob, {"Worker": 2}))
        await kit.until(found, phase="Running")
        first = found.pods["demo-worker-1"]["metadata"]["uid"]
        await kit.client.delete(PODS, "demo-worker-1", namespace="default")
        await kit.until(found, reached=lambda view: "demo-worker-1" in view.pods and view.pods["demo-worker-1"]["metadata"]["uid"] != first)
        await kit.until(found, phase="Succeeded")
        assert found.condition("Failed") is None


@virtual_time
async def test_a_dynamic_worker_may_fail_as_long_as_another_one_is_left() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-worker-0").run().after(600).fail(exit_code=1)
        kit.script.when("*-worker-1").run().after(60).fail(exit_code=1)
        found = await kit.submit(manifest(TFJob, {"Worker": 2}, enableDynamicWorker=True))
        await kit.until(found, reached=lambda view: view.status.get("replicaStatuses", {}).get("Worker", {}).get("failed") == 1)
        assert found.phase == "Running"
        await kit.until(found, phase="Failed")
        failed = found.condition("Failed")
        assert failed is not None
        assert failed["message"] == "TFJob default/demo has failed because 2 Worker replica(s) failed."


@virtual_time
async def test_all_dynamic_workers_may_fail_while_a_chief_leads_the_job() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        kit.script.when("*-chief-0").run().after(600).succeed()
        found = await kit.submit(manifest(TFJob, {"Chief": 1, "PS": 1, "Worker": 2}, enableDynamicWorker=True))
        await kit.until(found, reached=lambda view: view.status.get("replicaStatuses", {}).get("Worker", {}).get("failed") == 2)
        assert found.phase == "Running"
        await kit.until(found, phase="Succeeded")
        assert found.condition("Failed") is None
