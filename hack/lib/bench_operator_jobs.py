"""Jobs for the benchmark of the operator, with pods of the size of real training jobs (about 2.5 KB of JSON)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from dlop.api.types import ContainerProperties
from dlop.frameworks.fioravanzo import mxjob
from dlop.frameworks.kubeflow import jaxjob, paddlejob, pytorchjob, tfjob
from dlop.job import DLJob
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.resources import PODS, SERVICES, Resource

JobBody = dict[str, Any]
_read_job = object_decoder(CustomObject)


@dataclass(frozen=True)
class MeasuredKind:
    """A kind of jobs with workers and, if `leader` is set, a leader that determines success."""

    job: type[DLJob]
    leader: str = ""

    @property
    def resource(self) -> Resource:
        return self.job.job_type.resource

    @property
    def title(self) -> str:
        return self.job.job_type.kind

    def is_leader(self, pod: str) -> bool:
        return bool(self.leader) and f"-{self.leader.lower()}-" in pod

    def body(self, name: str, *, namespace: str, pods: int, **run_policy: Any) -> JobBody:
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**self._replica_specs(pods), "runPolicy": run_policy},
        }

    def _replica_specs(self, pods: int) -> JobBody:
        counts = {self.leader: 1, "Worker": pods - 1} if self.leader else {"Worker": pods}
        specs = {role: self._replica_spec(role, count) for role, count in counts.items() if count}
        return {self.job.schema.field: specs}

    def _replica_spec(self, role: str, count: int) -> JobBody:
        return {"replicas": count, "restartPolicy": _restart_policy(role), "template": _template(self.job)}


class ListKind(MeasuredKind):
    """A kind whose roles are a list, with the restart policy in the pod template."""

    def _replica_specs(self, pods: int) -> JobBody:
        specs: JobBody = super()._replica_specs(pods)[self.job.schema.field]
        return {"replicaSpecs": [_list_entry(role, spec) for role, spec in specs.items()]}


MXNET = ListKind(mxjob.MXJob, leader="Scheduler")
"""The reference kind."""
PYTORCH = MeasuredKind(pytorchjob.PyTorchJob, leader="Master")
TENSORFLOW = MeasuredKind(tfjob.TFJob)
"""A kind whose pods grow with the size of the job, because each pod has the addresses of all."""
OTHER_KINDS = {
    "pytorch": PYTORCH,
    "paddle": MeasuredKind(paddlejob.PaddleJob, leader="Master"),
    "jax": MeasuredKind(jaxjob.JAXJob),
}
"""Kinds whose pods do not grow with the size of the job, by framework."""


@dataclass(frozen=True)
class Load:
    """`jobs` jobs of `pods` pods each."""

    jobs: int
    pods: int

    @property
    def objects(self) -> int:
        """The number of pods and services."""
        return 2 * self.jobs * self.pods

    @property
    def title(self) -> str:
        return f"{self.jobs:,} jobs of {self.pods} pods" if self.jobs > 1 else f"one job of {self.pods:,} pods"

    def bodies(self, kind: MeasuredKind, namespace: str, *, name: str = "job") -> list[JobBody]:
        """The jobs, with `restartScope: Job`."""
        return [kind.body(f"{name}-{number}", namespace=namespace, pods=self.pods, restartScope="Job") for number in range(self.jobs)]


def child_objects(kind: MeasuredKind, body: JobBody, *, uid: str) -> list[tuple[Resource, JobBody]]:
    """The objects that the operator creates for a job, in the same order: all services, then all pods."""
    resource = _read_job(msgspec.json.encode({**body, "metadata": {**body["metadata"], "uid": uid}}))
    job = kind.job(resource)
    replicas = [(role, index) for role in job.spec.roles for index in range(role.replicas)]
    services = [job.replica(role, index).service() for role, index in replicas]
    pods = [job.replica(role, index).pod() for role, index in replicas]
    return [*((SERVICES, service) for service in services if service is not None), *((PODS, pod) for pod in pods)]


def _restart_policy(role: str) -> str:
    return "OnFailure" if role == "Worker" else "Never"


def _list_entry(role: str, spec: JobBody) -> JobBody:
    template = spec["template"]
    pod = {"restartPolicy": spec["restartPolicy"], **template["spec"]}
    return {"mxReplicaType": role.upper(), "replicas": spec["replicas"], "template": {**template, "spec": pod}}


def _template(job: type[DLJob]) -> JobBody:
    return {
        "metadata": {
            "labels": {"app.kubernetes.io/name": "resnet", "app.kubernetes.io/part-of": "vision", "team": "perception"},
            "annotations": {"sidecar.istio.io/inject": "false", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": {
            "containers": [_container(job.container_properties)],
            "nodeSelector": {"accelerator": "a100-80gb"},
            "priorityClassName": "",
            "imagePullSecrets": [{"name": "registry-credentials"}],
            "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [
                {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
                {"name": "data", "persistentVolumeClaim": {"claimName": "imagenet", "readOnly": True}},
                {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
                {"name": "settings", "configMap": {"name": "training-settings"}},
            ],
        },
    }


def _container(properties: ContainerProperties) -> JobBody:
    variables = {
        "PYTHONUNBUFFERED": "1",
        "NCCL_DEBUG": "WARN",
        "NCCL_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "8",
        "MXNET_CUDNN_AUTOTUNE_DEFAULT": "1",
        "DATA_ROOT": "/data/imagenet",
        "CHECKPOINT_ROOT": "/checkpoints/resnet50",
    }
    options = ["--network=resnet", "--num-layers=50", "--batch-size=256", "--num-epochs=90", "--kv-store=dist_sync", "--lr=0.4"]
    return {
        "name": properties.name,
        "image": "registry.example.org/perception/train-imagenet:2026-01",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "/opt/train/train_imagenet.py"],
        "args": options,
        "workingDir": "/opt/train",
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": properties.port_name, "containerPort": properties.port, "protocol": "TCP"}],
        "resources": {
            "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"},
            "limits": {"memory": "64Gi", "nvidia.com/gpu": "1"},
        },
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "data", "mountPath": "/data", "readOnly": True},
            {"name": "checkpoints", "mountPath": "/checkpoints"},
            {"name": "settings", "mountPath": "/etc/training"},
        ],
    }
