"""PyTorchJob of kubeflow.org/v1 where the recordings say nothing: processes, elastic workers, and the end of a job."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import DLJob, Options
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.golden_player import Golden
from tests.frameworks.kubeflow_jobs import all_run, env
from tests.frameworks.kubeflow_manifests import environment, manifest, role, spec_of
from tests.unit.job.jobs import make


def job(roles: dict[str, Any], **more: Any) -> DLJob:
    return make(PyTorchJob, spec_of(PyTorchJob, roles, **more), name="demo")


@pytest.mark.parametrize(("given", "world", "told"), [("2", "6", "2"), ("gpu", "3", "gpu"), (None, "3", "auto")])
def test_the_world_counts_processes_where_their_number_is_known(given: str | None, world: str, told: str) -> None:
    more = {} if given is None else {"nprocPerNode": given}
    found = environment(job({"Master": 1, "Worker": 2}, **more), "Worker", 1)
    assert (found["WORLD_SIZE"], found["PET_NPROC_PER_NODE"], found["RANK"], found["PET_NODE_RANK"]) == (world, told, "2", "2")


def test_workers_without_a_master_are_told_their_number_only() -> None:
    assert environment(job({"Worker": 3}), "Worker") == {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "3"}


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [({}, "2:2"), ({"minReplicas": 1}, "1:1"), ({"maxReplicas": 4}, "4:4"), ({"minReplicas": 1, "maxReplicas": 4}, "1:4")],
)
def test_a_bound_that_is_left_out_is_the_other_one(policy: dict[str, int], nodes: str) -> None:
    found = environment(job({"Worker": 2}, elasticPolicy=policy), "Worker")
    assert found["PET_NNODES"] == nodes
    assert (found["PET_RDZV_ENDPOINT"], found["PET_RDZV_BACKEND"]) == ("demo-worker-0:23456", "c10d")


@pytest.mark.parametrize(("policy", "nodes"), [({}, {"3:3"}), ({"maxReplicas": 4}, {"4:4"})])
@virtual_time
async def test_workers_that_are_scaled_are_all_told_the_same_also_where_the_policy_has_no_bounds(policy: Any, nodes: set[str]) -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        demo = await kit.submit(manifest(PyTorchJob, {"Worker": 2}, elasticPolicy=policy))
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.edit(demo, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        assert {env(pod)["PET_NNODES"] for pod in demo.pods.values()} == nodes


def test_bug_14_is_not_there_an_empty_list_of_settings_is_no_setting() -> None:
    assert "PET_RDZV_CONF" not in environment(job({"Worker": 2}, elasticPolicy={"rdzvConf": []}), "Worker")


def test_all_that_torchrun_can_be_told_is_told() -> None:
    policy = {
        "rdzvHost": "meet",
        "rdzvPort": 1,
        "rdzvBackend": "etcd",
        "rdzvId": "x",
        "rdzvConf": [{"key": "a", "value": "b"}],
        "standalone": True,
        "nProcPerNode": 4,
        "maxRestarts": 3,
    }
    assert environment(job({"Worker": 2}, elasticPolicy=policy), "Worker") == {
        "PYTHONUNBUFFERED": "1",
        "PET_RDZV_ENDPOINT": "meet:1",
        "PET_RDZV_BACKEND": "etcd",
        "PET_NNODES": "2:2",
        "PET_MAX_RESTARTS": "3",
        "PET_NPROC_PER_NODE": "4",
        "PET_RDZV_ID": "x",
        "PET_RDZV_CONF": "a=b",
        "PET_STANDALONE": "",
    }


def test_workers_wait_for_the_master_s_name_where_the_operator_is_told_to_let_them() -> None:
    options = Options(pytorch_init_container_image="alpine:3.10")
    found = make(PyTorchJob, spec_of(PyTorchJob, {"Master": 1, "Worker": 2}), name="demo", options=options)
    pods = {replica.name: replica.pod()["spec"] for replica in found.all_replicas()}
    recorded = Golden.read("pytorch-master-worker").body["objects"]["pods"]
    for name, pod in pods.items():
        assert pod.get("initContainers") == recorded[name]["spec"].get("initContainers")


def test_a_template_can_say_what_waits_and_is_filled_in_for_each_job() -> None:
    template = "- {name: wait, image: '{{.InitContainerImage}}', args: ['{{.MasterAddr}}', '{{.MaxTries}}']}\n- {name: then}\n"
    options = Options(pytorch_init_container_template=template, pytorch_init_container_max_tries=7)
    found = make(PyTorchJob, spec_of(PyTorchJob, {"Master": 1, "Worker": 1}), name="demo", options=options)
    pods = {replica.name: replica.pod()["spec"] for replica in found.all_replicas()}
    assert "initContainers" not in pods["demo-master-0"]
    assert pods["demo-worker-0"]["initContainers"] == [
        {"name": "wait", "image": "alpine:3.10", "args": ["demo-master-0", "7"]},
        {"name": "then"},
    ]


@virtual_time
async def test_bug_13_is_not_there_a_job_whose_master_is_done_has_succeeded_though_a_worker_fails_with_it() -> None:
    worker = role(PyTorchJob, 1, restartPolicy="Never")
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-master-*").run().after(60).succeed()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": worker}))
        await kit.until(found, reached=lambda view: view.condition("Succeeded") is not None or view.condition("Failed") is not None)
        assert [each["type"] for each in found.status["conditions"]] == ["Created", "Running", "Succeeded"]


@virtual_time
async def test_bug_4_is_not_there_a_failure_that_is_final_by_its_exit_code_has_a_completion_time_and_a_life_span() -> None:
    worker = role(PyTorchJob, 1, restartPolicy="ExitCode")
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-master-*").run()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": worker}, runPolicy={"ttlSecondsAfterFinished": 100}))
        await kit.until(found, phase="Failed")
        failed = found.condition("Failed")
        assert failed is not None
        assert (failed["reason"], failed["message"]) == (
            "PyTorchJobFailed",
            'job "demo" is failing because "Worker" replica(s) failed.',
        )
        assert found.status["completionTime"]
        await kit.until(found, reached=lambda view: not view.exists, within_seconds=200)


@virtual_time
async def test_bug_1_is_not_there_a_deadline_comes_by_itself() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1}, runPolicy={"activeDeadlineSeconds": 100}))
        await kit.until(found, phase="Failed", within_seconds=101)
        failed = found.condition("Failed")
        assert failed is not None
        assert failed["message"] == "Job demo has failed because it was active longer than specified deadline"
        assert failed["reason"] == "PyTorchJobFailed"


@virtual_time
async def test_bug_2_is_not_there_every_restart_counts() -> None:
    worker = role(PyTorchJob, 1, restartPolicy="ExitCode")
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-master-*").run()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=137)
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": worker}, runPolicy={"backoffLimit": 2}))
        await kit.until(found, phase="Failed")
        failed = found.condition("Failed")
        assert failed is not None
        assert failed["message"] == "Job demo has failed because it has reached the specified backoff limit"
        assert found.status["dlop"]["restarts"] == {"Worker": 3}


@virtual_time
async def test_a_replica_that_is_restarted_is_told_as_ever() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run().after(60).fail(exit_code=137)
        found = await kit.submit(manifest(PyTorchJob, {"Master": role(PyTorchJob, 1, restartPolicy="ExitCode")}))
        await kit.until(found, phase="Restarting")
        assert [each["type"] for each in found.status["conditions"]] == ["Created", "Restarting"]
        said = found.status["conditions"][-1]
        assert said["reason"] == "PyTorchJobRestarting"
        assert said["message"] == "job demo is restarting because Master replica(s) failed."
