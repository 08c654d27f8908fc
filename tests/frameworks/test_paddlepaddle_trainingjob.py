"""TrainingJob of paddlepaddle.org/v1: the published examples, roles by mode, environment, pods, and fields without effect."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop import ElasticRange, Options, SpecError
from dlop.api.crd import build_crd
from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob, TrainingJobFlags
from dlop.frameworks.registry import Registry
from dlop.jobs.render import render
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.spec_warnings import spec_warnings
from tests.frameworks.example_manifests import by_name
from tests.frameworks.paddle_manifests import stored_training_job, training_example, training_example_with_pod_group, training_job
from tests.unit.job.jobs import make

REGISTRY = Registry([TrainingJob])
FAULT_TOLERANT: dict[str, Any] = {"fault_tolerant": True}
ETCD_COMMAND = (
    "etcd -name etcd0 -advertise-client-urls http://$(POD_IP):2379,http://$(POD_IP):4001 "
    "-listen-client-urls http://0.0.0.0:2379,http://0.0.0.0:4001 -initial-advertise-peer-urls http://$(POD_IP):2380 "
    "-listen-peer-urls http://0.0.0.0:2380 -initial-cluster etcd0=http://$(POD_IP):2380 -initial-cluster-state new"
)
MOUNT = {"name": "data", "mountPath": "/data"}
VOLUMES = [{"name": "data", "emptyDir": {}}]


def job(*, options: Options | None = None, **fields: Any) -> TrainingJob:
    return make(TrainingJob, training_job(**fields)["spec"], options=options)


def objects(manifest: dict[str, Any], kind: str = "Pod") -> dict[str, dict[str, Any]]:
    return by_name(render(manifest, REGISTRY), kind)


def first_pods(**fields: Any) -> dict[str, dict[str, Any]]:
    """The first pod of each role."""
    pods = objects(training_job("train", **fields))
    return {name.split("-")[1]: pod for name, pod in pods.items() if name.endswith("-0")}


def env(pod: Mapping[str, Any], container: int = 0) -> dict[str, Any]:
    return {variable["name"]: variable.get("value", variable.get("valueFrom")) for variable in pod["spec"]["containers"][container]["env"]}


def main(pod: Mapping[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["spec"]["containers"][0]
    return container


def ports(pod: Mapping[str, Any]) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in main(pod).get("ports", ())}


def warnings(job: TrainingJob) -> dict[str, str]:
    return {warning.path: warning.message for warning in spec_warnings(job)}


def problems(job: TrainingJob) -> list[str]:
    with pytest.raises(SpecError) as caught:
        job.spec  # noqa: B018
    return [str(problem) for problem in caught.value.problems]


# --- the published examples -------------------------------------------------------------------------------------------


def test_the_pods_and_services_of_the_example() -> None:
    pods, services = objects(training_example()), objects(training_example(), "Service")
    names = ["master-0", "pserver-0", "pserver-1", "trainer-0", "trainer-1"]
    assert list(pods) == list(services) == [f"examplejob-{name}" for name in names]
    master, server, trainer = (pods[f"examplejob-{role}-0"] for role in ("master", "pserver", "trainer"))
    for pod, label in ((master, "paddle-job-master"), (server, "paddle-job-pserver"), (trainer, "paddle-job")):
        assert {"paddle-job-name": "examplejob", label: "examplejob"}.items() <= pod["metadata"]["labels"].items()
    assert [pod["spec"]["restartPolicy"] for pod in (master, server, trainer)] == ["Always", "Always", "Never"]
    assert [main(pod)["command"] for pod in (master, server, trainer)] == [
        ["paddle_k8s", "start_master"],
        ["paddle_k8s", "start_new_pserver"],
        ["python", "/workspace/vgg16.py"],
    ]
    assert {name: value for name, value in main(server).items() if name != "env"} == {
        "name": "pserver",
        "image": "example.org/paddlejob-mock:1",
        "imagePullPolicy": "Always",
        "command": ["paddle_k8s", "start_new_pserver"],
        "ports": [{"name": "jobport-7164", "containerPort": 7164}, {"name": "jobport-7165", "containerPort": 7165}],
        "resources": {"limits": {"cpu": "800m", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "600Mi"}},
    }
    assert services["examplejob-master-0"]["spec"]["ports"] == [{"name": "master-port", "port": 8080}, {"name": "etcd-port", "port": 2379}]
    assert services["examplejob-pserver-0"]["spec"]["ports"] == [{"name": f"jobport-{port}", "port": port} for port in (7164, 7165)]
    assert "ports" not in services["examplejob-trainer-0"]["spec"]


def test_etcd_runs_next_to_the_master() -> None:
    container, etcd = objects(training_example())["examplejob-master-0"]["spec"]["containers"]
    assert {name: value for name, value in etcd.items() if name != "env"} == {
        "name": "etcd",
        "image": "m3ngyang/etcd:v3.2.1",
        "imagePullPolicy": "Always",
        "command": ETCD_COMMAND.split(),
    }
    assert etcd["env"] == container["env"]
    assert container["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "500Mi"}}


def test_the_image_of_etcd_is_a_flag() -> None:
    options = Options(framework_flags=(TrainingJobFlags(paddle_etcd_image="example.org/etcd:3"),))
    pods = by_name(render(training_example(), REGISTRY, options=options), "Pod")
    assert [container["image"] for container in pods["examplejob-master-0"]["spec"]["containers"]] == [
        "example.org/paddlejob-mock:1",
        "example.org/etcd:3",
    ]


def test_the_environment_of_the_example() -> None:
    pods = objects(training_example())
    common = {
        "PADDLE_JOB_NAME": "examplejob",
        "TRAINERS": "2",
        "PSERVERS": "2",
        "ENTRY": "python /workspace/vgg16.py",
        "TOPOLOGY": "python /workspace/vgg16.py",
        "TRAINER_PACKAGE": "/workspace",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_TRAINER_COUNT": "1",
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_NUM_PASSES": "50",
        "PADDLE_INIT_USE_GPU": "0",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
        "NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "PADDLE_INIT_PSERVERS": "examplejob-pserver-0,examplejob-pserver-1",
        "PADDLE_PSERVERS": "2",
        "PADDLE_TRAINERS": "2",
        "PADDLE_PSERVER_PORT": "7164",
        "PADDLE_PSERVER_IPS": "examplejob-pserver-0,examplejob-pserver-1",
        "MASTER_IP": "examplejob-master-0",
        "ETCD_IP": "examplejob-master-0",
    }
    for role, name, index in (("TRAINER", "trainer-1", "1"), ("PSERVER", "pserver-1", "1"), ("MASTER", "master-0", "0")):
        pod = pods[f"examplejob-{name}"]
        for container in range(len(pod["spec"]["containers"])):
            assert env(pod, container) == {
                **common,
                "PADDLE_INIT_TRAINER_ID": index,
                "PADDLE_TRAINING_ROLE": role,
                "PADDLE_CURRENT_IP": f"examplejob-{name}",
                "PADDLE_TRAINER_ID": index,
            }


def test_the_example_for_gang_scheduling() -> None:
    manifest = training_example_with_pod_group()
    pods = objects(manifest)
    assert [name.removeprefix("example-job-with-kube-batch-") for name in pods] == [
        "master-0",
        "pserver-0",
        "pserver-1",
        "trainer-0",
        "trainer-1",
    ]
    for pod in pods.values():
        assert pod["spec"]["schedulerName"] == "kube-batchd"
        assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "podgroup-1"
    resources = {"cpu": "100m", "memory": "100Mi"}
    assert main(pods["example-job-with-kube-batch-master-0"])["resources"] == {"limits": resources, "requests": resources}
    assert main(pods["example-job-with-kube-batch-trainer-0"])["command"] == ["sleep", "100"]
    assert warnings(make(TrainingJob, manifest["spec"])) == {
        "spec.mountPath": "has no effect, because the job does not have exactly one volume, or sets VolumeMounts"
    }


# --- roles and ports by mode ------------------------------------------------------------------------------------------

BASE, TRAINER_PORTS = {"jobport-7164": 7164, "jobport-7165": 7165}, {"jobport-6174": 6174, "jobport-6175": 6175}
MODES: dict[str, tuple[dict[str, Any], dict[str, dict[str, int]]]] = {
    "servers": ({}, {"pserver": BASE, "trainer": {}}),
    "local": ({"local_job": True}, {"trainer": {}}),
    "nccl": ({"is_nccl": True}, {"trainer": BASE}),
    "local nccl": ({"local_job": True, "is_nccl": True}, {"trainer": BASE}),
    "frame_work local": ({"frame_work": {"name": "paddle", "type": "local"}}, {"trainer": {}}),
    "frame_work nccl2": ({"frame_work": {"type": "nccl2"}}, {"trainer": TRAINER_PORTS}),
    "frame_work multi": ({"frame_work": {"name": "paddle", "type": "multi"}}, {"pserver": BASE, "trainer": {}}),
    "tensorflow": ({"frame_work": {"name": "tensorflow", "type": "multi"}}, {"pserver": BASE, "trainer": TRAINER_PORTS}),
    "frame_work replaces": (
        {"frame_work": {"type": "multi"}, "is_nccl": True, "local_job": True},
        {"pserver": BASE, "trainer": {}},
    ),
}


@pytest.mark.parametrize("name", MODES)
def test_the_mode_decides_about_roles_and_ports(name: str) -> None:
    fields, expected = MODES[name]
    pods = first_pods(**fields, trainer_port=6174, trainer_ports_num=2)
    assert {role: ports(pod) for role, pod in pods.items()} == expected


@pytest.mark.parametrize("fields", [{"local_job": True}, {"frame_work": {"type": "local"}}])
def test_a_local_job_has_one_trainer_and_no_servers(fields: dict[str, Any]) -> None:
    local = job(**fields, trainer={"min-instance": 3, "max-instance": 4})
    assert [(role.name, role.replicas, role.elastic) for role in local.spec.roles] == [("trainer", 1, None)]
    trainer = local.replica(local.spec.roles[0], 0).pod()
    assert (env(trainer)["TRAINERS"], env(trainer)["PSERVERS"]) == ("1", "0")
    assert warnings(local)["spec"] == "has fields without effect: pserver, trainer.max-instance, trainer.min-instance; remove them"


COLLECTIVE = {"PSERVERS": "0", "PADDLE_PSERVERS": "0", "PADDLE_INIT_PSERVERS": "", "PADDLE_PSERVER_IPS": ""}
PEERS = {"PADDLE_TRAINER_IPS": "train-trainer-0,train-trainer-1"}
ALONE = dict.fromkeys(("TRAINERS", "PADDLE_TRAINERS", "PADDLE_INIT_NUM_GRADIENT_SERVERS"), "1")
SERVERS = "train-pserver-0,train-pserver-1"
VARIABLES: dict[str, dict[str, str]] = {
    "servers": {},
    "local": COLLECTIVE | ALONE,
    "nccl": COLLECTIVE | PEERS,
    "frame_work local": COLLECTIVE | ALONE,
    "frame_work nccl2": COLLECTIVE | PEERS | {"PADDLE_PSERVER_PORT": "6174"},
    "frame_work multi": {},
    "tensorflow": {},
}
"""By mode, how the environment of a trainer differs from that of a job with parameter servers."""


@pytest.mark.parametrize("name", VARIABLES)
def test_the_environment_of_a_trainer_by_mode(name: str) -> None:
    fields, _ = MODES[name]
    pods = first_pods(**fields, trainer_port=6174, trainer_ports_num=2)
    assert env(pods["trainer"]) == {
        "PADDLE_JOB_NAME": "train",
        "TRAINERS": "2",
        "PSERVERS": "2",
        "ENTRY": "",
        "TOPOLOGY": "",
        "TRAINER_PACKAGE": "",
        "PADDLE_INIT_PORT": "7164",
        "PADDLE_INIT_TRAINER_COUNT": "0",
        "PADDLE_INIT_PORTS_NUM": "1",
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": "1",
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": "2",
        "PADDLE_INIT_NUM_PASSES": "1",
        "PADDLE_INIT_USE_GPU": "0",
        "LD_LIBRARY_PATH": "/usr/local/cuda/lib64",
        "NAMESPACE": {"fieldRef": {"fieldPath": "metadata.namespace"}},
        "POD_IP": {"fieldRef": {"fieldPath": "status.podIP"}},
        "POD_NAME": {"fieldRef": {"fieldPath": "metadata.name"}},
        "PADDLE_INIT_PSERVERS": SERVERS,
        "PADDLE_INIT_TRAINER_ID": "0",
        "PADDLE_TRAINING_ROLE": "TRAINER",
        "PADDLE_PSERVERS": "2",
        "PADDLE_TRAINERS": "2",
        "PADDLE_CURRENT_IP": "train-trainer-0",
        "PADDLE_PSERVER_PORT": "7164",
        "PADDLE_PSERVER_IPS": SERVERS,
        "PADDLE_TRAINER_ID": "0",
        **VARIABLES[name],
    }


def test_a_job_without_pserver_has_no_parameter_servers() -> None:
    assert list(first_pods(pserver=None)) == ["trainer"]


def test_without_fault_tolerance_the_program_of_the_image_starts_the_roles() -> None:
    commands = {role: main(pod)["command"] for role, pod in first_pods().items()}
    assert commands == {"pserver": ["paddle_k8s", "start_pserver"], "trainer": ["paddle_k8s", "start_trainer"]}
    fault_tolerant = {role: main(pod)["command"][1] for role, pod in first_pods(fault_tolerant=True).items()}
    assert fault_tolerant == {"master": "start_master", "pserver": "start_new_pserver", "trainer": "start_new_trainer"}


# --- pods -------------------------------------------------------------------------------------------------------------


def test_an_entrypoint_is_split_like_a_shell_does_it_and_never_run_by_one() -> None:
    pods = first_pods(
        pserver={"entrypoint": "serve  --name 'a b' $HOME"}, trainer={"entrypoint": 'python train.py --data "my data" && rm -r /'}
    )
    assert main(pods["pserver"])["command"] == ["serve", "--name", "a b", "$HOME"]
    assert main(pods["trainer"])["command"] == ["python", "train.py", "--data", "my data", "&&", "rm", "-r", "/"]
    assert main(first_pods(trainer={"entrypoint": "  "})["trainer"])["command"] == ["paddle_k8s", "start_trainer"]


def test_each_role_has_its_own_scheduling_and_lifecycle() -> None:
    def fields(role: str) -> dict[str, Any]:
        return {
            "tolerations": [{"key": role, "operator": "Exists"}],
            "node_selector": {"pool": role},
            "imagePullSecrets": [{"name": role}],
            "grace_period_seconds": len(role),
            "pre_stop_cmd": ["save", role],
            "liveness_probe": {"tcpSocket": {"port": 1}},
            "readiness_probe": {"exec": {"command": [role]}},
        }

    roles = ("master", "pserver", "trainer")
    pods = first_pods(**FAULT_TOLERANT, **{role: fields(role) for role in roles})
    for role in roles:
        spec, container = pods[role]["spec"], main(pods[role])
        assert spec["tolerations"] == [{"key": role, "operator": "Exists"}]
        assert spec["nodeSelector"] == {"pool": role}
        assert spec["imagePullSecrets"] == [{"name": role}]
        assert spec["terminationGracePeriodSeconds"] == len(role)
        assert container["lifecycle"] == {"preStop": {"exec": {"command": ["save", role]}}}
        assert (container["livenessProbe"], container["readinessProbe"]) == ({"tcpSocket": {"port": 1}}, {"exec": {"command": [role]}})


def test_a_command_before_the_stop_needs_no_grace_period() -> None:
    trainer = first_pods(trainer={"pre_stop_cmd": ["save"]})["trainer"]
    assert main(trainer)["lifecycle"]["preStop"]["exec"]["command"] == ["save"]
    assert "terminationGracePeriodSeconds" not in trainer["spec"]
    assert first_pods(trainer={"grace_period_seconds": 0})["trainer"]["spec"]["terminationGracePeriodSeconds"] == 0


@pytest.mark.parametrize("fields", [{"VolumeMounts": [MOUNT]}, {"mountpath": "/data"}, {"mountPath": "/data"}])
def test_volumes_are_in_all_pods_and_their_mounts_in_master_and_trainers(fields: dict[str, Any]) -> None:
    pods = first_pods(**FAULT_TOLERANT, volumes=VOLUMES, **fields)
    assert [pod["spec"]["volumes"] for pod in pods.values()] == [VOLUMES] * 3
    assert {role: main(pod).get("volumeMounts") for role, pod in pods.items()} == {"master": [MOUNT], "pserver": None, "trainer": [MOUNT]}
    assert "volumeMounts" not in pods["master"]["spec"]["containers"][1]


def test_annotations_of_the_spec_set_priority_and_scheduler() -> None:
    pods = first_pods(**FAULT_TOLERANT, schedulerName="default", annotations={"priority": "high", "scheduler": "batch"})
    assert [pod["metadata"]["labels"]["priority"] for pod in pods.values()] == ["high"] * 3
    annotations = {role: pod["metadata"]["annotations"].get("priority") for role, pod in pods.items()}
    assert annotations == {"master": None, "pserver": None, "trainer": "high"}
    schedulers = {role: pod["spec"]["schedulerName"] for role, pod in pods.items()}
    assert schedulers == {"master": "default", "pserver": "batch", "trainer": "batch"}


def test_without_annotations_of_the_spec_pods_have_no_priority_and_no_group() -> None:
    metadata = first_pods()["trainer"]["metadata"]
    assert "priority" not in metadata["labels"]
    assert metadata["annotations"].keys() == {"dlop.dev/size", "dlop.dev/rendered"}


def test_all_pods_can_use_the_network_of_their_nodes() -> None:
    pods = first_pods(**FAULT_TOLERANT, host_network=True)
    assert [(pod["spec"]["hostNetwork"], pod["spec"]["dnsPolicy"]) for pod in pods.values()] == [(True, "ClusterFirstWithHostNet")] * 3


def test_variables_of_the_user_are_sorted_come_last_and_override() -> None:
    envs = {role: {"Z": role, "A": "at $(POD_IP)", "TRAINERS": "7"} for role in ("master", "pserver", "trainer")}
    for role, pod in first_pods(**FAULT_TOLERANT, **{role: {"envs": variables} for role, variables in envs.items()}).items():
        variables = env(pod)
        assert list(variables)[-2:] == ["A", "Z"]
        assert (variables["A"], variables["Z"], variables["TRAINERS"]) == ("at $(POD_IP)", role, "7")


@pytest.mark.parametrize("name", ["alpha.kubernetes.io/nvidia-gpu", "nvidia.com/gpu"])
def test_gpus_are_requested_by_their_current_name_and_counted(name: str) -> None:
    trainer = first_pods(trainer={"resources": {"limits": {name: 2}}})["trainer"]
    assert main(trainer)["resources"] == {"limits": {"nvidia.com/gpu": 2}}
    assert (env(trainer)["PADDLE_INIT_TRAINER_COUNT"], env(trainer)["PADDLE_INIT_USE_GPU"]) == ("2", "1")


def test_the_default_image() -> None:
    assert main(first_pods(image="")["trainer"])["image"] == "paddlepaddle/paddlecloud-job:0.11.0"


# --- elastic trainers -------------------------------------------------------------------------------------------------


def test_trainers_of_a_fault_tolerant_job_are_elastic() -> None:
    example = make(TrainingJob, training_example()["spec"])
    trainer = example.spec.role("trainer")
    assert trainer is not None
    assert (trainer.replicas, trainer.elastic) == (2, ElasticRange(minimum=2, maximum=6, path="spec.trainer.max-instance"))
    assert example.size == "master=1,pserver=2"
    assert warnings(make(TrainingJob, training_example()["spec"], options=Options(autoscaler=True))) == {}


def test_the_environment_has_the_minimum_of_elastic_trainers() -> None:
    spec = training_example()["spec"]
    example, scaled = make(TrainingJob, spec), make(TrainingJob, spec, status={"dlop": {"elasticReplicas": {"trainer": 5}}})
    assert scaled.replicas("trainer") == 5
    first, second = (each.replica(each.spec.roles[-1], 1).pod() for each in (example, scaled))
    assert first == second


def test_a_minimum_above_the_maximum_is_the_number_of_pods() -> None:
    fixed = job(trainer={"min-instance": 3, "max-instance": 2}, pserver={"min-instance": 1, "max-instance": 2})
    assert (fixed.replicas("trainer"), fixed.replicas("pserver")) == (3, 1)
    assert warnings(fixed) == {
        "spec.trainer.max-instance": "is 2, and the number of trainers is fixed at 3, which is min-instance",
        "spec.pserver.max-instance": "is 2, and the number of parameter servers is fixed at 1, which is min-instance",
    }


# --- fields without effect --------------------------------------------------------------------------------------------


def test_all_fields_without_effect_are_listed_in_one_warning() -> None:
    unused = job(
        nfsmount="/nfs",
        matrix=True,
        annotations={"usergroupid": "g", "userid": "u", "queue": "q", "walltime": 60, "scheduler": "s"},
        schedulerName="t",
        trainer_port=6174,
        trainer_ports_num=1,
        master={"envs": {"A": "b"}},
        pserver={"replicaSpec": {"kind": "ReplicaSet"}, "index_succeed": True, "workspace": "/"},
        trainer={"etcd-endpoint": "e", "replicaSpec": {"kind": "Job"}, "index_succeed": True, "passes": 3, "secrets": ["s"]},
        passes=2,
        serviceAccount="sa",
        runPolicy={"activeDeadlineSeconds": 30},
    )
    assert warnings(unused) == {
        "spec": (
            "has fields without effect: annotations.queue, annotations.usergroupid, annotations.userid, annotations.walltime, master, "
            "matrix, nfsmount, pserver.index_succeed, pserver.replicaSpec, pserver.workspace, schedulerName, serviceAccount, "
            "trainer.etcd-endpoint, trainer.index_succeed, trainer.passes, trainer.replicaSpec, trainer.secrets, trainer_port, "
            "trainer_ports_num; remove them"
        )
    }


def test_fields_that_frame_work_replaces_have_no_effect() -> None:
    replaced = job(frame_work={"type": "nccl2"}, is_nccl=True, local_job=True)
    assert warnings(replaced)["spec"] == "has fields without effect: is_nccl, local_job, pserver; remove them"


def test_the_empty_values_that_the_old_operator_stored_are_no_fields() -> None:
    stored = make(TrainingJob, stored_training_job("train")["spec"])
    assert [(role.name, role.replicas) for role in stored.spec.roles] == [("trainer", 2)]
    assert warnings(stored) == {}
    assert stored.spec.run_policy.active_deadline_seconds is None


SPEC_KEYS = """
    image host_network port ports_num ports_num_for_sparse trainer_port trainer_ports_num fault_tolerant local_job is_nccl passes volumes
    VolumeMounts mountpath nfsmount annotations annotations.usergroupid annotations.userid annotations.priority annotations.scheduler
    annotations.walltime frame_work frame_work.name frame_work.type schedulerName podGroupName matrix master master.etcd-endpoint
    pserver pserver.entrypoint pserver.min-instance pserver.max-instance pserver.imagePullSecrets pserver.index_succeed
    trainer trainer.etcd-endpoint trainer.entrypoint trainer.workspace trainer.min-instance trainer.max-instance
    trainer.imagePullSecrets trainer.index_succeed
"""
ROLE_KEYS = "resources replicaSpec envs grace_period_seconds pre_stop_cmd tolerations node_selector liveness_probe readiness_probe"


FIELDS = [*SPEC_KEYS.split(), *(f"{role}.{name}" for role in ("master", "pserver", "trainer") for name in ROLE_KEYS.split())]


def test_the_crd_describes_all_fields_of_the_old_operator() -> None:
    assert len(FIELDS) == 70
    versions = {version["name"]: version for version in build_crd(TrainingJob)["spec"]["versions"]}
    assert list(versions) == ["v1", "v1alpha1"]
    spec = versions["v1"]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for key in FIELDS:
        parent, _, name = key.rpartition(".")
        described = spec["properties"][parent] if parent else spec
        assert described["properties"][name]["description"], key


NCCL2 = {"frame_work": {"name": "paddle", "type": "nccl2"}, "trainer_port": 6174, "trainer_ports_num": 1, "fault_tolerant": False}
MULTI = {**NCCL2, "frame_work": {"name": "paddle", "type": "multi"}}
WITH_VOLUMES, ROLE, PROBE = {"volumes": VOLUMES}, {"envs": {"A": "b"}}, {"tcpSocket": {"port": 1}}
NEEDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("trainer_port", "trainer_ports_num"), NCCL2),
    **dict.fromkeys(("frame_work.name", "frame_work.type"), MULTI),
    **dict.fromkeys(("VolumeMounts", "mountpath"), WITH_VOLUMES),
    "fault_tolerant": {"fault_tolerant": False},
}
"""Other fields that a field needs to have an effect."""
VALUES: dict[str, Any] = {
    **dict.fromkeys(("host_network", "fault_tolerant", "local_job", "is_nccl", "matrix", "index_succeed"), True),
    **dict.fromkeys(("port", "ports_num", "ports_num_for_sparse", "trainer_port", "trainer_ports_num", "passes"), 70),
    **dict.fromkeys(("grace_period_seconds", "walltime", "min-instance"), 9),
    **dict.fromkeys(("master", "pserver", "trainer"), ROLE),
    **dict.fromkeys(("envs", "node_selector"), ROLE["envs"]),
    **dict.fromkeys(("liveness_probe", "readiness_probe"), PROBE),
    **WITH_VOLUMES,
    "VolumeMounts": [MOUNT],
    "mountpath": "/data",
    "max-instance": 4,
    "annotations": {"priority": "high"},
    "frame_work": {"type": "local"},
    "frame_work.name": "tensorflow",
    "type": "nccl2",
    "resources": {"limits": {"cpu": "9"}},
    "replicaSpec": {"spec": {"replicas": 2}},
    "imagePullSecrets": [{"name": "secret"}],
    "pre_stop_cmd": ["save"],
    "tolerations": [{"operator": "Exists"}],
}
"""By field, a value other than the default. The value of all other fields is a string."""


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_of_the_old_operator_has_an_effect_or_is_reported(name: str) -> None:
    parent, _, last = name.rpartition(".")
    base = copy.deepcopy(training_job(**{**FAULT_TOLERANT, **NEEDS.get(name, {})})["spec"])
    changed = copy.deepcopy(base)
    (changed.setdefault(parent, {}) if parent else changed)[last] = VALUES.get(name, VALUES.get(last, "value"))
    before, after = (make(TrainingJob, spec, options=Options(autoscaler=True)) for spec in (base, changed))
    is_reported = any(path == f"spec.{name}" or name in re.split("[ ,;]+", message) for path, message in warnings(after).items())
    assert is_reported != (effects(before) != effects(after))


def effects(job: TrainingJob) -> tuple[Any, ...]:
    pods = [job.replica(role, 0).pod() for role in job.spec.roles]
    for pod in pods:
        del pod["metadata"]["annotations"]["dlop.dev/rendered"]
    return pods, [(role.replicas, role.elastic) for role in job.spec.roles], job.spec.run_policy


# --- invalid specs ----------------------------------------------------------------------------------------------------

INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "not fault-tolerant": (
        {"trainer": {"min-instance": 2, "max-instance": 4}},
        (
            "spec.trainer.max-instance: must be 2, which is min-instance, unless the job is fault-tolerant; "
            "set fault_tolerant to true, or this to 2"
        ),
    ),
    "framework": (
        {"frame_work": {"name": "torch", "type": "multi"}},
        "spec.frame_work.name: must be one of paddle, tensorflow, got 'torch'",
    ),
    "framework type": ({"frame_work": {"type": "ring"}}, "spec.frame_work.type: must be one of local, nccl2, multi, got 'ring'"),
    "no framework type": ({"frame_work": {"name": "paddle"}}, "spec.frame_work.type: is missing; set it to local, nccl2 or multi"),
    "negative": ({"trainer": {"min-instance": -1}}, "spec.trainer.min-instance: must be from 0 to 10000, got -1"),
    "negative passes": ({"passes": -1}, "spec.passes: must be at least 0, got -1"),
    "port": ({"port": 70_000}, "spec.port: must be from 0 to 65535, got 70000"),
    "too many ports": ({"ports_num": 1001}, "spec.ports_num: must be from 0 to 1000, got 1001"),
    "last port": ({"port": 65_535}, "spec.port: must leave room for all ports; the last one would be 65536, above 65535"),
    "no trainer port": (
        {"frame_work": {"type": "nccl2"}, "trainer_ports_num": 2},
        "spec.trainer_port: is missing; set it to the first of the 2 ports (trainer_ports_num) of the trainers",
    ),
    "entrypoint": (
        {"trainer": {"entrypoint": "echo 'a"}},
        "spec.trainer.entrypoint: cannot be split into words: no closing quotation; close all quotes, and escape quotes with a backslash",
    ),
    "pre_stop_cmd": ({"pserver": {"pre_stop_cmd": "save"}}, "spec.pserver.pre_stop_cmd: must be a list, got 'save'"),
    "item of pre_stop_cmd": ({"pserver": {"pre_stop_cmd": ["a", 1]}}, "spec.pserver.pre_stop_cmd[1]: must be a string, got 1"),
    "null in pre_stop_cmd": ({"pserver": {"pre_stop_cmd": ["a", None]}}, "spec.pserver.pre_stop_cmd: must not contain null; remove it"),
    "grace period": (
        {"trainer": {"grace_period_seconds": -1}},
        "spec.trainer.grace_period_seconds: must be at least 0, got -1",
    ),
    "envs": ({"trainer": {"envs": {"A": 1}}}, "spec.trainer.envs.A: must be a string, got 1"),
    "walltime": ({"annotations": {"walltime": "3600"}}, "spec.annotations.walltime: must be an integer, got '3600'"),
    "priority": (
        {"annotations": {"priority": "very high"}},
        (
            "spec.annotations.priority: must be a label value: at most 63 letters, digits, dashes, dots and underscores, "
            "with a letter or digit at both ends"
        ),
    ),
    "probe": ({"trainer": {"liveness_probe": "http"}}, "spec.trainer.liveness_probe: must be an object, got 'http'"),
    "tolerations": ({"trainer": {"tolerations": {}}}, "spec.trainer.tolerations: must be a list, got an object"),
    "node selector": ({"trainer": {"node_selector": ["a"]}}, "spec.trainer.node_selector: must be an object, got a list"),
    "master": ({"master": []}, "spec.master: must be an object, got a list"),
    "no trainer": ({"trainer": None}, "spec.trainer: is missing; add it with min-instance and entrypoint"),
    "unused": ({"nfsmount": 5}, "spec.nfsmount: must be a string; write '5'"),
}


@pytest.mark.parametrize("name", INVALID)
def test_a_wrong_value_is_reported_with_its_field(name: str) -> None:
    fields, expected = INVALID[name]
    assert problems(job(**fields)) == [expected]


@pytest.mark.parametrize("invalid", [None, 5, [], {}, "x", {"trainer": []}, {"trainer": {"envs": 5}}, {"frame_work": [], "trainer": {}}])
def test_an_invalid_spec_fails_the_job_with_its_problems(invalid: Any) -> None:
    status = make(TrainingJob, invalid).reconcile(Snapshot(), 1000.0).status
    assert status is not None
    assert (status["phase"], status["conditions"][-1]["reason"]) == ("Failed", "InvalidSpec")
    assert status["reason"].startswith("spec")


KEYS = st.sampled_from([part for key in (*SPEC_KEYS.split(), *ROLE_KEYS.split(), "runPolicy") for part in key.split(".")])
SCALARS = st.none() | st.booleans() | st.integers(-1, 70_000) | st.sampled_from(["", "a 'b", "multi", "local", "high prio", "1"])
JSON_VALUES = st.recursive(SCALARS, lambda value: st.lists(value, max_size=2) | st.dictionaries(KEYS, value, max_size=6), max_leaves=20)


@given(st.dictionaries(KEYS, JSON_VALUES, max_size=12))
def test_any_spec_is_planned_or_fails_the_job_with_its_problems(spec: dict[str, Any]) -> None:
    arbitrary = make(TrainingJob, spec)
    plan = arbitrary.reconcile(Snapshot(), 1000.0)
    is_invalid = plan.status is not None and plan.status["phase"] == "Failed"
    assert not (is_invalid and plan.pods)
    assert all(problem.startswith("spec") for problem in (problems(arbitrary) if is_invalid else ()))


def test_the_spec_is_never_modified() -> None:
    manifest = training_job(**FAULT_TOLERANT, trainer={"resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}})
    before = copy.deepcopy(manifest)
    objects(manifest)
    assert manifest == before
