"""Each field of each example is replaced by unexpected values. The job must be rendered, or rejected with the path of the field."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from dlop import DLJob, Options, Phase
from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob as KubeDLMPIJob
from dlop.frameworks.kubedl.tfjob import TFJob as KubeDLTFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorch_init import PyTorchFlags
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.registry import Registry, load_registry
from dlop.jobs.render import RenderError, parse_job, render
from dlop.policies import INGRESSES
from dlop.reconcile.snapshot import Snapshot
from tests.frameworks.example_manifests import example
from tests.frameworks.kubedl_manifests import KINDS as KUBEDL_KINDS
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.frameworks.kubeflow_jobs import job, mpi_job
from tests.frameworks.kubeflow_manifests import KINDS
from tests.frameworks.paddle_manifests import batch_job, batch_role, sample, training_example
from tests.frameworks.ring_example import RingJob

REGISTRY = Registry([*load_registry(), RingJob])
UNEXPECTED_VALUES: list[Any] = [None, "", "x", "X" * 300, 0, -1, 10**12, 1.5, True, [], {}, [None], ["x"], {"x": None}, {"x": {"y": []}}]
ALL_OPTIONS = Options(
    gang_scheduler_name="coscheduling", framework_flags=(PyTorchFlags(pytorch_init_container_image="example.org/wait:1"),)
)
"""All options that add something to pods."""
TENSORBOARD = {
    "logDir": "/l",
    "image": "t",
    "ttlSecondsAfterJobFinished": 2000,
    "ingress": {"host": "h", "pathPrefix": "/p", "className": "c", "annotations": {"a": "b"}},
}
Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        yield from paths(child, (*path, step))


def with_value(manifest: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    copied = copy.deepcopy({"spec": manifest["spec"]})
    parent: Any = copied
    for step in ("spec", *path)[:-1]:
        parent = parent[step]
    parent[("spec", *path)[-1]] = value
    return manifest | copied


def complete_example(name: str) -> dict[str, Any]:
    """An example whose first template has all fields that dlop reads."""
    manifest = example(name)
    spec = manifest["spec"]
    if isinstance(spec, dict):
        policy = {"suspend": False, "managedBy": "dlop", "ttlSecondsAfterFinished": 3000, "tensorBoard": TENSORBOARD}
        spec.setdefault("runPolicy", {}).update(policy)
    roles = spec if isinstance(spec, list) else spec["replicaSpecs"]
    add_all_fields(roles[0] if isinstance(roles, list) else next(iter(roles.values())))
    return manifest


def add_all_fields(role: dict[str, Any]) -> None:
    """Set all fields of a role that dlop reads."""
    role["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.org/f"]}
    role["template"]["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    role["template"]["spec"]["initContainers"] = [{"name": "i", "image": "i", "resources": {"requests": {"cpu": 1}}}]
    container = role["template"]["spec"]["containers"][0]
    container |= {
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"name": "mx-port", "containerPort": 1}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}, "requests": {"cpu": 1}},
    }


def complete_mxjob() -> dict[str, Any]:
    manifest = complete_example("01-mxnet-linear")
    chief = {"replicaName": "WORKER", "replicaIndex": 0}
    manifest["spec"] |= {"RuntimeId": "abcd", "schedulerName": "s", "mxImage": "x", "terminationPolicy": {"chief": chief}}
    manifest["spec"]["replicaSpecs"][0]["mxPort"] = 9001
    return manifest


def complete_kubeflow_job(kind: type[DLJob]) -> dict[str, Any]:
    """A job with all fields of its spec."""
    scheduling = {"minAvailable": 1, "queue": "q", "minResources": {"cpu": "1"}, "priorityClass": "p", "scheduleTimeoutSeconds": 1}
    limits = {"backoffLimit": 1, "activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 3}
    policy = {"suspend": False, "cleanPodPolicy": "None", "restartScope": "Job", "hostNetwork": True, **limits}
    policy |= {"schedulingPolicy": scheduling}
    manifest = mpi_job() if kind is MPIJob else job(kind)
    manifest["spec"] |= {"runPolicy": policy | {"managedBy": "kubeflow.org/training-operator"}, **FURTHER_FIELDS.get(kind, {})}
    for role in manifest["spec"][kind.schema.field].values():
        add_all_fields(role)
        role["template"]["spec"] |= {"dnsPolicy": "Default", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}
        role["spotReplicas"] = SPOT_REPLICAS
    return copy.deepcopy(manifest)


SPOT_REPLICAS: dict[str, Any] = {
    "replicas": 1,
    "priorityClassName": "p",
    "labels": {"a": "b"},
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}],
    "nodeSelector": {"a": "b"},
    "maxDisruptions": 1,
}


FURTHER_FIELDS: dict[type[DLJob], dict[str, Any]] = {
    MPIJob: {"slotsPerWorker": 1, "cleanPodPolicy": "All", "mainContainer": "m"},
    PaddleJob: {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "metrics": [{"type": "Resource"}]}},
    PyTorchJob: {
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 2,
            "rdzvBackend": "b",
            "rdzvPort": 1,
            "rdzvHost": "h",
            "rdzvId": "i",
            "standalone": True,
            "rdzvConf": [{"key": "a", "value": "b"}],
            "maxRestarts": 1,
            "metrics": [{"type": "Resource"}],
        },
        "nprocPerNode": "2",
    },
    TFJob: {"enableDynamicWorker": True, "successPolicy": "AllWorkers"},
}
"""Fields of individual kinds."""


def complete_training_job() -> dict[str, Any]:
    """A fault-tolerant TrainingJob with all fields that dlop reads."""
    role = {
        "min-instance": 1,
        "max-instance": 1,
        "entrypoint": "run 'it'",
        "resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}, "requests": {"cpu": 1}},
        "imagePullSecrets": [{"name": "s"}],
        "envs": {"A": "1"},
        "grace_period_seconds": 1,
        "pre_stop_cmd": ["save"],
        "tolerations": [{"key": "k"}],
        "node_selector": {"disk": "ssd"},
        "liveness_probe": {"exec": {"command": ["live"]}},
        "readiness_probe": {"exec": {"command": ["ready"]}},
    }
    manifest = training_example()
    manifest["spec"] |= {
        "host_network": True,
        "trainer_port": 7000,
        "trainer_ports_num": 1,
        "passes": 1,
        "volumes": [{"name": "v", "emptyDir": {}}],
        "VolumeMounts": [{"name": "v", "mountPath": "/v"}],
        "mountpath": "/v",
        "annotations": {"priority": "p", "scheduler": "s", "walltime": 1},
        "frame_work": {"name": "tensorflow", "type": "multi"},
        "schedulerName": "s",
        "podGroupName": "g",
        "runPolicy": {"suspend": False, "cleanPodPolicy": "None", "backoffLimit": 1},
        "master": role,
        "pserver": role,
        "trainer": role | {"max-instance": 2, "workspace": "/w", "passes": 1},
    }
    return manifest


def complete_batch_paddle_job() -> dict[str, Any]:
    """A PaddleJob of batch.paddlepaddle.org with all fields of its spec."""
    fields: dict[str, Any] = {
        "intranet": "Host",
        "cleanPodPolicy": "Never",
        "cleanPolicy": "Always",
        "withGloo": 1,
        "elastic": 1,
        "schedulingPolicy": {"minAvailable": 1, "queue": "q", "priorityClass": "p", "minResources": {"cpu": "1"}},
        "sampleSetRef": {"name": "s"},
        "runPolicy": {"suspend": False, "backoffLimit": 1, "restartScope": "Role", "autoscale": True},
        "heter": batch_role(1),
    }
    manifest = batch_job(ps=batch_role(1), worker=batch_role(1, restartPolicy="ExitCode"), **fields)
    for role in ("ps", "worker", "heter"):
        add_all_fields(manifest["spec"][role])
    manifest["spec"]["worker"] |= {"requests": 1, "limits": 2}
    return manifest


def complete_kubedl_job(kind: type[KubeDLJob]) -> dict[str, Any]:
    """A job of training.kubedl.io with all fields of its spec."""
    manifest = kubedl_job(kind, **KUBEDL_FIELDS.get(kind, {}))
    manifest["spec"] |= {
        "cleanPodPolicy": "None",
        "ttlSecondsAfterFinished": 3,
        "activeDeadlineSeconds": 1,
        "backoffLimit": 1,
        "schedulingPolicy": {"minAvailable": 1, "priority": 1, "priorityClassName": "p", "queue": "q"},
        "cronPolicy": {"schedule": "@daily"},
        "modelVersion": {"modelName": "m"},
        "cacheBackend": {"name": "c"},
        "runPolicy": {"suspend": False, "restartScope": "Role", "managedBy": "dlop"},
    }
    for role in manifest["spec"][kind.schema.field].values():
        add_all_fields(role)
        role |= {
            "restartPolicy": "ExitCode",
            "spotReplicaSpec": {"spotReplicaNumber": 1, "priorityClassName": "p", "labels": {"a": "b"}},
        }
        role["template"]["spec"]["containers"][0]["env"].append({"name": "ZK_ADDR", "value": "zk"})
    return manifest


KUBEDL_FIELDS: dict[type[KubeDLJob], dict[str, Any]] = {
    KubeDLTFJob: {"successPolicy": "AllWorkers"},
    XDLJob: {"minFinishWorkNum": 1, "minFinishWorkRate": 50},
    MarsJob: {
        "webHost": "h",
        "workerMemoryTuningPolicy": {
            "plasmaStore": "/p",
            "lockFreeFileIO": True,
            "spillDirs": ["/s"],
            "workerCachePercentage": 50,
            "workerCacheSize": "1Gi",
        },
    },
    KubeDLMPIJob: {
        "slotsPerWorker": 1,
        "mainContainer": "main",
        "mpiDistribution": "MPICH",
        "gpus": 2,
        "gpusPerNode": 2,
        "processingResourceType": "cpu",
        "launcherOnMaster": True,
        "replicas": 1,
        "template": {"spec": {"containers": [{"name": "mpi", "image": "i", "resources": {"limits": {"cpu": 1}}}]}},
    },
}
"""Fields of individual kinds of training.kubedl.io."""


KUBEFLOW_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
MANIFESTS = {"mxjob": complete_mxjob(), "poc": complete_example("02-mxnet-poc"), "ring": complete_example("04-custom-framework")} | {
    kind.job_type.kind: complete_kubeflow_job(kind) for kind in KUBEFLOW_KINDS
}
MANIFESTS |= {f"kubedl-{kind.job_type.kind}": complete_kubedl_job(kind) for kind in KUBEDL_KINDS}
MANIFESTS |= {"trainingjob": complete_training_job(), "paddlepaddle": sample(), "batch_paddlepaddle": complete_batch_paddle_job()}


def render_error(manifest: dict[str, Any]) -> str | None:
    try:
        render(manifest, REGISTRY)
    except RenderError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_with_an_unexpected_value_is_rendered_or_rejected_with_a_path(name: str) -> None:
    manifest = MANIFESTS[name]
    assert render(manifest, REGISTRY)
    rejected = [
        (path, problem)
        for path in paths(manifest["spec"])
        for value in UNEXPECTED_VALUES
        if (problem := render_error(with_value(manifest, path, value))) is not None
    ]
    assert [(path, problem) for path, problem in rejected if ": spec" not in problem] == []
    assert len(rejected) > 100


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_job_with_an_unexpected_value_gets_a_plan_or_the_phase_invalid(name: str) -> None:
    manifest = MANIFESTS[name]
    for path in paths(manifest["spec"]):
        for value in UNEXPECTED_VALUES:
            parsed_job = parse_job(with_value(manifest, path, value), REGISTRY, options=ALL_OPTIONS)
            plan = parsed_job.reconcile(Snapshot(), 0.0)
            if plan.status is None:
                assert parsed_job.managed_by_other, path
            elif parsed_job.status.read_phase(plan.status) is Phase.INVALID:
                assert not plan.pods, path


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_finished_job_with_an_unexpected_value_gets_a_plan(name: str) -> None:
    manifest = MANIFESTS[name]
    status = {"dlop": {"phase": "Succeeded", "finishedAt": "1970-01-01T00:16:40Z"}}
    for path in paths(manifest["spec"]):
        for value in UNEXPECTED_VALUES:
            changed = parse_job(with_value(manifest, path, value), REGISTRY, options=ALL_OPTIONS)
            stored = msgspec.structs.replace(changed._resource.stored, status=msgspec.Raw(msgspec.json.encode(status)))
            plan = type(changed)(stored, options=ALL_OPTIONS).reconcile(Snapshot(unwatched=(INGRESSES,)), 1001.0)
            assert (plan.status, plan.pods) == (None, ()), path
            assert all(msgspec.json.encode(create.body) for create in plan.companions), path
