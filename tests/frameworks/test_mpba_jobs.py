"""MXJob and TFJob of mpba.fbk.eu/v1: the spec is a list, and what that project had left to do is done."""

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
from tests.frameworks.manifests import by_name, example, variables
from tests.unit.job.jobs import make

REGISTRY = Registry([MXJob, TFJob])


def entry(role: str, replicas: int | None = 1, **pod: Any) -> dict[str, Any]:
    return {"replicaType": role, "replicas": replicas, "template": {"spec": {"containers": [{"name": "any", "image": "x"}], **pod}}}


def tfjob(*, workers: int = 2) -> dict[str, Any]:
    spec = [entry("ps"), entry("worker", workers)]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "TFJob", "metadata": {"name": "Demo".lower()}, "spec": spec}


def test_pods_and_services_are_named_and_labelled_as_ever() -> None:
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


def test_replicas_find_the_scheduler_by_host_name() -> None:
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


def test_a_role_that_is_not_there_counts_as_none() -> None:
    job = make(MXJob, [entry("SCHEDULER"), entry("WORKER", 2)])
    found = variables(job.make_pod(job.spec.roles[0], 0, attempt=0))
    assert (found["DMLC_NUM_SERVER"], found["DMLC_NUM_WORKER"]) == ("0", "2")


def test_the_first_container_trains_and_nothing_of_the_template_is_lost() -> None:
    containers = [{"name": "first", "image": "x", "env": [{"name": "A", "value": "1"}]}, {"name": "mxnet", "image": "y"}]
    more: dict[str, Any] = {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "nodeSelector": {"a": "b"},
        "hostname": "mine",
        "initContainers": [{"name": "i"}],
    }
    job = make(MXJob, [entry("SCHEDULER", containers=containers, restartPolicy="Never", **more)])
    pod = job.make_pod(job.spec.roles[0], 0, attempt=0)
    assert list(variables(pod, 0))[:2] == ["A", "DMLC_ROLE"]
    assert pod["spec"]["containers"][1] == containers[1]
    assert {name: pod["spec"][name] for name in more} == more
    assert pod["spec"]["restartPolicy"] == "Never"


def test_tensorflow_learns_its_cluster_and_its_place_in_it() -> None:
    pods = by_name(render(tfjob(), REGISTRY), "Pod")
    assert json.loads(variables(pods["worker-demo-1"])["TF_CONFIG"]) == {
        "cluster": {"ps": ["ps-demo-0-service:2222"], "worker": ["worker-demo-0-service:2222", "worker-demo-1-service:2222"]},
        "task": {"type": "worker", "index": 1},
    }


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"replicaSpecs": []}, "spec: must be a list, not an object"),
        ([], "spec: must name at least one role"),
        ([entry("SCHEDULER"), entry("SCHEDULER")], "spec[1].replicaType: is SCHEDULER a second time"),
        ([entry("SCHEDULER", 2)], "spec[0].replicas: must be exactly 1, not 2"),
        ([entry("WORKER")], "spec: must have the role SCHEDULER"),
        ([entry("scheduler")], "spec[0].replicaType: must be one of SCHEDULER, SERVER, WORKER, not 'scheduler'"),
        ([{"replicaType": "SCHEDULER", "replicas": 1}], "spec[0].template: is missing"),
        (["SCHEDULER"], "spec[0]: must be an object, not 'SCHEDULER'"),
    ],
)
def test_what_is_refused_is_named_with_its_path(spec: Any, problem: str) -> None:
    with pytest.raises(SpecError) as caught:
        _ = make(MXJob, spec).spec
    assert problem in str(caught.value)


def test_long_names_stay_within_what_the_api_takes() -> None:
    job = make(MXJob, [entry("SCHEDULER"), entry("WORKER", 2)], name="long-" * 20 + "name")
    worker = job.spec.roles[1]
    names = [
        job.replica_name(worker, 1),
        job.service_name(worker, 1),
        *job.labels(worker, 1).values(),
        *job.service_labels(worker, 1).values(),
    ]
    assert all(len(name) <= 63 for name in names)
    assert len(set(names[:2])) == 2


@virtual_time
async def test_the_job_has_succeeded_when_its_scheduler_and_workers_have() -> None:
    async with OperatorKit(frameworks=[MXJob, TFJob]) as kit:
        kit.script.when("scheduler-*").run().after(30).succeed()
        kit.script.when("worker-*").run().after(60).succeed()
        job = await kit.submit(example("02-mxnet-poc"))
        await kit.until(job, phase="Running")
        assert job.status["replicaStatuses"]["SERVER"]["selector"] == "dlop.dev/replica-type=server,job_name=test02"
        await kit.until(job, phase="Succeeded")
        assert job.pod_phases["worker-test02-0"] == "Succeeded"
        assert job.body["spec"] == example("02-mxnet-poc")["spec"]
        assert await kit.writes_at_rest() == []
        assert sorted(job.pods) == ["scheduler-test02-0", "worker-test02-0"]


@virtual_time
async def test_exit_statuses_are_seen_and_told() -> None:
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
async def test_a_tensorflow_job_is_done_with_its_workers_and_its_servers_are_cleaned_up() -> None:
    async with OperatorKit(frameworks=[MXJob, TFJob]) as kit:
        kit.script.when("worker-*").run().after(60).succeed()
        job = await kit.submit(tfjob())
        await kit.until(job, phase="Succeeded")
        assert await kit.writes_at_rest() == []
        assert sorted(job.pods) == ["worker-demo-0", "worker-demo-1"]
