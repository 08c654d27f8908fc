"""ElasticJob of elastic.iml.github.io/v1alpha1: the master, its service and access; pods and services of scale plans; validation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dlop import Options
from dlop.api.scale_plan import MembersRecord
from dlop.frameworks.dlrover.elasticjob import ElasticJob, ElasticJobFlags, Platform
from dlop.frameworks.dlrover.names import PLATFORM_ANNOTATION
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.kube.types import JsonObject
from dlop.policies import Member
from tests.frameworks.elastic_manifests import RESOURCES, elastic_job, template
from tests.frameworks.example_manifests import by_name
from tests.unit.job.jobs import UID, make

REGISTRY = Registry([ElasticJob])
MASTER = "elasticjob-elastic-dlrover-master"
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
COMMAND = ["python", "-m", "dlrover.python.master.main"]
MAX_CRD_BYTES = 100_000
"""`kubectl apply` stores a copy of the object in an annotation, and annotations are limited to 256 KB."""


def without_master_spec(**fields: Any) -> JsonObject:
    manifest = elastic_job(**fields)
    del manifest["spec"]["replicaSpecs"]["dlrover-master"]
    return manifest


def with_master(container: JsonObject | None = None, **pod_spec: Any) -> JsonObject:
    """A job whose master has this template."""
    pod = {"spec": {"containers": [{"name": "main", **(container or {})}], **pod_spec}}
    return elastic_job(replicaSpecs={"dlrover-master": {"template": pod}})


def master_pod(manifest: JsonObject, *, options: Options | None = None) -> JsonObject:
    return by_name(render(manifest, REGISTRY, options=options), "Pod")[f"{MASTER}-0"]


def main(pod: JsonObject) -> JsonObject:
    container: JsonObject = pod["spec"]["containers"][0]
    return container


def env(pod: JsonObject) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in main(pod)["env"]}


def job(*, record: MembersRecord | None = None, metadata: Mapping[str, Any] | None = None, **fields: Any) -> ElasticJob:
    status = None if record is None else {"dlop": {"members": msgspec.to_builtins(record)}}
    manifest = elastic_job(**fields)
    more = {"annotations": manifest["metadata"]["annotations"], **(metadata or {})}
    return make(ElasticJob, manifest["spec"], name="elastic", status=status, **more)


def member_pod(elastic: ElasticJob, member: Member) -> JsonObject:
    replica = elastic.member(member)
    assert replica is not None
    return replica.pod()


def worker(number: int = 0, rank: int | None = None, **fields: Any) -> Member:
    return Member(role="worker", id=number, rank=number if rank is None else rank, **fields)


# --- the pod of the master --------------------------------------------------------------------------------------------


def test_the_master_of_a_job_without_a_master_in_its_spec() -> None:
    pod = master_pod(without_master_spec(platform="pyk8s"))
    arguments = ["--platform", "pyk8s", "--namespace", "default", "--job_name", "elastic", "--port", "50001"]
    resources = {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "2Gi"}
    assert pod["spec"] == {
        "containers": [
            {
                "name": "main",
                "image": "registry.cn-hangzhou.aliyuncs.com/intell-ai/dlrover:latest",
                "imagePullPolicy": "Always",
                "command": [*COMMAND, *arguments],
                "resources": {"requests": resources, "limits": resources},
                "env": [POD_IP],
            }
        ],
        "restartPolicy": "Never",
        "serviceAccountName": MASTER,
    }


def test_the_master_has_the_labels_of_dlrover_and_those_of_the_job() -> None:
    manifest = elastic_job()
    manifest["metadata"]["labels"] = {"team": "nlp", "elasticjob.dlrover/name": "other", "elasticjob.dlrover/replica-index": "7"}
    labels = master_pod(manifest)["metadata"]["labels"]
    assert {name: value for name, value in labels.items() if not name.startswith("dlop.dev/")} == {
        "app.kubernetes.io/name": "elasticjob",
        "elasticjob.dlrover/name": "elastic",
        "elasticjob.dlrover/replica-type": "dlrover-master",
        "elasticjob.dlrover/replica-index": "0",
        "team": "nlp",
    }


def test_the_master_has_the_annotations_of_its_template_and_of_the_job_which_take_precedence() -> None:
    manifest = elastic_job(annotations={"both": "job", "job": "yes"})
    pod_template = manifest["spec"]["replicaSpecs"]["dlrover-master"]["template"]
    pod_template["metadata"] = {"annotations": {"both": "template", "template": "yes"}}
    annotations = master_pod(manifest)["metadata"]["annotations"]
    assert {"both": "job", "job": "yes", "template": "yes", PLATFORM_ANNOTATION: "k8s"}.items() <= annotations.items()


def test_the_job_controls_its_master() -> None:
    (owner,) = master_pod(elastic_job())["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("ElasticJob", "elastic", True)


@pytest.mark.parametrize(
    "value", ["600", " two words ", 'it\'s "quoted"', "$(touch /tmp/x); `id` && rm -rf / | cat > /dev/null", "--platform=ray\n--port 1", ""]
)
def test_the_value_of_an_annotation_is_one_argument_whatever_it_contains(value: str) -> None:
    command = main(master_pod(elastic_job(annotations={"pre_check_ops": value})))["command"]
    assert command[:3] == COMMAND
    assert command[3 + 2 * 4 :] == ["--pre_check_ops", value]


def test_the_annotations_of_dlrover_become_arguments_and_others_do_not() -> None:
    names = (
        *("pending_timeout", "pending_fail_strategy", "service_type", "pre_check_ops", "pre_check_bypass"),
        *("training_elastic_mode", "enable_dashboard", "dashboard_port"),
    )
    values = {name: str(number) for number, name in enumerate(names)}
    command = main(master_pod(elastic_job(annotations={**values, "team": "x", "platform": "ray"})))["command"]
    arguments = command[3 + 2 * 4 :]
    assert dict(zip(arguments[::2], arguments[1::2], strict=True)) == {f"--{name}": value for name, value in values.items()}


@pytest.mark.parametrize(
    ("annotation", "flag", "expected"),
    [(None, None, "pyk8s"), (None, "k8s", "k8s"), ("k8s", None, "k8s"), ("pyk8s", "k8s", "pyk8s"), ("ray", "k8s", "k8s")],
)
def test_the_platform_is_that_of_the_annotation_or_of_the_flag(annotation: str | None, flag: str | None, expected: str) -> None:
    manifest = elastic_job()
    manifest["metadata"]["annotations"] = {} if annotation is None else {PLATFORM_ANNOTATION: annotation}
    flags = ElasticJobFlags() if flag is None else ElasticJobFlags(elasticjob_platform=Platform(flag))
    assert main(master_pod(manifest, options=Options(framework_flags=(flags,))))["command"][3:5] == ["--platform", expected]


def test_the_default_image_is_a_flag_and_the_image_of_the_template_takes_precedence() -> None:
    options = Options(framework_flags=(ElasticJobFlags(elasticjob_master_image="example.org/dlrover:7"),))
    assert main(master_pod(without_master_spec(), options=options))["image"] == "example.org/dlrover:7"
    assert main(master_pod(with_master(), options=options))["image"] == "example.org/dlrover:7"
    assert main(master_pod(with_master({"image": "mine"}), options=options))["image"] == "mine"


def test_the_template_of_the_user_is_kept_and_completed() -> None:
    container = {"image": "mine", "imagePullPolicy": "Never", "resources": {"limits": {"cpu": 3}}, "env": [{"name": "MINE", "value": "1"}]}
    pod = master_pod(with_master(container, serviceAccountName="mine", nodeSelector={"zone": "a"}, restartPolicy="Always"))
    assert {name: value for name, value in main(pod).items() if name != "command"} == {
        "name": "main",
        **container,
        "env": [{"name": "MINE", "value": "1"}, POD_IP],
    }
    assert main(pod)["command"][:3] == COMMAND
    spec = pod["spec"]
    assert (spec["serviceAccountName"], spec["nodeSelector"], spec["restartPolicy"]) == ("mine", {"zone": "a"}, "Never")


@pytest.mark.parametrize("own", [{"command": ["/bin/sh", "-c", "sleep 1"]}, {"args": ["--mine"]}])
def test_command_and_arguments_of_the_user_are_not_changed(own: JsonObject) -> None:
    container = main(master_pod(with_master({"image": "mine", **own})))
    assert {name: container[name] for name in ("command", "args") if name in container} == own
    assert container["env"] == [POD_IP]


def test_a_sidecar_next_to_the_container_main_is_not_changed() -> None:
    sidecar = {"name": "proxy", "image": "proxy"}
    pods = {"spec": {"containers": [sidecar, {"name": "main", "image": "mine"}]}}
    first, second = master_pod(elastic_job(replicaSpecs={"dlrover-master": {"template": pods}}))["spec"]["containers"]
    assert first == sidecar
    assert (second["env"], second["command"][:3]) == ([POD_IP], COMMAND)


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, None),
        ({"optimizeMode": "single-job"}, None),
        ({"optimizeMode": "cluster"}, "dlrover-brain.dlrover.svc.cluster.local:50001"),
        ({"brainService": "brain.example.org:1"}, "brain.example.org:1"),
        ({"optimizeMode": "cluster", "brainService": "brain.example.org:1"}, "brain.example.org:1"),
    ],
)
def test_the_address_of_the_brain_service_is_a_variable_of_the_master(fields: JsonObject, address: str | None) -> None:
    assert env(master_pod(elastic_job(**fields))).get("DLROVER_BRAIN_SERVICE_ADDR") == address


# --- service and access of the master ---------------------------------------------------------------------------------


def test_the_service_of_the_master_leads_to_every_master() -> None:
    services = by_name(render(elastic_job(), REGISTRY), "Service")
    assert list(services) == [MASTER]
    labels = {
        "app.kubernetes.io/name": "elasticjob",
        "elasticjob.dlrover/name": "elastic",
        "elasticjob.dlrover/replica-type": "dlrover-master",
    }
    assert services[MASTER]["spec"] == {"publishNotReadyAddresses": True, "selector": labels, "ports": [{"name": "grpc", "port": 50001}]}
    assert labels.items() <= services[MASTER]["metadata"]["labels"].items()
    assert services[MASTER]["metadata"]["ownerReferences"][0]["controller"] is True


def test_the_master_has_a_service_account_of_its_own() -> None:
    objects = render(without_master_spec(), REGISTRY)
    assert [body["kind"] for body in objects] == ["ServiceAccount", "Role", "RoleBinding", "Service", "Pod"]
    assert {body["metadata"]["name"] for body in objects[:3]} == {MASTER}
    assert all(body["metadata"]["ownerReferences"][0]["name"] == "elastic" for body in objects)
    binding = objects[2]
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": MASTER}
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": MASTER, "namespace": "default"}]


def test_the_role_of_the_master_has_what_the_master_needs_and_neither_secrets_nor_wildcards() -> None:
    role = by_name(render(without_master_spec(), REGISTRY), "Role")[MASTER]
    allowed = {(resource, verb) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    pods = {("pods", verb) for verb in ("get", "list", "watch", "create", "patch", "delete")}
    services = {("services", verb) for verb in ("get", "create", "patch")}
    elastic = {("elasticjobs", "get"), ("elasticjobs", "watch"), ("elasticjobs/finalizers", "update"), ("scaleplans", "create")}
    assert pods | services | elastic <= allowed
    assert {resource for resource, _ in allowed} == {"pods", "services", "elasticjobs", "elasticjobs/finalizers", "scaleplans"}
    assert "*" not in {verb for _, verb in allowed}


def test_a_master_with_a_service_account_of_the_user_needs_no_access_objects() -> None:
    objects = render(elastic_job(account="mine"), REGISTRY)
    assert [body["kind"] for body in objects] == ["Service", "Pod"]
    assert objects[1]["spec"]["serviceAccountName"] == "mine"


# --- pods of scale plans ----------------------------------------------------------------------------------------------


def test_the_pod_of_a_worker_to_the_letter() -> None:
    metadata = {"labels": {"team": "nlp", "app": "mine"}, "annotations": {"note": "x", "service_type": "http"}}
    elastic = job(metadata=metadata, replicaSpecs={"worker": {"replicas": 2, "restartCount": 4, "template": template(command=["train"])}})
    pod = member_pod(elastic, worker(5, 1, relaunch_count=2, resources={"cpu": "1", "memory": "512Mi"}))
    assert pod["metadata"]["name"] == "elastic-edljob-worker-5"
    assert {name: value for name, value in pod["metadata"]["labels"].items() if not name.startswith("dlop.dev/")} == {
        "team": "nlp",
        "app": "dlrover",
        "elasticjob.dlrover/name": "elastic",
        "elasticjob.dlrover/replica-type": "worker",
        "elasticjob.dlrover/replica-index": "5",
        "elasticjob.dlrover/rank-index": "1",
        "elasticjob.dlrover/relaunch-count": "2",
        "restart-count": "4",
    }
    assert {"note": "x", "service_type": "http"}.items() <= pod["metadata"]["annotations"].items()
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == ("ElasticJob", "elastic", UID, True)
    container = main(pod)
    assert (container["name"], container["image"], container["command"]) == ("main", "train", ["train"])
    assert container["resources"] == {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "512Mi"}}
    assert pod["spec"]["restartPolicy"] == "Never"


COMMON = {
    "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
    "NODE_IP": {"fieldRef": {"fieldPath": "status.hostIP"}},
    "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
    "ELASTIC_JOB_NAME": "elastic",
    "JOB_UID": UID,
    "GRPC_ENABLE_FORK_SUPPORT": "false",
    "DLROVER_MASTER_ADDR": f"{MASTER}:50001",
    "DLROVER_MASTER_SERVICE_TYPE": "grpc",
    "MONITOR_ENABLED": "true",
}


def node(role: str, number: int, rank: int, count: int) -> dict[str, str]:
    """The variables that identify a member, with their names of earlier versions."""
    values = {"TYPE": role, "ID": str(number), "RANK": str(rank), "NUM": str(count)}
    return {f"{prefix}_{name}": value for prefix in ("NODE", "WORKER") for name, value in values.items()}


def test_the_environment_of_a_worker_with_allreduce() -> None:
    expected = {"WORLD_SIZE": "2", "RANK": "1", "RDZV_ENDPOINT": "elastic-edljob-worker-0"}
    assert env(member_pod(job(workers=2), worker(5, 1))) == {**COMMON, **node("worker", 5, 1, 2), **expected}


def test_pods_know_the_protocol_of_the_master() -> None:
    assert env(member_pod(job(annotations={"service_type": "http"}), worker()))["DLROVER_MASTER_SERVICE_TYPE"] == "http"


HOSTS = ("elastic-edljob-ps-0.lab.svc:2222", "elastic-edljob-ps-3.lab.svc:2222")
RECORD = MembersRecord(counts={"ps": 2, "worker": 2, "chief": 1, "evaluator": 1}, hosts=HOSTS)


def addresses(role: str, count: int) -> list[str]:
    return [f"elastic-edljob-{role}-{rank}.lab.svc:3333" for rank in range(count)]


CLUSTER = {"ps": list(HOSTS), "worker": addresses("worker", 2), "chief": addresses("chief", 1), "evaluator": addresses("evaluator", 1)}


@pytest.mark.parametrize(("role", "number", "rank"), [("worker", 5, 1), ("ps", 3, 1), ("chief", 0, 0), ("evaluator", 2, 0)])
def test_the_environment_with_parameter_servers(role: str, number: int, rank: int) -> None:
    elastic = job(strategy="ParameterServerStrategy", workers=2, ps=2, record=RECORD)
    variables = env(member_pod(elastic, Member(role=role, id=number, rank=rank)))
    config = json.loads(variables.pop("TF_CONFIG"))
    assert config == {"cluster": CLUSTER, "task": {"type": role, "index": rank}}
    assert variables == {**COMMON, **node(role, number, rank, 2)}


def test_a_worker_with_a_rank_beyond_the_others_is_in_its_own_tf_config() -> None:
    elastic = job(strategy="ParameterServerStrategy", ps=2, record=RECORD)
    assert json.loads(env(member_pod(elastic, worker(2)))["TF_CONFIG"])["cluster"]["worker"] == addresses("worker", 3)


def test_there_is_no_tf_config_without_addresses_of_parameter_servers_or_with_another_strategy() -> None:
    record = MembersRecord(counts={"worker": 2})
    assert "TF_CONFIG" not in env(member_pod(job(strategy="ParameterServerStrategy", ps=1, record=record), worker()))
    assert "TF_CONFIG" not in env(member_pod(job(strategy="AllreduceStrategy", record=RECORD), worker()))


def test_the_number_of_pods_is_that_of_the_last_plan_if_the_spec_has_none() -> None:
    variables = env(member_pod(job(workers=0, record=MembersRecord(counts={"worker": 7})), worker()))
    assert {variables[name] for name in ("NODE_NUM", "WORKER_NUM", "WORLD_SIZE")} == {"7"}


def test_variables_of_the_template_are_kept() -> None:
    own = [{"name": "MINE", "value": "1"}, {"name": "MONITOR_ENABLED", "value": "false"}]
    pod = member_pod(job(replicaSpecs={"worker": {"template": template(env=own)}}), worker())
    assert main(pod)["env"][0] == own[0]
    assert len([variable for variable in main(pod)["env"] if variable["name"] == "NODE_RANK"]) == 1


@pytest.mark.parametrize(("role", "port"), [("ps", 2222), ("worker", 3333), ("chief", 3333), ("evaluator", 3333)])
def test_the_service_of_a_member_belongs_to_its_rank(role: str, port: int) -> None:
    elastic = job(strategy="ParameterServerStrategy", ps=1)
    replica = elastic.member(Member(role=role, id=6, rank=2))
    assert replica is not None
    service = replica.service()
    assert service is not None
    assert service["metadata"]["name"] == f"elastic-edljob-{role}-2"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["ports"] == [{"name": "grpc", "port": port}]
    selector = service["spec"]["selector"]
    assert selector == {
        "app": "dlrover",
        "elasticjob.dlrover/name": "elastic",
        "elasticjob.dlrover/replica-type": role,
        "elasticjob.dlrover/rank-index": "2",
    }
    assert selector.items() <= replica.pod()["metadata"]["labels"].items()


def test_the_name_of_a_service_can_be_that_of_the_plan() -> None:
    replica = job().member(worker(4, 1, service="elastic-edljob-worker-0"))
    assert replica is not None
    assert replica.service_name == "elastic-edljob-worker-0"


@pytest.mark.parametrize(
    ("own", "planned", "expected"),
    [
        ({}, {}, {"requests": {"cpu": "0", "memory": "0"}}),
        ({"limits": {"cpu": "2"}}, {}, {"requests": {"cpu": "2", "memory": "0"}, "limits": {"cpu": "2"}}),
        (
            {"requests": {"memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
            {},
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}},
        ),
        (
            {"requests": {"cpu": "9"}, "limits": {"cpu": "9", "nvidia.com/gpu": 8}},
            {"memory": "1Gi"},
            {"requests": {"cpu": "0", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        ),
    ],
)
def test_resources_of_a_plan_replace_those_of_the_template(own: JsonObject, planned: dict[str, str], expected: JsonObject) -> None:
    elastic = job(replicaSpecs={"worker": {"template": template(resources=own)}})
    assert main(member_pod(elastic, worker(resources=planned)))["resources"] == expected


def test_resources_of_a_plan_are_those_of_the_container_main() -> None:
    containers = [{"name": "sidecar", "image": "x", "resources": {"requests": {"cpu": "1m"}}}, {"name": "main", "image": "train"}]
    elastic = job(replicaSpecs={"worker": {"template": {"spec": {"containers": containers}}}})
    sidecar, training = member_pod(elastic, worker(resources=RESOURCES))["spec"]["containers"]
    assert (sidecar["resources"], training["resources"]["limits"]) == ({"requests": {"cpu": "1m"}}, RESOURCES)


@pytest.mark.parametrize("policy", ["Always", "OnFailure"])
def test_pods_are_never_restarted_in_place_because_the_master_replaces_them(policy: str) -> None:
    pods = {"spec": {**template()["spec"], "restartPolicy": policy}}
    elastic = job(replicaSpecs={"worker": {"restartPolicy": policy, "template": pods}})
    assert member_pod(elastic, worker())["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("priority", "classes"),
    [
        (None, [None] * 4),
        ("", [None] * 4),
        ("high", ["high"] * 4),
        ("low", ["low"] * 4),
        ("0.5", ["high", "high", "low", "low"]),
        ("0.25", ["high", "low", "low", "low"]),
        ("1", ["high"] * 4),
    ],
)
def test_the_priority_is_a_class_or_the_share_of_the_pods_with_the_higher_one(priority: str | None, classes: list[str | None]) -> None:
    fields = {} if priority is None else {"priority": priority}
    elastic = job(replicaSpecs={"worker": {"replicas": 4, "template": template(), **fields}})
    assert [member_pod(elastic, worker(number))["spec"].get("priorityClassName") for number in range(4)] == classes


def test_the_replacement_of_a_pod_has_its_priority() -> None:
    elastic = job(replicaSpecs={"worker": {"replicas": 4, "template": template(), "priority": "0.5"}})
    replacements = [member_pod(elastic, worker(4 + rank, rank, relaunch_count=1)) for rank in range(4)]
    assert [pod["spec"]["priorityClassName"] for pod in replacements] == ["high", "high", "low", "low"]


def test_chief_and_evaluators_use_the_template_of_the_workers_unless_they_have_their_own() -> None:
    elastic = job(replicaSpecs={"chief": {"template": template("own")}})
    assert [main(member_pod(elastic, Member(role=role, id=0, rank=0)))["image"] for role in ("chief", "evaluator")] == ["own", "train"]
    assert elastic.member(Member(role="ps", id=0, rank=0)) is None
