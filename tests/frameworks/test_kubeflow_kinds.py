"""The kinds of kubeflow.org/v1 beyond the recordings: roles, environment, names, and adoption of existing pods."""

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
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import KINDS, environment, manifest, role, spec_of
from tests.unit.job.jobs import make

KUBEFLOW_LABELS = ("operator-name", "job-name", "replica-type", "replica-index", "job-role")


def job(kind: type[DLJob], roles: dict[str, Any], **more: Any) -> DLJob:
    return make(kind, spec_of(kind, roles, **more), name="demo")


def test_paddle_replicas_are_servers_or_trainers_if_there_are_masters() -> None:
    demo = job(PaddleJob, {"Master": 2, "Worker": 2})
    common = {"PYTHONUNBUFFERED": "1", "PADDLE_JOB_ID": "demo", "PADDLE_NNODES": "4"}
    assert environment(demo, "Master", 0) == {
        "POD_IP_DUMMY": "status.podIP",
        **common,
        "PADDLE_MASTER": "$(POD_IP_DUMMY):36543",
        "PADDLE_SERVER_NUM": "1",
    }
    assert environment(demo, "Master", 1) == {**common, "PADDLE_MASTER": "demo-master-0:36543", "PADDLE_SERVER_NUM": "1"}
    assert environment(demo, "Worker", 0) == {**common, "PADDLE_MASTER": "demo-master-0:36543", "PADDLE_TRAINER_NUM": "1"}


def test_a_variable_comes_after_the_variable_that_it_references() -> None:
    assert next(iter(environment(job(PaddleJob, {"Worker": 1}), "Worker"))) == "POD_IP_DUMMY"


def test_a_single_xgboost_replica_has_no_worker_addresses() -> None:
    env = environment(job(XGBoostJob, {"Master": 1}), "Master")
    assert env == {"MASTER_PORT": "9999", "MASTER_ADDR": "demo-master-0", "WORLD_SIZE": "1", "RANK": "0", "PYTHONUNBUFFERED": "1"}


def test_mxnet_without_a_scheduler_has_no_root_address() -> None:
    env = environment(job(MXJob, {"Worker": 1}), "Worker")
    assert (env["DMLC_PS_ROOT_PORT"], env["DMLC_PS_ROOT_URI"], env["DMLC_NUM_SERVER"]) == ("0", "", "0")


def test_mx_config_of_a_tuning_job_has_the_device_keys() -> None:
    server = role(MXJob)
    server["template"]["metadata"] = {"annotations": {"tuner-server-key": "v100"}}
    env = environment(job(MXJob, {"TunerTracker": 1, "TunerServer": server, "Tuner": 1}), "Tuner")
    config = json.loads(env["MX_CONFIG"])
    assert config["labels"] == {"tuner": "", "tunerserver": "v100", "tunertracker": ""}
    assert config["task"] == {"type": "tuner", "index": 0}


@virtual_time
async def test_a_tuning_job_succeeds_with_its_tuner() -> None:
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("*-tuner-0").run().after(60).succeed()
        kit.script.when("*").run()
        demo = await kit.submit(manifest(MXJob, {"TunerTracker": 1, "TunerServer": 1, "Tuner": 1}))
        await kit.until(demo, phase="Running")
        await kit.until(demo, phase="Succeeded")


@pytest.mark.parametrize(("exit_code", "end"), [(0, "Succeeded"), (1, "Failed")])
@virtual_time
async def test_a_finished_xgboost_job_has_a_running_condition_even_if_it_was_not_observed_running(exit_code: int, end: str) -> None:
    async with OperatorKit(frameworks=[XGBoostJob]) as kit:
        kit.script.when("*").then(ContainerExit(exit_code))
        demo = await kit.submit(manifest(XGBoostJob, {"Master": 1}))
        await kit.until(demo, phase=end)
        conditions = [(each["type"], each["status"], each["reason"]) for each in demo.status["conditions"]]
        assert conditions == [
            ("Created", "True", "XGBoostJobCreated"),
            ("Running", "False", "XGBoostJobRunning"),
            (end, "True", f"XGBoostJob{end}"),
        ]
        assert await kit.writes_when_idle() == []


@pytest.mark.parametrize("kind", KINDS)
def test_pod_names_and_labels_fit_63_characters_for_any_job_name(kind: type[DLJob]) -> None:
    long = make(kind, spec_of(kind, {kind.replica_types[0].name: 1}), name="n" * 63)
    pod = long.replica(long.spec.roles[0], 0).pod()
    assert len(pod["metadata"]["name"]) <= 63
    assert all(len(value) <= 63 for value in pod["metadata"]["labels"].values())


@pytest.mark.parametrize("kind", [TFJob, JAXJob, PaddleJob])
@virtual_time
async def test_zero_replicas_create_no_pods(kind: type[DLJob]) -> None:
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when("*").run()
        demo = await kit.submit(manifest(kind, {"Worker": 0}))
        await kit.until(demo, reached=lambda view: view.condition("Created") is not None)
        assert await kit.writes_when_idle() == []
        assert demo.pods == {}


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_stored_job_is_rejected_with_the_path(kind: type[DLJob]) -> None:
    name = kind.replica_types[0].name
    spec = spec_of(kind, {name: 1})
    spec[kind.schema.field][name]["template"]["spec"]["containers"] = []
    with pytest.raises(SpecError, match=rf"spec\.{kind.schema.field}\.{name}\.template\.spec\.containers"):
        _ = make(kind, spec).spec


@virtual_time
async def test_a_running_job_of_kubeflows_operator_keeps_its_pods() -> None:
    async with OperatorKit(frameworks=[PyTorchJob], operator=False) as kit:
        kit.script.when("*").run().after(600).succeed()
        demo = await kit.submit(manifest(PyTorchJob, {"Master": 1, "Worker": 2}))
        await create_kubeflow_children(kit, demo.body)
        uids = {name: pod["metadata"]["uid"] for name, pod in demo.pods.items()}
        await kit.start_operator()
        await kit.until(demo, phase="Running")
        assert {name: pod["metadata"]["uid"] for name, pod in demo.pods.items()} == uids
        assert {write.request.path for write in kit.writes if "/pods" in write.request.path or "/services" in write.request.path} == set()
        await kit.until(demo, phase="Succeeded")
        assert {name: pod["metadata"]["uid"] for name, pod in demo.pods.items()} == uids


async def create_kubeflow_children(kit: OperatorKit, body: JsonObject) -> None:
    """Create pods and services as Kubeflow's operator does, without labels and annotations of dlop."""
    meta = body["metadata"]
    metadata: JsonObject = {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"], "generation": meta["generation"]}
    demo = make(PyTorchJob, body["spec"], **metadata)
    for role_spec in demo.spec.roles:
        for index in range(role_spec.replicas):
            service = demo.replica(role_spec, index).service()
            assert service is not None
            for resource, child in ((SERVICES, service), (PODS, demo.replica(role_spec, index).pod())):
                labels = child["metadata"]["labels"]
                child["metadata"]["labels"] = {name: value for name, value in labels.items() if name.partition("/")[2] in KUBEFLOW_LABELS}
                child["metadata"].pop("annotations", None)
                child["spec"].pop("publishNotReadyAddresses", None)
                await kit.client.create(resource, child, namespace="default")
