"""PyTorchJob of kubeflow.org/v1 beyond the recordings: processes per node, elastic workers, init containers and results."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import DLJob, Options
from dlop.frameworks.kubeflow.pytorch_init import PyTorchFlags
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.golden_recordings import Golden
from tests.frameworks.kubeflow_jobs import all_run, env
from tests.frameworks.kubeflow_manifests import environment, manifest, role, spec_of
from tests.unit.job.jobs import make


def job(roles: dict[str, Any], **more: Any) -> DLJob:
    return make(PyTorchJob, spec_of(PyTorchJob, roles, **more), name="demo")


@pytest.mark.parametrize(("processes", "world_size", "expected"), [("2", "6", "2"), ("gpu", "3", "gpu"), (None, "3", "auto")])
def test_the_world_size_counts_processes_if_their_number_is_known(processes: str | None, world_size: str, expected: str) -> None:
    more = {} if processes is None else {"nprocPerNode": processes}
    env = environment(job({"Master": 1, "Worker": 2}, **more), "Worker", 1)
    assert (env["WORLD_SIZE"], env["PET_NPROC_PER_NODE"], env["RANK"], env["PET_NODE_RANK"]) == (world_size, expected, "2", "2")


def test_workers_without_a_master_have_no_rank() -> None:
    assert environment(job({"Worker": 3}), "Worker") == {"PYTHONUNBUFFERED": "1", "PET_NPROC_PER_NODE": "auto", "PET_NNODES": "3"}


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [({}, "2:2"), ({"minReplicas": 1}, "1:1"), ({"maxReplicas": 4}, "4:4"), ({"minReplicas": 1, "maxReplicas": 4}, "1:4")],
)
def test_each_bound_of_an_elastic_policy_defaults_to_the_other_one(policy: dict[str, int], nodes: str) -> None:
    env = environment(job({"Worker": 2}, elasticPolicy=policy), "Worker")
    assert env["PET_NNODES"] == nodes
    assert (env["PET_RDZV_ENDPOINT"], env["PET_RDZV_BACKEND"]) == ("demo-worker-0:23456", "c10d")


@pytest.mark.parametrize(("policy", "nodes"), [({}, {"3:3"}), ({"maxReplicas": 4}, {"4:4"})])
@virtual_time
async def test_all_workers_have_the_same_number_of_nodes_after_scaling(policy: Any, nodes: set[str]) -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        demo = await kit.submit(manifest(PyTorchJob, {"Worker": 2}, elasticPolicy=policy))
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.edit(demo, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(demo, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        assert {env(pod)["PET_NNODES"] for pod in demo.pods.values()} == nodes


def test_an_empty_list_of_rendezvous_settings_is_ignored() -> None:
    assert "PET_RDZV_CONF" not in environment(job({"Worker": 2}, elasticPolicy={"rdzvConf": []}), "Worker")


def test_all_fields_of_an_elastic_policy_are_in_the_environment() -> None:
    policy = {
        "rdzvHost": "rendezvous",
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
        "PET_RDZV_ENDPOINT": "rendezvous:1",
        "PET_RDZV_BACKEND": "etcd",
        "PET_NNODES": "2:2",
        "PET_MAX_RESTARTS": "3",
        "PET_NPROC_PER_NODE": "4",
        "PET_RDZV_ID": "x",
        "PET_RDZV_CONF": "a=b",
        "PET_STANDALONE": "",
    }


def test_workers_have_the_recorded_init_container_if_its_image_is_configured() -> None:
    options = Options(framework_flags=(PyTorchFlags(pytorch_init_container_image="alpine:3.10"),))
    demo = make(PyTorchJob, spec_of(PyTorchJob, {"Master": 1, "Worker": 2}), name="demo", options=options)
    pods = {replica.name: replica.pod()["spec"] for replica in demo.all_replicas()}
    recorded = Golden.read("pytorch-master-worker").body["objects"]["pods"]
    for name, pod in pods.items():
        assert pod.get("initContainers") == recorded[name]["spec"].get("initContainers")


def test_init_containers_come_from_a_template_if_one_is_configured() -> None:
    template = "- {name: wait, image: '{{.InitContainerImage}}', args: ['{{.MasterAddr}}', '{{.MaxTries}}']}\n- {name: then}\n"
    flags = PyTorchFlags(pytorch_init_container_template_file=template, pytorch_init_container_max_tries=7)
    options = Options(framework_flags=(flags,))
    demo = make(PyTorchJob, spec_of(PyTorchJob, {"Master": 1, "Worker": 1}), name="demo", options=options)
    pods = {replica.name: replica.pod()["spec"] for replica in demo.all_replicas()}
    assert "initContainers" not in pods["demo-master-0"]
    assert pods["demo-worker-0"]["initContainers"] == [
        {"name": "wait", "image": "alpine:3.10", "args": ["demo-master-0", "7"]},
        {"name": "then"},
    ]


@virtual_time
async def test_a_job_succeeds_with_its_master_even_if_a_worker_fails_at_the_same_time() -> None:
    worker = role(PyTorchJob, 1, restartPolicy="Never")
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-master-*").run().after(60).succeed()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        demo = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": worker}))
        await kit.until(demo, reached=lambda view: view.condition("Succeeded") is not None or view.condition("Failed") is not None)
        assert [condition["type"] for condition in demo.status["conditions"]] == ["Created", "Running", "Succeeded"]


@virtual_time
async def test_a_job_that_fails_by_a_permanent_exit_code_has_a_completion_time_and_a_ttl() -> None:
    worker = role(PyTorchJob, 1, restartPolicy="ExitCode")
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-master-*").run()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=1)
        demo = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": worker}, runPolicy={"ttlSecondsAfterFinished": 100}))
        await kit.until(demo, phase="Failed")
        failed = demo.condition("Failed")
        assert failed is not None
        assert (failed["reason"], failed["message"]) == (
            "PyTorchJobFailed",
            'job "demo" is failing because "Worker" replica(s) failed.',
        )
        assert demo.status["completionTime"]
        await kit.until(demo, reached=lambda view: not view.exists, within_seconds=200)


@virtual_time
async def test_the_active_deadline_fails_the_job_without_another_event() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        demo = await kit.submit(manifest(PyTorchJob, {"Master": 1}, runPolicy={"activeDeadlineSeconds": 100}))
        await kit.until(demo, phase="Failed", within_seconds=101)
        failed = demo.condition("Failed")
        assert failed is not None
        assert failed["message"] == "Job demo has failed because it was active longer than specified deadline"
        assert failed["reason"] == "PyTorchJobFailed"


@virtual_time
async def test_the_backoff_limit_counts_every_restart() -> None:
    worker = role(PyTorchJob, 1, restartPolicy="ExitCode")
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*-master-*").run()
        kit.script.when("*-worker-*").run().after(60).fail(exit_code=137)
        demo = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": worker}, runPolicy={"backoffLimit": 2}))
        await kit.until(demo, phase="Failed")
        failed = demo.condition("Failed")
        assert failed is not None
        assert failed["message"] == "Job demo has failed because it has reached the specified backoff limit"
        assert demo.status["dlop"]["restarts"] == {"Worker": 3}


@virtual_time
async def test_the_restarting_condition_of_a_job() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run().after(60).fail(exit_code=137)
        demo = await kit.submit(manifest(PyTorchJob, {"Master": role(PyTorchJob, 1, restartPolicy="ExitCode")}))
        await kit.until(demo, phase="Restarting")
        assert [condition["type"] for condition in demo.status["conditions"]] == ["Created", "Restarting"]
        restarting = demo.status["conditions"][-1]
        assert restarting["reason"] == "PyTorchJobRestarting"
        assert restarting["message"] == "job demo is restarting because Master replica(s) failed."
