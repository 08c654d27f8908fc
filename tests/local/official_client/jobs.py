"""Jobs built with the models of the official client, which is installed only in its own environment."""

from __future__ import annotations

from typing import Any

from kubeflow.training import models
from kubeflow.training.constants import constants

API_VERSION = "kubeflow.org/v1"

WAITING = "trap 'exit 143' TERM; echo started in $HOSTNAME; until test -e /hold/code; do sleep 0.05; done"
"""Waits for a file with the exit code, which `release` creates."""
ENDING = "echo done; exit $(cat /hold/code)"
HELD = f"{WAITING}; {ENDING}"
FAILING = "echo the disk is full; exit 3"

ROLES: dict[str, dict[str, int]] = {
    "TFJob": {"Chief": 1, "Worker": 1},
    "PyTorchJob": {"Master": 1, "Worker": 1},
    "XGBoostJob": {"Master": 1, "Worker": 1},
    "MPIJob": {"Launcher": 1, "Worker": 1},
    "PaddleJob": {"Master": 1, "Worker": 1},
    "JAXJob": {"Worker": 2},
}

_FIELDS = {
    "TFJob": "tf_replica_specs",
    "PyTorchJob": "pytorch_replica_specs",
    "XGBoostJob": "xgb_replica_specs",
    "MPIJob": "mpi_replica_specs",
    "PaddleJob": "paddle_replica_specs",
    "JAXJob": "jax_replica_specs",
}


def job(kind: str, name: str, script: str, *, others: str = "", init: str = "", restart_policy: str = "Never") -> Any:
    """A job whose replicas run a script. `others` is the script of all roles except the first, `init` an init script."""
    roles = {
        role: models.KubeflowOrgV1ReplicaSpec(
            replicas=count,
            restart_policy=restart_policy,
            template=pod_template(container_of(kind), others if others and position else script, init=init),
        )
        for position, (role, count) in enumerate(ROLES[kind].items())
    }
    run_policy = models.KubeflowOrgV1RunPolicy(clean_pod_policy="None")
    spec = getattr(models, f"KubeflowOrgV1{kind}Spec")(run_policy=run_policy, **{_FIELDS[kind]: roles})
    metadata = models.V1ObjectMeta(name=name)
    return getattr(models, f"KubeflowOrgV1{kind}")(api_version=API_VERSION, kind=kind, metadata=metadata, spec=spec)


def container_of(kind: str) -> str:
    """The name of the main container."""
    return str(constants.JOB_PARAMETERS[kind]["container"])


def replica_specs(job: Any) -> dict[str, Any]:
    return dict(getattr(job.spec, _FIELDS[job.kind]))


def pod_template(container: str, script: str, *, init: str = "") -> Any:
    """Pods with a short grace period and a volume for the release file."""
    mounts = [models.V1VolumeMount(name="hold", mount_path="/hold")]
    init_containers = [_container("first", init, mounts)] if init else None
    spec = models.V1PodSpec(
        init_containers=init_containers,
        containers=[_container(container, script, mounts)],
        volumes=[models.V1Volume(name="hold", empty_dir=models.V1EmptyDirVolumeSource())],
        termination_grace_period_seconds=1,
    )
    return models.V1PodTemplateSpec(spec=spec)


def _container(name: str, script: str, mounts: list[Any]) -> Any:
    return models.V1Container(name=name, image="example.org/train:1", command=["sh", "-c", script], volume_mounts=mounts)
