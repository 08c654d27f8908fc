"""Kinds of training.kubedl.io: names, labels, services, environment, spot replicas and the fields of the spec."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dlop import CleanPodPolicy, Options, RestartPolicy, SpecError
from dlop.api.crd import build_crds
from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.elasticdljob import ElasticDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.types import JsonObject
from dlop.reconcile.spec_warnings import spec_warnings
from tests.frameworks.example_manifests import by_name, variables
from tests.frameworks.kubedl_manifests import KINDS, kubedl_job, role
from tests.unit.job.jobs import UID, make

REGISTRY = Registry(KINDS)
BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.job_type.kind)
NAMES: dict[type[KubeDLJob], tuple[list[str], list[str]]] = {
    TFJob: (["demo-ps-0", "demo-worker-0", "demo-worker-1"], ["demo-ps-0", "demo-worker-0", "demo-worker-1"]),
    PyTorchJob: (["demo-master-0", "demo-worker-0", "demo-worker-1"], ["demo-master-0"]),
    XGBoostJob: (["demo-master-0", "demo-worker-0", "demo-worker-1"], ["demo-master-0", "demo-worker-0", "demo-worker-1"]),
    XDLJob: (
        ["demo-ps-0", "demo-scheduler-0", "demo-worker-0", "demo-worker-1"],
        ["demo-ps-0", "demo-scheduler-0", "demo-worker-0", "demo-worker-1"],
    ),
    MarsJob: (
        ["demo-scheduler-0", "demo-webservice-0", "demo-worker-0", "demo-worker-1"],
        ["demo-scheduler-0", "demo-webservice-0", "demo-worker-0", "demo-worker-1"],
    ),
    ElasticDLJob: (["elasticdl-demo-master"], []),
    MPIJob: (["demo-worker-0", "demo-worker-1", "demo-launcher-0"], []),
}
"""The pods and services of the job in `kubedl_manifests`."""
PORTS = {
    TFJob: ("tensorflow", "tfjob-port", 2222),
    PyTorchJob: ("pytorch", "pytorchjob-port", 23456),
    XGBoostJob: ("xgboostjob", "xgboostjob-port", 9999),
    XDLJob: ("xdl", "xdljob-port", 2222),
    MarsJob: ("mars", "mars-port", 11111),
    ElasticDLJob: ("elasticdl", "elasticdl-port", 11111),
    MPIJob: ("mpi", "mpi-port", 2222),
}
Roles = Mapping[str, Any]
"""By role, the number of replicas or a replica spec."""


def job(kind: type[KubeDLJob], roles: Roles | None = None, *, options: Options | None = None, **spec: Any) -> KubeDLJob:
    return make(kind, kubedl_job(kind, roles, **spec)["spec"], name="demo", options=options)


def pods(kind: type[KubeDLJob], roles: Roles | None = None, *, options: Options | None = None, **spec: Any) -> dict[str, JsonObject]:
    return by_name(render(kubedl_job(kind, roles, **spec), REGISTRY, options=options), "Pod")


def env(pod: JsonObject, container: int = 0) -> dict[str, str]:
    return variables(pod, container)


def config(pod: JsonObject, name: str) -> Any:
    return json.loads(env(pod)[name])


def messages(kind: type[KubeDLJob], roles: Roles | None = None, **spec: Any) -> list[str]:
    """The problems of a spec, or else the warnings."""
    subject = job(kind, roles, **spec)
    try:
        return [str(warning) for warning in spec_warnings(subject)]
    except SpecError as error:
        return [str(problem) for problem in error.problems]


# --- names, labels, ports and services ----------------------------------------------------------------------------------


@BY_KIND
def test_pods_and_services_have_the_names_of_kubedl(kind: type[KubeDLJob]) -> None:
    objects = render(kubedl_job(kind), REGISTRY)
    assert (list(by_name(objects, "Pod")), list(by_name(objects, "Service"))) == NAMES[kind]


@BY_KIND
def test_labels_have_no_prefix(kind: type[KubeDLJob]) -> None:
    for pod in pods(kind).values():
        labels = {name: value for name, value in pod["metadata"]["labels"].items() if not name.startswith("dlop.dev/")}
        role_name = labels["replica-type"]
        expected = {
            "group-name": "training.kubedl.io",
            "job-name": "demo",
            "replica-type": role_name,
            "replica-index": pod["metadata"]["name"].rpartition("-")[2].replace("master", "0"),
        }
        assert role_name == role_name.lower()
        assert labels == expected | ({"job-role": "master"} if role_name == "master" else {})


@pytest.mark.parametrize("name", ["Chief", "Master"])
def test_the_chief_of_a_tfjob_has_the_role_master(name: str) -> None:
    rendered = pods(TFJob, {name: 1, "Worker": 1, "PS": 1})
    masters = [pod for pod, body in rendered.items() if body["metadata"]["labels"].get("job-role") == "master"]
    assert masters == [f"demo-{name.lower()}-0"]


@BY_KIND
def test_the_default_port_is_added_to_the_main_container_and_the_service(kind: type[KubeDLJob]) -> None:
    container, port_name, port = PORTS[kind]
    objects = render(kubedl_job(kind), REGISTRY)
    for pod in by_name(objects, "Pod").values():
        (main,) = pod["spec"]["containers"]
        assert (main["name"], main["ports"]) == (container, [{"name": port_name, "containerPort": port}])
    for name, service in by_name(objects, "Service").items():
        labels = by_name(objects, "Pod")[name]["metadata"]["labels"]
        assert service["spec"]["clusterIP"] == "None"
        assert service["spec"]["ports"] == [{"name": port_name, "port": port}]
        assert service["spec"]["selector"] == {key: labels[key] for key in ("group-name", "job-name", "replica-type", "replica-index")}


def test_a_container_of_another_name_gets_the_port_if_it_is_the_first() -> None:
    master = role(container={"name": "elasticdl-test-mnist-master"})
    (main,) = pods(ElasticDLJob, {"Master": master})["elasticdl-demo-master"]["spec"]["containers"]
    assert main["ports"] == [{"name": "elasticdl-port", "containerPort": 11111}]
    assert "env" not in main


def test_a_port_in_the_template_replaces_the_default() -> None:
    ports = [{"name": "tfjob-port", "containerPort": 7000}]
    objects = render(kubedl_job(TFJob, {"PS": 1, "Worker": role(container={"ports": ports})}), REGISTRY)
    assert by_name(objects, "Service")["demo-worker-0"]["spec"]["ports"] == [{"name": "tfjob-port", "port": 7000}]
    cluster = config(by_name(objects, "Pod")["demo-ps-0"], "TF_CONFIG")["cluster"]
    assert cluster == {"ps": ["demo-ps-0.default.svc:2222"], "worker": ["demo-worker-0.default.svc:7000"]}


@BY_KIND
def test_the_end_of_the_log_is_the_termination_message_unless_the_template_says_otherwise(kind: type[KubeDLJob]) -> None:
    manifest = kubedl_job(kind)
    for entry in manifest["spec"][kind.schema.field].values():
        entry["template"]["spec"]["containers"].append({"name": "sidecar", "image": "s", "terminationMessagePolicy": "File"})
    for pod in by_name(render(manifest, REGISTRY), "Pod").values():
        policies = [container["terminationMessagePolicy"] for container in pod["spec"]["containers"]]
        assert policies == ["FallbackToLogsOnError", "File"]


# --- environment --------------------------------------------------------------------------------------------------------


def test_tf_config_has_the_addresses_of_all_roles_except_evaluators() -> None:
    rendered = pods(TFJob, {"Chief": 1, "PS": 1, "Worker": 2, "Evaluator": 1})
    cluster = {
        "chief": ["demo-chief-0.default.svc:2222"],
        "ps": ["demo-ps-0.default.svc:2222"],
        "worker": ["demo-worker-0.default.svc:2222", "demo-worker-1.default.svc:2222"],
    }
    for name, task in (("worker-1", ("worker", 1)), ("evaluator-0", ("evaluator", 0)), ("chief-0", ("chief", 0))):
        assert config(rendered[f"demo-{name}"], "TF_CONFIG") == {
            "cluster": cluster,
            "task": {"type": task[0], "index": task[1]},
            "environment": "cloud",
        }


def test_tf_config_contains_the_cluster_domain_if_it_is_configured() -> None:
    rendered = pods(TFJob, {"PS": 1, "Worker": 1}, options=Options(cluster_domain="cluster.local"))
    cluster = config(rendered["demo-ps-0"], "TF_CONFIG")["cluster"]
    assert cluster["worker"] == ["demo-worker-0.default.svc.cluster.local:2222"]


@pytest.mark.parametrize("roles", [{"Worker": 1}, {"Worker": 1, "AIMaster": 1}])
def test_a_tfjob_with_a_single_replica_has_no_tf_config(roles: Roles) -> None:
    assert "env" not in pods(TFJob, roles)["demo-worker-0"]["spec"]["containers"][0]


def test_tf_config_is_only_in_the_container_tensorflow() -> None:
    manifest = kubedl_job(TFJob)
    manifest["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].insert(0, {"name": "log", "image": "s"})
    pod = by_name(render(manifest, REGISTRY), "Pod")["demo-worker-0"]
    assert [list(env(pod, index)) for index in (0, 1)] == [[], ["TF_CONFIG"]]


def test_pytorch_replicas_know_the_master_their_rank_and_the_world_size() -> None:
    rendered = pods(PyTorchJob, {"AIMaster": 1, "Master": 1, "Worker": 2})
    common = {"MASTER_PORT": "23456", "PYTHONUNBUFFERED": "0", "WORLD_SIZE": "3"}
    assert env(rendered["demo-master-0"]) == {**common, "MASTER_ADDR": "localhost", "RANK": "0"}
    assert env(rendered["demo-worker-0"]) == {**common, "MASTER_ADDR": "demo-master-0", "RANK": "1"}
    assert env(rendered["demo-worker-1"]) == {**common, "MASTER_ADDR": "demo-master-0", "RANK": "2"}
    assert env(rendered["demo-aimaster-0"]) == {}


def test_the_rank_of_an_xgboost_worker_is_its_index() -> None:
    rendered = pods(XGBoostJob)
    common = {"MASTER_PORT": "9999", "MASTER_ADDR": "demo-master-0", "PYTHONUNBUFFERED": "0", "WORLD_SIZE": "3"}
    ranks = {name: env(pod) for name, pod in rendered.items()}
    assert ranks == {
        "demo-master-0": {**common, "RANK": "0"},
        "demo-worker-0": {**common, "RANK": "0"},
        "demo-worker-1": {**common, "RANK": "1"},
    }


@pytest.mark.parametrize("kind", [PyTorchJob, XGBoostJob])
def test_all_containers_get_the_environment_which_overrides_that_of_the_user(kind: type[KubeDLJob]) -> None:
    manifest = kubedl_job(kind)
    containers = manifest["spec"][kind.schema.field]["Worker"]["template"]["spec"]["containers"]
    containers.append({"name": "sidecar", "image": "s", "env": [{"name": "RANK", "value": "mine"}, {"name": "A", "value": "1"}]})
    pod = by_name(render(manifest, REGISTRY), "Pod")["demo-worker-1"]
    assert env(pod, 1) == {**env(pod), "A": "1"}


def test_xdl_config_and_the_task_of_a_replica() -> None:
    rendered = pods(XDLJob, {"PS": 1, "Scheduler": 1, "Worker": 2, "ExtendRole": 1})
    cluster = {
        "ps": ["demo-ps-0:2222"],
        "scheduler": ["demo-scheduler-0:2222"],
        "worker": ["demo-worker-0:2222", "demo-worker-1:2222"],
        "extendrole": ["demo-extendrole-0:2222"],
    }
    worker = rendered["demo-worker-1"]
    assert config(worker, "XDL_CONFIG") == {"cluster": cluster, "task": {"type": "worker", "index": 1}}
    assert (env(worker)["TASK_NAME"], env(worker)["TASK_INDEX"]) == ("worker", "1")
    assert env(rendered["demo-extendrole-0"])["TASK_NAME"] == "extendrole"


@pytest.mark.parametrize(
    ("address", "expected"), [("zfs://zk:2181/a", f"zfs://zk:2181/a/{UID}"), ("zk:2181/", f"zk:2181/{UID}"), ("", ""), (5, 5)]
)
def test_paths_of_zookeeper_end_with_the_uid_of_the_job_in_all_containers(address: Any, expected: Any) -> None:
    zookeeper = [{"name": "ZK_ADDR", "value": address}]
    worker = role(container={"env": zookeeper})
    worker["template"]["spec"]["containers"].append({"name": "sidecar", "image": "s", "env": zookeeper})
    xdl_job = job(XDLJob, {"Worker": worker})
    pod = xdl_job.replica(xdl_job.spec.roles[0], 0).pod()
    assert [env(pod, index)["ZK_ADDR"] for index in (0, 1)] == [expected, expected]
    assert "XDL_CONFIG" in env(pod, 0)
    assert "XDL_CONFIG" not in env(pod, 1)


def test_without_zk_addr_none_is_added() -> None:
    assert "ZK_ADDR" not in env(pods(XDLJob)["demo-worker-0"])


def test_an_xdl_config_in_the_template_is_overridden() -> None:
    worker = role(container={"env": [{"name": "XDL_CONFIG", "value": "mine"}]})
    (main,) = pods(XDLJob, {"Worker": worker})["demo-worker-0"]["spec"]["containers"]
    assert [json.loads(each["value"])["task"] for each in main["env"] if each["name"] == "XDL_CONFIG"] == [{"type": "worker", "index": 0}]


# --- spot replicas ------------------------------------------------------------------------------------------------------


def test_the_last_replicas_of_a_role_are_spot_replicas() -> None:
    spot = {"spotReplicaNumber": 2, "priorityClassName": "cheap", "labels": {"spot": "yes", "job-name": "mine"}}
    rendered = pods(TFJob, {"PS": 1, "worker": role(3, spotReplicaSpec=spot, pod={"priorityClassName": "usual"})})
    found = {
        name: (pod["spec"].get("priorityClassName"), pod["metadata"]["labels"].get("spot"), pod["metadata"]["labels"]["job-name"])
        for name, pod in rendered.items()
    }
    assert found == {
        "demo-ps-0": (None, None, "demo"),
        "demo-worker-0": ("usual", None, "demo"),
        "demo-worker-1": ("cheap", "yes", "demo"),
        "demo-worker-2": ("cheap", "yes", "demo"),
    }


@pytest.mark.parametrize(("number", "expected"), [(0, 0), (2, 2), (7, 2)])
def test_there_are_at_most_as_many_spot_replicas_as_replicas(number: int, expected: int) -> None:
    rendered = pods(PyTorchJob, {"Master": 1, "Worker": role(2, spotReplicaSpec={"spotReplicaNumber": number, "labels": {"spot": "yes"}})})
    assert sum("spot" in pod["metadata"]["labels"] for pod in rendered.values()) == expected


# --- defaults and the run policy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "clean_pod_policy", "ttl_seconds", "backoff_limit"),
    [
        (TFJob, "Running", None, None),
        (PyTorchJob, "None", None, None),
        (XGBoostJob, "None", 100, None),
        (XDLJob, "Running", None, 20),
        (MarsJob, "None", None, None),
        (ElasticDLJob, "None", None, None),
        (MPIJob, "Running", None, None),
    ],
)
def test_the_defaults_of_the_run_policy(kind: type[KubeDLJob], clean_pod_policy: str, ttl_seconds: Any, backoff_limit: Any) -> None:
    specs: tuple[dict[str, Any], ...] = ({}, {"ttlSecondsAfterFinished": None, "backoffLimit": None})
    for spec in specs:
        policy = job(kind, **spec).spec.run_policy
        found = (policy.clean_pod_policy.value, policy.ttl_seconds_after_finished, policy.backoff_limit)
        assert found == (clean_pod_policy, ttl_seconds, backoff_limit)


@pytest.mark.parametrize(
    ("kind", "roles", "policies"),
    [
        (TFJob, {"PS": 1, "Chief": 1, "Worker": 1, "Evaluator": 1}, ["ExitCode"] * 4),
        (PyTorchJob, {"Master": 1, "Worker": 1}, ["ExitCode", "OnFailure"]),
        (XGBoostJob, {"Master": 1, "Worker": 1}, ["Always", "Always"]),
        (XDLJob, {"PS": 1, "Scheduler": 1, "Worker": 1, "ExtendRole": 1}, ["Never"] * 4),
        (MarsJob, {"Scheduler": 1, "WebService": 1, "Worker": 1}, ["Never", "Always", "ExitCode"]),
        (ElasticDLJob, {"Master": 1}, ["Never"]),
        (MPIJob, {"Launcher": 1, "Worker": 1}, ["Never", "Never"]),
    ],
)
def test_the_default_restart_policies(kind: type[KubeDLJob], roles: Roles, policies: list[str]) -> None:
    assert [each.restart_policy.value for each in job(kind, roles).spec.roles] == policies


def test_pods_with_the_policy_exit_code_are_not_restarted_in_place() -> None:
    rendered = pods(PyTorchJob, {"Master": role(restartPolicy="Always"), "Worker": role(restartPolicy="ExitCode")})
    assert [pod["spec"]["restartPolicy"] for pod in rendered.values()] == ["Always", "Never"]


@BY_KIND
def test_a_role_has_one_replica_by_default(kind: type[KubeDLJob]) -> None:
    manifest = kubedl_job(kind)
    for entry in manifest["spec"][kind.schema.field].values():
        del entry["replicas"]
    assert {each.replicas for each in make(kind, manifest["spec"]).spec.roles} == {1}


@BY_KIND
def test_the_run_policy_is_inline_and_run_policy_takes_precedence(kind: type[KubeDLJob]) -> None:
    inline: dict[str, Any] = {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 7, "activeDeadlineSeconds": 8, "backoffLimit": 9}
    policy = job(kind, **inline, runPolicy={"suspend": True}).spec.run_policy
    assert (policy.clean_pod_policy, policy.ttl_seconds_after_finished) == (CleanPodPolicy.ALL, 7)
    assert (policy.active_deadline_seconds, policy.backoff_limit, policy.suspend) == (8, 9, True)
    policy = job(kind, **inline, runPolicy={"backoffLimit": 1, "cleanPodPolicy": "Running"}).spec.run_policy
    assert (policy.clean_pod_policy, policy.ttl_seconds_after_finished, policy.backoff_limit) == (CleanPodPolicy.RUNNING, 7, 1)


def test_the_options_of_gang_scheduling_are_inline_and_run_policy_takes_precedence() -> None:
    inline: dict[str, Any] = {"schedulingPolicy": {"priorityClassName": "low", "queue": "q", "minAvailable": 2, "priority": 3}}
    scheduling = job(TFJob, **inline).spec.run_policy.scheduling
    assert (scheduling.priority_class, scheduling.queue, scheduling.min_available) == ("low", "q", 2)
    scheduling = job(TFJob, **inline, runPolicy={"schedulingPolicy": {"priorityClass": "high"}}).spec.run_policy.scheduling
    assert (scheduling.priority_class, scheduling.queue) == ("high", "")
    scheduling = job(TFJob, **inline, runPolicy={"suspend": False}).spec.run_policy.scheduling
    assert (scheduling.priority_class, scheduling.queue) == ("low", "q")


@pytest.mark.parametrize(
    ("kind", "roles", "expected"),
    [
        (TFJob, {"ps": 1, "WORKER": 1, "cHIEF": 1, "evaluator": 1, "aimaster": 1}, ["AIMaster", "PS", "Chief", "Worker", "Evaluator"]),
        (PyTorchJob, {"master": 1, "worker": 1}, ["Master", "Worker"]),
        (XGBoostJob, {"MASTER": 1}, ["Master"]),
        (XDLJob, {"worker": 1, "extendrole": 1, "scheduler": 1}, ["Scheduler", "Worker", "ExtendRole"]),
        (MarsJob, {"scheduler": 1, "webservice": 1}, ["Scheduler", "WebService"]),
        (ElasticDLJob, {"master": 1}, ["Master"]),
        (MPIJob, {"launcher": 1, "worker": 1}, ["Worker", "Launcher"]),
    ],
)
def test_names_of_roles_are_case_insensitive(kind: type[KubeDLJob], roles: Roles, expected: list[str]) -> None:
    assert [each.name for each in job(kind, roles).spec.roles] == expected


# --- warnings and bad input ---------------------------------------------------------------------------------------------


@BY_KIND
def test_fields_without_effect_are_reported(kind: type[KubeDLJob]) -> None:
    fields: dict[str, Any] = {"modelVersion": {"modelName": "m"}, "cacheBackend": {"name": "c"}}
    assert messages(kind, **fields) == [
        "spec.modelVersion: has no effect: no image is built from the model; remove it",
        "spec.cacheBackend: has no effect: no data is cached; remove it",
    ]
    assert messages(kind) == []


@pytest.mark.parametrize(
    ("kind", "roles", "spec", "expected"),
    [
        (TFJob, {"Boss": 1}, {}, "spec.tfReplicaSpecs.Boss: is not a role of this kind"),
        (TFJob, {}, {}, "spec.tfReplicaSpecs: must contain at least one role"),
        (TFJob, None, {"successPolicy": "Some"}, "spec.successPolicy: input should be '' or 'AllWorkers'"),
        (TFJob, None, {"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy: must be one of All, Running, None, got 'Some'"),
        (TFJob, None, {"backoffLimit": -1}, "spec.backoffLimit: must be at least 0, got -1"),
        (TFJob, None, {"schedulingPolicy": {"priorityClassName": 3}}, "spec.schedulingPolicy.priorityClassName: must be a string"),
        (TFJob, {"Worker": role(restartPolicy="Maybe")}, {}, "spec.tfReplicaSpecs.Worker.restartPolicy: must be one of"),
        (
            TFJob,
            {"Worker": role(spotReplicaSpec={"spotReplicaNumber": "x"})},
            {},
            "spec.tfReplicaSpecs.Worker.spotReplicaSpec.spotReplicaNumber: must be an integer, got 'x'",
        ),
        (PyTorchJob, {"Worker": 1}, {}, "spec.pytorchReplicaSpecs: must contain the role Master"),
        (PyTorchJob, {"Master": 2}, {}, "spec.pytorchReplicaSpecs.Master.replicas: must be exactly 1, got 2"),
        (PyTorchJob, {"Master": 1, "master": 1}, {}, "spec.pytorchReplicaSpecs.master: duplicates the role Master"),
        (XGBoostJob, {"Worker": 1}, {}, "spec.xgbReplicaSpecs: must contain the role Master"),
        (XDLJob, {"PS": 1}, {}, "spec.xdlReplicaSpecs: must contain a role that trains: Worker or ExtendRole"),
        (XDLJob, None, {"minFinishWorkRate": 101}, "spec.minFinishWorkRate: must be from 0 to 100, got 101"),
        (XDLJob, None, {"minFinishWorkNum": -1}, "spec.minFinishWorkNum: must be at least 0, got -1"),
        (MarsJob, {"Worker": 1}, {}, "spec.marsReplicaSpecs: must contain the role Scheduler"),
        (
            MarsJob,
            None,
            {"workerMemoryTuningPolicy": {"workerCacheSize": "lots"}},
            "spec.workerMemoryTuningPolicy.workerCacheSize: is not a quantity; use a value like 2Gi",
        ),
        (
            MarsJob,
            None,
            {"workerMemoryTuningPolicy": {"workerCachePercentage": -4}},
            "spec.workerMemoryTuningPolicy.workerCachePercentage: ",
        ),
        (MarsJob, None, {"webHost": 3}, "spec.webHost: must be a string, got 3"),
        (ElasticDLJob, {"Worker": 1}, {}, "spec.elasticdlReplicaSpecs.Worker: is not a role of this kind; must be one of Master"),
    ],
)
def test_problems_of_a_spec_name_the_field(kind: type[KubeDLJob], roles: Roles | None, spec: JsonObject, expected: str) -> None:
    (problem,) = messages(kind, roles, **spec)
    assert problem.startswith(expected)


def test_the_columns_of_kubectl_are_those_of_kubedl() -> None:
    for crd in build_crds(KINDS):
        (version,) = crd["spec"]["versions"]
        assert [(column["name"], column["jsonPath"]) for column in version["additionalPrinterColumns"]] == [
            ("State", ".status.conditions[-1:].type"),
            ("Age", ".metadata.creationTimestamp"),
            ("TTL-After-Finished", ".spec.ttlSecondsAfterFinished"),
            ("Max-Lifetime", ".spec.activeDeadlineSeconds"),
        ]
        assert "shortNames" not in crd["spec"]["names"]


def test_the_restart_policy_of_the_template_is_not_that_of_the_role() -> None:
    xgboost_job = job(XGBoostJob, {"Master": role(pod={"restartPolicy": "Never"})})
    assert xgboost_job.spec.roles[0].restart_policy is RestartPolicy.ALWAYS


@BY_KIND
@pytest.mark.parametrize(
    ("annotation", "instead"),
    [("kubedl.io/enable-elastic-training", "elasticPolicy"), ("pai.ai/enable-error-monitoring", "restartPolicy")],
)
def test_annotations_without_effect_are_reported(kind: type[KubeDLJob], annotation: str, instead: str) -> None:
    for value, expected in (("true", [f"metadata.annotations[{annotation}]: has no effect: "]), ("false", [])):
        subject = make(kind, kubedl_job(kind)["spec"], annotations={annotation: value})
        found = [str(warning) for warning in spec_warnings(subject)]
        assert [warning.partition("has no effect: ")[0] + "has no effect: " for warning in found] == expected
        assert [warning for warning in found if instead not in warning] == []
