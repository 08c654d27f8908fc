"""The kinds of kubeflow.org/v1 where the recordings say nothing: roles, environments, names, and jobs of the operator before."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlop import DLJob, SpecError
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.pod_steps import Exit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import KINDS, environment, manifest, role, spec_of
from tests.unit.job.jobs import make

OLD_LABELS = ("operator-name", "job-name", "replica-type", "replica-index", "job-role")


def job(kind: type[DLJob], roles: dict[str, Any], **more: Any) -> DLJob:
    return make(kind, spec_of(kind, roles, **more), name="demo")


def test_paddle_with_masters_tells_servers_from_trainers() -> None:
    found = job(PaddleJob, {"Master": 2, "Worker": 2})
    common = {"PYTHONUNBUFFERED": "1", "PADDLE_JOB_ID": "demo", "PADDLE_NNODES": "4"}
    assert environment(found, "Master", 0) == {
        "POD_IP_DUMMY": "status.podIP",
        **common,
        "PADDLE_MASTER": "$(POD_IP_DUMMY):36543",
        "PADDLE_SERVER_NUM": "1",
    }
    assert environment(found, "Master", 1) == {**common, "PADDLE_MASTER": "demo-master-0:36543", "PADDLE_SERVER_NUM": "1"}
    assert environment(found, "Worker", 0) == {**common, "PADDLE_MASTER": "demo-master-0:36543", "PADDLE_TRAINER_NUM": "1"}


def test_a_variable_that_refers_to_the_pod_comes_after_what_it_refers_to() -> None:
    assert next(iter(environment(job(PaddleJob, {"Worker": 1}), "Worker"))) == "POD_IP_DUMMY"


def test_xgboost_alone_has_no_workers_to_look_for() -> None:
    found = environment(job(XGBoostJob, {"Master": 1}), "Master")
    assert found == {"MASTER_PORT": "9999", "MASTER_ADDR": "demo-master-0", "WORLD_SIZE": "1", "RANK": "0", "PYTHONUNBUFFERED": "1"}


def test_mxnet_without_a_scheduler_is_told_so() -> None:
    found = environment(job(MXJob, {"Worker": 1}), "Worker")
    assert (found["DMLC_PS_ROOT_PORT"], found["DMLC_PS_ROOT_URI"], found["DMLC_NUM_SERVER"]) == ("0", "", "0")


def test_tuning_roles_are_told_the_key_of_their_devices() -> None:
    server = role(MXJob)
    server["template"]["metadata"] = {"annotations": {"tuner-server-key": "v100"}}
    found = environment(job(MXJob, {"TunerTracker": 1, "TunerServer": server, "Tuner": 1}), "Tuner")
    config = json.loads(found["MX_CONFIG"])
    assert config["labels"] == {"tuner": "", "tunerserver": "v100", "tunertracker": ""}
    assert config["task"] == {"type": "tuner", "index": 0}


@virtual_time
async def test_bug_23_is_not_there_a_tuning_job_is_done_when_its_tuner_is() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-tuner-0").run().after(60).succeed()
        kit.script.when("*").run()
        found = await kit.submit(manifest(MXJob, {"TunerTracker": 1, "TunerServer": 1, "Tuner": 1}))
        await kit.until(found, phase="Running")
        await kit.until(found, phase="Succeeded")


@pytest.mark.parametrize(("exit_code", "end"), [(0, "Succeeded"), (1, "Failed")])
@virtual_time
async def test_an_xgboost_job_that_ends_before_anybody_has_seen_it_run_is_told_to_have_run(exit_code: int, end: str) -> None:
    async with OperatorKit(frameworks=[XGBoostJob]) as kit:
        kit.script.when("*").then(Exit(exit_code))
        found = await kit.submit(manifest(XGBoostJob, {"Master": 1}))
        await kit.until(found, phase=end)
        told = [(each["type"], each["status"], each["reason"]) for each in found.status["conditions"]]
        assert told == [
            ("Created", "True", "XGBoostJobCreated"),
            ("Running", "False", "XGBoostJobRunning"),
            (end, "True", f"XGBoostJob{end}"),
        ]
        assert await kit.writes_at_rest() == []


@pytest.mark.parametrize("kind", KINDS)
def test_bug_16_is_not_there_names_fit_a_service_however_long_that_of_the_job_is(kind: type[DLJob]) -> None:
    found = make(kind, spec_of(kind, {kind.replica_types[0].name: 1}), name="n" * 63)
    pod = found.make_pod(found.spec.roles[0], 0, attempt=0)
    assert len(pod["metadata"]["name"]) <= 63
    assert all(len(value) <= 63 for value in pod["metadata"]["labels"].values())


@pytest.mark.parametrize("kind", [TFJob, JAXJob, PaddleJob])
@virtual_time
async def test_bug_3_is_not_there_no_replicas_are_no_pods(kind: type[DLJob]) -> None:
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when("*").run()
        found = await kit.submit(manifest(kind, {"Worker": 0}))
        await kit.until(found, reached=lambda view: view.condition("Created") is not None)
        assert await kit.writes_at_rest() == []
        assert found.pods == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_was_stored_before_is_refused_with_the_path_of_its_mistake(kind: type[DLJob]) -> None:
    name = kind.replica_types[0].name
    spec = spec_of(kind, {name: 1})
    spec[kind.replica_specs_field][name]["template"]["spec"]["containers"] = []
    with pytest.raises(SpecError, match=rf"spec\.{kind.replica_specs_field}\.{name}\.template\.spec\.containers"):
        _ = make(kind, spec).spec


@virtual_time
async def test_a_running_job_of_the_operator_before_goes_on_with_its_pods() -> None:
    async with OperatorKit(frameworks=[PyTorchJob], operator=False) as kit:
        kit.script.when("*").run().after(600).succeed()
        found = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": 2}))
        await leave_behind(kit, found.body)
        uids = {name: pod["metadata"]["uid"] for name, pod in found.pods.items()}
        await kit.start_operator()
        await kit.until(found, phase="Running")
        assert {name: pod["metadata"]["uid"] for name, pod in found.pods.items()} == uids
        assert {write.request.path for write in kit.writes if "/pods" in write.request.path or "/services" in write.request.path} == set()
        await kit.until(found, phase="Succeeded")
        assert {name: pod["metadata"]["uid"] for name, pod in found.pods.items()} == uids


async def leave_behind(kit: OperatorKit, body: JsonObject) -> None:
    """Pods and services as the operator before made them: nothing on them tells of dlop."""
    meta = body["metadata"]
    about: JsonObject = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "generation": meta["generation"]}
    found = make(PyTorchJob, body["spec"], **about)
    for each in found.spec.roles:
        for index in range(each.replicas):
            service = found.make_service(each, index)
            assert service is not None
            for resource, child in ((SERVICES, service), (PODS, found.make_pod(each, index, attempt=0))):
                labels = child["metadata"]["labels"]
                child["metadata"]["labels"] = {name: value for name, value in labels.items() if name.partition("/")[2] in OLD_LABELS}
                child["metadata"].pop("annotations", None)
                child["spec"].pop("publishNotReadyAddresses", None)
                await kit.client.create(resource, child, namespace="default")
