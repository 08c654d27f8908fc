"""PaddleJob of paddlepaddle.org/v1: the sample of its documentation, spellings of published manifests, environment and phases."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import ElasticRange, Options, Phase, SpecError
from dlop.frameworks.paddlepaddle.paddlejob import PaddleJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.resources import PODS
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.spec_warnings import spec_warnings
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.example_manifests import by_name
from tests.frameworks.paddle_manifests import sample
from tests.unit.job.jobs import make

REGISTRY = Registry([PaddleJob])
MOUNT_PATH = {"spec.mountPath": "has no effect, because the job does not have exactly one volume, or sets VolumeMounts"}
"""The warning about the sample."""


def job(*, trainer: dict[str, Any] | None = None, **fields: Any) -> PaddleJob:
    return make(PaddleJob, {**sample()["spec"], "trainer": {"entrypoint": "train", **(trainer or {})}, **fields}, name="paddlejob")


def pod(job: PaddleJob, role: str, index: int = 0) -> dict[str, Any]:
    spec = job.spec.role(role)
    assert spec is not None
    return job.replica(spec, index).pod()


def env(pod: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in pod["spec"]["containers"][0]["env"]}


def warnings(job: PaddleJob) -> dict[str, str]:
    return {warning.path: warning.message for warning in spec_warnings(job)}


def problems(job: PaddleJob) -> list[str]:
    with pytest.raises(SpecError) as caught:
        job.spec  # noqa: B018
    return [str(problem) for problem in caught.value.problems]


# --- the sample -------------------------------------------------------------------------------------------------------


def test_the_pods_of_the_sample() -> None:
    objects = render(sample(), REGISTRY)
    pods, services = by_name(objects, "Pod"), by_name(objects, "Service")
    names = ["paddlejob-pserver-0", "paddlejob-pserver-1", "paddlejob-trainer-0", "paddlejob-trainer-1"]
    assert list(pods) == list(services) == names
    server, trainer = pods[names[0]], pods[names[3]]
    assert {"paddle-job-name": "paddlejob", "paddle-job-pserver": "paddlejob"}.items() <= server["metadata"]["labels"].items()
    assert {"paddle-job-name": "paddlejob", "paddle-job": "paddlejob"}.items() <= trainer["metadata"]["labels"].items()
    assert (server["spec"]["restartPolicy"], trainer["spec"]["restartPolicy"]) == ("Always", "Never")
    (container,) = trainer["spec"]["containers"]
    assert {name: value for name, value in container.items() if name != "env"} == {
        "name": "trainer",
        "image": "example.org/fluid_job_train_test:1.0",
        "imagePullPolicy": "Always",
        "command": ["paddle_k8s", "start_trainer", "fluid"],
        "ports": [{"name": "jobport-7164", "containerPort": 7164}, {"name": "jobport-7165", "containerPort": 7165}],
        "resources": {"limits": {"cpu": "200m", "memory": "200Mi"}, "requests": {"cpu": "200m", "memory": "200Mi"}},
    }
    assert server["spec"]["containers"][0]["command"] == ["paddle_k8s", "start_pserver"]
    assert services[names[0]]["spec"]["ports"] == [{"name": "jobport-7164", "port": 7164}, {"name": "jobport-7165", "port": 7165}]


def test_the_environment_of_the_sample() -> None:
    pods = by_name(render(sample(), REGISTRY), "Pod")
    common = {
        "PADDLE_JOB_NAME": "paddlejob",
        "TRAINERS": "2",
        "PSERVERS": "2",
        "ENTRY": "python /home/job-1/train.py",
        "TOPOLOGY": "python /home/job-1/train.py",
        "TRAINER_PACKAGE": "/home/job-1/",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_TRAINER_COUNT": "1",
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_NUM_PASSES": "10",
        "PADDLE_INIT_USE_GPU": "0",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
        "NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "PADDLE_INIT_PSERVERS": "paddlejob-pserver-0,paddlejob-pserver-1",
        "PADDLE_PSERVERS": "2",
        "PADDLE_TRAINERS": "2",
        "PADDLE_PSERVER_PORT": "7164",
        "PADDLE_PSERVER_IPS": "paddlejob-pserver-0,paddlejob-pserver-1",
    }
    for role, name, index in (("TRAINER", "paddlejob-trainer-1", "1"), ("PSERVER", "paddlejob-pserver-0", "0")):
        assert env(pods[name]) == {
            **common,
            "PADDLE_INIT_TRAINER_ID": index,
            "PADDLE_TRAINING_ROLE": role,
            "PADDLE_CURRENT_IP": name,
            "PADDLE_TRAINER_ID": index,
        }


def test_fields_of_the_sample_without_effect_are_reported() -> None:
    assert warnings(make(PaddleJob, sample()["spec"], options=Options(autoscaler=True))) == MOUNT_PATH
    without_autoscaler = warnings(make(PaddleJob, sample()["spec"]))
    assert without_autoscaler.keys() == {"spec.trainer.max-instance", *MOUNT_PATH}
    assert "has no effect while the autoscaler is off" in without_autoscaler["spec.trainer.max-instance"]


# --- elastic trainers -------------------------------------------------------------------------------------------------


def test_trainers_with_a_higher_maximum_are_elastic() -> None:
    elastic = make(PaddleJob, sample()["spec"])
    trainer, server = elastic.spec.role("trainer"), elastic.spec.role("pserver")
    assert trainer is not None
    assert server is not None
    assert (trainer.replicas, trainer.elastic) == (2, ElasticRange(minimum=2, maximum=6, path="spec.trainer.max-instance"))
    assert server.elastic is None
    assert elastic.size == "pserver=2"


def test_the_environment_of_elastic_trainers_has_their_minimum_whatever_their_number_is() -> None:
    elastic = make(PaddleJob, sample()["spec"])
    scaled = make(PaddleJob, sample()["spec"], status={"dlop": {"elasticReplicas": {"trainer": 5}}})
    assert scaled.replicas("trainer") == 5
    assert env(pod(scaled, "trainer", 1)) == env(pod(elastic, "trainer", 1))
    assert env(pod(scaled, "trainer", 4))["PADDLE_TRAINERS"] == "2"


def test_autoscale_false_keeps_the_number_of_trainers_at_the_minimum() -> None:
    fixed = job(trainer={"min-instance": 2, "max-instance": 6}, runPolicy={"autoscale": False})
    role = fixed.spec.role("trainer")
    assert role is not None
    assert (role.replicas, role.elastic, fixed.size) == (2, None, "pserver=2,trainer=2")
    assert warnings(fixed) == {
        "spec.trainer.max-instance": "is 6, and the number of trainers is fixed at 2, which is min-instance",
        **MOUNT_PATH,
    }


def test_a_minimum_above_the_maximum_is_the_number_of_pods() -> None:
    published = job(trainer={"min-instance": 3, "max-instance": 2}, pserver={"min-instance": 3, "max-instance": 2})
    assert (published.replicas("trainer"), published.replicas("pserver"), published.size) == (3, 3, "pserver=3,trainer=3")
    assert warnings(published) == {
        "spec.trainer.max-instance": "is 2, and the number of trainers is fixed at 3, which is min-instance",
        "spec.pserver.max-instance": "is 2, and the number of parameter servers is fixed at 3, which is min-instance",
        **MOUNT_PATH,
    }


def test_parameter_servers_are_not_scaled() -> None:
    servers = job(pserver={"min-instance": 2, "max-instance": 4})
    assert servers.replicas("pserver") == 2
    assert warnings(servers)["spec.pserver.max-instance"] == (
        "is 4, and the number of parameter servers is fixed at 2, which is min-instance"
    )


# --- spellings and values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["host_network", "hostNetwork"])
def test_pods_in_the_network_of_their_nodes_resolve_the_names_of_services(name: str) -> None:
    fields: dict[str, Any] = {name: True}
    pod_spec = pod(job(**fields), "pserver")["spec"]
    assert (pod_spec["hostNetwork"], pod_spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


@pytest.mark.parametrize("name", ["port", "ports_num", "ports_num_for_sparse", "passes"])
def test_a_zero_counts_as_unset(name: str) -> None:
    assert render({**sample(), "spec": {**sample()["spec"], name: 0}}, REGISTRY) == render(
        {**sample(), "spec": {key: value for key, value in sample()["spec"].items() if key != name}}, REGISTRY
    )


@pytest.mark.parametrize(("mounts", "selector"), [("VolumeMounts", "NodeSelector"), ("volumeMounts", "nodeSelector")])
def test_volumes_are_in_all_pods_and_their_mounts_in_the_trainers(mounts: str, selector: str) -> None:
    mount = {"name": "data", "mountPath": "/data"}
    fields: dict[str, Any] = {mounts: [mount], selector: {"disk": "ssd"}}
    with_volume = job(volumes=[{"name": "data", "emptyDir": {}}], **fields)
    server, trainer = pod(with_volume, "pserver")["spec"], pod(with_volume, "trainer")["spec"]
    assert server["volumes"] == trainer["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert server["nodeSelector"] == trainer["nodeSelector"] == {"disk": "ssd"}
    assert "volumeMounts" not in server["containers"][0]
    assert trainer["containers"][0]["volumeMounts"] == [mount]


def test_the_mount_path_mounts_the_only_volume() -> None:
    mounted = job(volumes=[{"name": "data", "emptyDir": {}}])
    assert pod(mounted, "trainer")["spec"]["containers"][0]["volumeMounts"] == [{"name": "data", "mountPath": "/home/work/namespace/"}]
    assert warnings(mounted) == {}


def test_the_passes_of_the_spec_take_precedence_over_those_of_the_trainer() -> None:
    assert env(pod(job(trainer={"passes": 3}), "trainer"))["PADDLE_INIT_NUM_PASSES"] == "3"
    assert env(pod(job(trainer={"passes": 3}, passes=4), "trainer"))["PADDLE_INIT_NUM_PASSES"] == "4"


@pytest.mark.parametrize("name", ["alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"])
def test_gpus_are_requested_by_their_current_name_and_counted(name: str) -> None:
    with_gpus = job(trainer={"resources": {"limits": {name: 2, "cpu": "1500m"}}})
    trainer = pod(with_gpus, "trainer")
    assert trainer["spec"]["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 2, "cpu": "1500m"}}
    assert env(trainer)["PADDLE_INIT_TRAINER_COUNT"] == "2"
    assert env(trainer)["PADDLE_INIT_USE_GPU"] == "1"


def test_the_cpus_of_a_trainer_are_rounded_up() -> None:
    assert env(pod(job(trainer={"resources": {"requests": {"cpu": "1500m"}}}), "trainer"))["PADDLE_INIT_TRAINER_COUNT"] == "2"


def test_pull_secrets_and_node_selectors_of_a_role_take_precedence() -> None:
    own = {"imagePullSecrets": [{"name": "own"}], "node_selector": {"disk": "ssd"}}
    fields = job(imagePullSecrets=[{"name": "all"}], NodeSelector={"disk": "hdd"}, trainer=own)
    server, trainer = pod(fields, "pserver")["spec"], pod(fields, "trainer")["spec"]
    assert (server["imagePullSecrets"], server["nodeSelector"]) == ([{"name": "all"}], {"disk": "hdd"})
    assert (trainer["imagePullSecrets"], trainer["nodeSelector"]) == ([{"name": "own"}], {"disk": "ssd"})


def test_unknown_fields_are_listed_in_one_warning() -> None:
    unknown = job(fault_tolerant=True, Port=7000, matrix=False, replicaSpec={"spec": {}}, trainer={"etcd-endpoint": "x"})
    assert warnings(unknown)["spec"] == "has fields without effect: Port, fault_tolerant, trainer.etcd-endpoint; remove them"


@pytest.mark.parametrize("names", [("hostNetwork", "host_network"), ("host_network", "hostNetwork")])
def test_of_two_spellings_of_a_field_the_first_is_read_and_the_other_is_reported(names: tuple[str, str]) -> None:
    both: dict[str, Any] = {names[0]: False, names[1]: True}
    one: dict[str, Any] = {names[0]: None, names[1]: True}
    twice = job(**both)
    assert "hostNetwork" not in pod(twice, "trainer")["spec"]
    assert warnings(twice)["spec"] == f"has fields without effect: {names[1]}; remove them"
    assert pod(job(**one), "trainer")["spec"]["hostNetwork"] is True


def test_wrong_values_are_reported_at_their_fields() -> None:
    assert problems(make(PaddleJob, {"image": "x"})) == ["spec.trainer: is missing; add it with min-instance and entrypoint"]
    assert problems(job(port=65535)) == ["spec.port: must leave room for all ports; the last one would be 65536, above 65535"]
    assert problems(job(trainer={"min-instance": "two"})) == ["spec.trainer.min-instance: must be an integer, got 'two'"]
    assert problems(job(port="7164")) == ["spec.port: must be an integer, got '7164'"]
    assert problems(job(pserver=[])) == ["spec.pserver: must be an object, got a list"]
    assert "spec.volumes[0]: must be an object, got 5" in problems(job(volumes=[5]))


@pytest.mark.parametrize("invalid", [5, [], {}, {"trainer": []}, {"trainer": {"resources": 5}}, {"volumes": {}}])
def test_an_invalid_spec_fails_the_job_with_its_problems(invalid: Any) -> None:
    status = make(PaddleJob, invalid).reconcile(Snapshot(), 1000.0).status
    assert status is not None
    assert (status["phase"], status["conditions"][-1]["reason"]) == ("failed", "InvalidSpec")
    assert status["reason"].startswith("spec")


# --- phases -----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_job_is_created_runs_and_succeeds_with_its_trainers() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("*-pserver-*").after(20).run()
        kit.script.when("*-trainer-*").run().after(100).succeed()
        view = await kit.submit(sample())
        await kit.until(view, reached=lambda view: view.status.get("phase") == "creating")
        await kit.until(view, reached=lambda view: view.status.get("phase") == "running")
        assert view.status["replica_statuses"][0] == {
            "training_resource_type": "PSERVER",
            "state": "running",
            "resource_states": {"running": 2},
        }
        await kit.until(view, phase="Succeeded")
        assert (view.status["phase"], view.status["reason"]) == ("succeeded", "all trainer have succeeded!")
        await kit.writes_when_idle()
        assert view.pods == {}


@virtual_time
async def test_one_failed_trainer_fails_the_job() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("*-trainer-1").run().after(30).fail(exit_code=139)
        view = await kit.submit(sample())
        await kit.until(view, phase="Failed")
        assert (view.status["phase"], view.status["reason"]) == ("failed", "at least one trainer failed!")
        assert view.status["replica_statuses"][1]["state"] == "failed"
        condition = view.condition("Failed")
        assert condition is not None
        assert "trainer 1 (pod paddlejob-trainer-1" in condition["message"]


@virtual_time
async def test_trainers_are_restarted_if_the_run_policy_has_a_backoff_limit() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        kit.script.when("*-trainer-1").run().after(30).fail().after(30).succeed()
        kit.script.when("*-trainer-0").run().after(200).succeed()
        body = sample()
        body["spec"]["runPolicy"] = {"backoffLimit": 3}
        view = await kit.submit(body)
        await kit.until(view, phase="Succeeded")
        assert view.status["dlop"]["restarts"] == {"trainer": 1}


@virtual_time
async def test_a_deleted_parameter_server_is_replaced() -> None:
    async with OperatorKit(frameworks=[PaddleJob]) as kit:
        view = await kit.submit(sample())
        await kit.until(view, phase="Running")
        uid = view.pods["paddlejob-pserver-0"]["metadata"]["uid"]
        await kit.client.delete(PODS, "paddlejob-pserver-0", namespace="default")
        await kit.until(view, reached=lambda view: _is_replaced(view.pods, uid) and view.phase is Phase.RUNNING, within_seconds=200)
        assert view.status["dlop"]["disruptions"] == {"pserver": 1}


def _is_replaced(pods: dict[str, Any], uid: str) -> bool:
    pod = pods.get("paddlejob-pserver-0")
    return pod is not None and bool(pod["metadata"]["uid"] != uid)


@virtual_time
async def test_a_job_that_the_early_operator_has_finished_is_not_started_again() -> None:
    async with OperatorKit(frameworks=[PaddleJob], operator=False) as kit:
        view = await kit.submit(sample())
        status = {"status": {"phase": "succeeded", "reason": "all trainer have succeeded!"}}
        await kit.client.patch(PaddleJob.job_type.resource, "paddlejob", status, namespace="default", subresource="status")
        await kit.start_operator()
        assert await kit.writes_when_idle() == []
        assert view.pods == {}
