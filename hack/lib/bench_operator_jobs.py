"""Jobs to measure the operator with: MXJobs whose pods are as large as those of real training jobs (about 2.5 KB of JSON)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from dlop.frameworks.fioravanzo_mxjob import MXJob
from dlop.kube.objects import CustomObject, reader
from dlop.kube.resources import PODS, SERVICES, Resource

JOBS = MXJob.job_type.resource
JobBody = dict[str, Any]
_read_job = reader(CustomObject)


@dataclass(frozen=True)
class Load:
    """So many jobs of so many pods each."""

    jobs: int
    pods: int

    @property
    def objects(self) -> int:
        """How many pods and services that makes."""
        return 2 * self.jobs * self.pods

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.jobs:,} jobs of {self.pods} pods" if self.jobs > 1 else f"one job of {self.pods:,} pods"

    def bodies(self, namespace: str) -> list[JobBody]:
        """The jobs. They are restarted as a whole."""
        return [job_body(f"job-{number}", namespace=namespace, pods=self.pods, restartScope="Job") for number in range(self.jobs)]


def job_body(name: str, *, namespace: str, pods: int, **run_policy: Any) -> JobBody:
    """A job of so many pods: the scheduler, which decides, and workers."""
    roles = [
        {"mxReplicaType": "SCHEDULER", "replicas": 1, "template": _template("Never")},
        {"mxReplicaType": "WORKER", "replicas": pods - 1, "template": _template("OnFailure")},
    ]
    spec = {"replicaSpecs": [role for role in roles if role["replicas"]], "runPolicy": run_policy}
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def objects_of(body: JobBody, *, uid: str) -> list[tuple[Resource, JobBody]]:
    """What the operator creates for a job, in its order: all services, then all pods."""
    found = _read_job(msgspec.json.encode({**body, "metadata": {**body["metadata"], "uid": uid}}))
    job = MXJob(found)
    replicas = [(role, index) for role in job.spec.roles for index in range(role.replicas)]
    services = [job.make_service(role, index) for role, index in replicas]
    pods = [job.make_pod(role, index, attempt=0) for role, index in replicas]
    return [*((SERVICES, service) for service in services if service is not None), *((PODS, pod) for pod in pods)]


def _template(restart_policy: str) -> JobBody:
    return {
        "metadata": {
            "labels": {"app.kubernetes.io/name": "resnet", "app.kubernetes.io/part-of": "vision", "team": "perception"},
            "annotations": {"sidecar.istio.io/inject": "false", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        },
        "spec": {
            "restartPolicy": restart_policy,
            "containers": [_container()],
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


def _container() -> JobBody:
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
        "name": "mxnet",
        "image": "registry.example.org/perception/train-imagenet:2026-01",
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "/opt/train/train_imagenet.py"],
        "args": options,
        "workingDir": "/opt/train",
        "env": [
            *({"name": name, "value": value} for name, value in variables.items()),
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "mx-port", "containerPort": 9000, "protocol": "TCP"}],
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
