"""MXJob and TFJob of mpba.fbk.eu/v1: names, environment, validation and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dlop import SpecError
from dlop.frameworks.mpba.mxjob import MXJob
from dlop.frameworks.mpba.tfjob import TFJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name, example, variables
from tests.unit.job.jobs import make

REGISTRY = Registry([MXJob, TFJob])


def entry(role: str, replicas: int | None = 1, **pod: Any) -> dict[str, Any]:
    return {"replicaType": role, "replicas": replicas, "template": {"spec": {"containers": [{"name": "any", "image": "x"}], **pod}}}


def tfjob(*, workers: int = 2) -> dict[str, Any]:
    spec = [entry("ps"), entry("worker", workers)]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "TFJob", "metadata": {"name": "Demo".lower()}, "spec": spec}


def test_names_and_labels_of_pods_and_services() -> None:
    objects = render(example("02-mxnet-poc"), REGISTRY)
    pods, services = by_name(objects, "Pod"), by_name(objects, "Service")
    assert list(pods) == ["scheduler-test02-0", "server-test02-0", "worker-test02-0"]
    assert list(services) == [f"{name}-service" for name in pods]
    pod, service = pods["worker-test02-0"], services["worker-test02-0-service"]
    assert {"pod_name": "worker-test02-0", "job_name": "test02"}.items() <= pod["metadata"]["labels"].items()
    assert {"service_name": "worker-test02-0-service", "job_name": "test02"}.items() <= service["metadata"]["labels"].items()
    assert service["spec"]["selector"] == {"pod_name": "worker-test02-0", "job_name": "test02"}
    assert service["spec"]["ports"] == [{"name": "dlport0", "port": 9000}]
    assert pod["spec"]["hostname"] == "worker-test02-0"


def test_the_environment_has_the_variables_of_ps_lite() -> None:
    pods = by_name(render(example("02-mxnet-poc"), REGISTRY), "Pod")
    for role in ("scheduler", "server", "worker"):
        assert variables(pods[f"{role}-test02-0"]) == {
            "DMLC_ROLE": role,
            "DMLC_PS_ROOT_URI": "scheduler-test02-0-service",
            "DMLC_PS_ROOT_PORT": "9000",
            "DMLC_NUM_SERVER": "1",
            "DMLC_NUM_WORKER": "1",
            "DMLC_USE_KUBERNETES": "1",
            "PS_VERBOSE": "2",
        }


def test_an_absent_role_has_zero_replicas_in_the_environment() -> None:
    job = make(MXJob, [entry("SCHEDULER"), entry("WORKER", 2)])
    env = variables(job.replica(job.spec.roles[0], 0).pod())
    assert (env["DMLC_NUM_SERVER"], env["DMLC_NUM_WORKER"]) == ("0", "2")


def test_the_first_container_gets_the_environment_and_the_rest_of_the_template_is_kept() -> None:
    containers = [{"name": "first", "image": "x", "env": [{"name": "A", "value": "1"}]}, {"name": "mxnet", "image": "y"}]
    more: dict[str, Any] = {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeSelector": {"a": "b"},
        "hostname": "mine",
        "initContainers": [{"name": "i"}],
    }
    job = make(MXJob, [entry("SCHEDULER", containers=containers, restartPolicy="Never", **more)])
    pod = job.replica(job.spec.roles[0], 0).pod()
    assert list(variables(pod, 0))[:2] == ["A", "DMLC_ROLE"]
    assert pod["spec"]["containers"][1] == containers[1]
    assert {name: pod["spec"][name] for name in more} == more
    assert pod["spec"]["restartPolicy"] == "Never"


def test_tf_config_has_the_cluster_and_the_task() -> None:
    pods = by_name(render(tfjob(), REGISTRY), "Pod")
    assert json.loads(variables(pods["worker-demo-1"])["TF_CONFIG"]) == {
        "cluster": {"ps": ["ps-demo-0-service:2222"], "worker": ["worker-demo-0-service:2222", "worker-demo-1-service:2222"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"replicaSpecs": []}, "spec: must be a list, got an object"),
        ([], "spec: must contain at least one role"),
        ([entry("SCHEDULER"), entry("SCHEDULER")], "spec[1].replicaType: duplicates the role SCHEDULER"),
        ([entry("SCHEDULER", 2)], "spec[0].replicas: must be exactly 1, got 2"),
        ([entry("WORKER")], "spec: must contain the role SCHEDULER"),
        ([entry("scheduler")], "spec[0].replicaType: must be one of SCHEDULER, SERVER, WORKER, got 'scheduler'"),
        ([{"replicaType": "SCHEDULER", "replicas": 1}], "spec[0].template: is missing"),
        (["SCHEDULER"], "spec[0]: must be an object, got 'SCHEDULER'"),
    ],
)
def test_an_invalid_spec_is_rejected_with_the_path(spec: Any, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        _ = make(MXJob, spec).spec
    assert problem in str(caught.value)


def test_long_names_are_truncated_to_63_characters() -> None:
    job = make(MXJob, [entry("SCHEDULER"), entry("WORKER", 2)], name="long-" * 20 + "name")
    worker = job.spec.roles[1]
    names = [
        job.naming.pod_name(job, worker, 1),
        job.naming.service_name(job, worker, 1),
        *job.naming.labels(job, worker, 1).values(),
        *job.naming.service_labels(job, worker, 1).values(),
    ]
    assert all(len(name) <= 63 for name in names)
    assert len(set(names[:2])) == 2


@virtual_time
async def test_the_job_succeeds_with_its_scheduler_and_workers() -> None:
    async with OperatorKit(frameworks=[MXJob, TFJob]) as kit:
        kit.script.when("scheduler-*").run().after(30).succeed()
        kit.script.when("worker-*").run().after(60).succeed()
        job = await kit.submit(example("02-mxnet-poc"))
        await kit.until(job, phase="Running")
        assert job.status["replicaStatuses"]["SERVER"]["selector"] == "dlop.dev/replica-type=server,job_name=test02"
        await kit.until(job, phase="Succeeded")
        assert job.pod_phases["worker-test02-0"] == "Succeeded"
        assert job.body["spec"] == example("02-mxnet-poc")["spec"]
        assert await kit.writes_when_idle() == []
        assert sorted(job.pods) == ["scheduler-test02-0", "worker-test02-0"]


@virtual_time
async def test_the_exit_code_is_in_the_message_of_the_failed_condition() -> None:
    manifest = example("02-mxnet-poc")
    manifest["spec"][2]["template"]["spec"]["restartPolicy"] = "Never"
    async with OperatorKit(frameworks=[MXJob]) as kit:
        kit.script.when("worker-*").run().after(5).fail(exit_code=9)
        job = await kit.submit(manifest)
        await kit.until(job, phase="Failed")
        failed = job.condition("Failed")
        assert failed is not None
        assert "pod worker-test02-0" in failed["message"]
        assert "exit code 9" in failed["message"]


@virtual_time
async def test_a_tensorflow_job_succeeds_with_its_workers_and_its_servers_are_deleted() -> None:
    async with OperatorKit(frameworks=[MXJob, TFJob]) as kit:
        kit.script.when("worker-*").run().after(60).succeed()
        job = await kit.submit(tfjob())
        await kit.until(job, phase="Succeeded")
        assert await kit.writes_when_idle() == []
        assert sorted(job.pods) == ["worker-demo-0", "worker-demo-1"]
