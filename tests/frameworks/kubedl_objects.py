"""Jobs with pods, services, config maps and statuses as KubeDL leaves them, written from its specification and not by dlop."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from dlop.api.names import MAX_LABEL_LENGTH
from dlop.kube.types import JsonObject

API_VERSION = "training.kubedl.io/v1alpha1"
WRITTEN_AT = "2026-11-01T10:00:00Z"
"""Time of all actions of KubeDL."""
_MASTERS = ("Master", "Chief")


@dataclass(frozen=True, slots=True)
class Kind:
    """What the specification says about a kind, and a typical job of it."""

    name: str
    specs_field: str
    container: str
    port_name: str
    port: int
    roles: tuple[tuple[str, int, str], ...]
    """Name, replicas and restart policy, in the order of creation."""
    first: tuple[str, ...]
    """The roles that wait for no other one."""
    with_service: tuple[str, ...]
    ends_with: tuple[str, ...]
    """The roles whose end is that of the job."""
    partly: str = ""
    """A pod that can finish before the job; empty for kinds without such a pod."""
    restarted: str = ""
    """A pod that is retried by default; empty for kinds without such a pod."""
    spec: JsonObject = field(default_factory=dict)


KINDS = (
    Kind(
        *("TFJob", "tfReplicaSpecs", "tensorflow", "tfjob-port", 2222),
        roles=(("PS", 1, "ExitCode"), ("Worker", 2, "ExitCode")),
        first=("PS",),
        with_service=("PS", "Worker"),
        ends_with=("Worker",),
        partly="worker-1",
        restarted="worker-1",
    ),
    Kind(
        *("PyTorchJob", "pytorchReplicaSpecs", "pytorch", "pytorchjob-port", 23456),
        roles=(("Master", 1, "ExitCode"), ("Worker", 2, "OnFailure")),
        first=("Master",),
        with_service=("Master",),
        ends_with=("Master", "Worker"),
        partly="worker-1",
        restarted="master-0",
    ),
    Kind(
        *("XGBoostJob", "xgbReplicaSpecs", "xgboostjob", "xgboostjob-port", 9999),
        roles=(("Master", 1, "Never"), ("Worker", 2, "Never")),
        first=("Master",),
        with_service=("Master", "Worker"),
        ends_with=("Master",),
        partly="worker-1",
        spec={"ttlSecondsAfterFinished": 90 * 86_400},
    ),
    Kind(
        *("XDLJob", "xdlReplicaSpecs", "xdl", "xdljob-port", 2222),
        roles=(("PS", 1, "Never"), ("Scheduler", 1, "Never"), ("Worker", 2, "Never")),
        first=("PS", "Scheduler", "Worker"),
        with_service=("PS", "Scheduler", "Worker"),
        ends_with=("Worker",),
        partly="worker-1",
    ),
    Kind(
        *("MarsJob", "marsReplicaSpecs", "mars", "mars-port", 11111),
        roles=(("Scheduler", 1, "Never"), ("WebService", 1, "Always"), ("Worker", 2, "ExitCode")),
        first=("Scheduler",),
        with_service=("Scheduler", "WebService", "Worker"),
        ends_with=("Scheduler",),
        partly="worker-1",
        restarted="worker-0",
    ),
    Kind(
        *("ElasticDLJob", "elasticdlReplicaSpecs", "elasticdl", "elasticdl-port", 11111),
        roles=(("Master", 1, "Never"),),
        first=("Master",),
        with_service=(),
        ends_with=("Master",),
        spec={"cleanPodPolicy": "None"},
    ),
    Kind(
        *("MPIJob", "mpiReplicaSpecs", "mpi", "mpi-port", 2222),
        roles=(("Worker", 2, "Never"), ("Launcher", 1, "Never")),
        first=("Worker",),
        with_service=(),
        ends_with=("Launcher",),
        spec={"runPolicy": {"cleanPodPolicy": "Running"}},
    ),
)


@dataclass(frozen=True, slots=True)
class KubeDLState:
    """A job of a kind at a point of its life."""

    kind: Kind
    point: str
    """created, running, partly finished, restarted, succeeded or failed."""

    @property
    def title(self) -> str:
        return f"{self.kind.name} {self.point}"

    def manifest(self, name: str) -> JsonObject:
        kind = self.kind
        specs = {role: {"replicas": count, "restartPolicy": policy, "template": self._template(role)} for role, count, policy in kind.roles}
        return {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"name": name}, "spec": {kind.specs_field: specs, **kind.spec}}

    def pods(self, name: str, namespace: str) -> dict[str, JsonObject]:
        """The pods that exist, by name, in the order of creation."""
        return {self.pod_name(name, role, index): self._pod(name, namespace, role, index) for role, index in self._existing()}

    def services(self, name: str) -> dict[str, JsonObject]:
        return {
            f"{name}-{role.lower()}-{index}": {
                "metadata": {"labels": _labels(name, role, index)},
                "spec": {
                    "clusterIP": "None",
                    "selector": _labels(name, role, index),
                    "ports": [{"name": self.kind.port_name, "port": self.kind.port}],
                },
            }
            for role, index in self._existing()
            # The server rejects longer names.
            if role in self.kind.with_service and len(f"{name}-{role.lower()}-{index}") <= MAX_LABEL_LENGTH
        }

    def config_maps(self, name: str) -> dict[str, JsonObject]:
        """The host file of an MPIJob starts with the launcher."""
        if self.kind.name != "MPIJob":
            return {}
        shell = '#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n/opt/kube/kubectl exec ${POD_NAME} -- /bin/sh -c "$*"'
        hosts = (f"{name}-launcher-0", f"{name}-worker-0", f"{name}-worker-1")
        data = {"hostfile": "".join(f"{host} slots=1\n" for host in hosts), "kubexec.sh": shell}
        return {f"{name}-config": {"metadata": {"labels": {"app": name}}, "data": data}}

    def status(self, name: str) -> JsonObject:
        steps: dict[str, list[tuple[str, str]]] = {
            "created": [],
            "running": [("Running", "is running.")],
            "partly finished": [("Running", "is running.")],
            "restarted": [("Restarting", "is restarting because 1 replica(s) failed.")],
            "succeeded": [("Running", "is running."), ("Succeeded", "is successfully completed.")],
            "failed": [("Running", "is running."), ("Failed", "is failed because 1 replica(s) failed.")],
        }
        conditions = [self._condition(name, type_, text) for type_, text in [("Created", "is created."), *steps[self.point]]]
        queuing = {**self._condition(name, "Queuing", "is dequeued."), "reason": "JobDequeued"}
        status: JsonObject = {"conditions": [conditions[0], queuing, *conditions[1:]], "replicaStatuses": self._counts()}
        if self.point != "created" or self.kind.name != "XDLJob":
            status["startTime"] = WRITTEN_AT
        return status | ({"completionTime": WRITTEN_AT} if self.is_finished else {})

    @property
    def is_finished(self) -> bool:
        return self.point in ("succeeded", "failed")

    def pod_name(self, name: str, role: str, index: int) -> str:
        return f"elasticdl-{name}-master" if self.kind.name == "ElasticDLJob" else f"{name}-{role.lower()}-{index}"

    def phase(self, role: str, index: int) -> str:
        """The phase of a pod that exists."""
        key = f"{role.lower()}-{index}"
        if self.point == "created" or (self.point == "restarted" and key == self.kind.restarted):
            return "Pending"
        if self.is_finished and role in self.kind.ends_with:
            return "Failed" if self.point == "failed" else "Succeeded"
        return "Succeeded" if self.point == "partly finished" and key == self.kind.partly else "Running"

    def phases(self, name: str) -> dict[str, str]:
        return {self.pod_name(name, role, index): self.phase(role, index) for role, index in self._existing()}

    def last_pods(self, name: str) -> list[str]:
        """The pods whose success is that of the job."""
        return [self.pod_name(name, role, index) for role, index in self._existing() if role in self.kind.ends_with]

    def _existing(self) -> Iterator[tuple[str, int]]:
        for role, count, _ in self.kind.roles:
            if self.point != "created" or role in self.kind.first:
                yield from ((role, index) for index in range(count))

    def _counts(self) -> JsonObject:
        counts: dict[str, dict[str, int]] = {}
        names = {"Running": "active", "Succeeded": "succeeded", "Failed": "failed"}
        for role, _, _ in self.kind.roles:
            phases = [self.phase(role, index) for existing, index in self._existing() if existing == role]
            counts[role] = {name: phases.count(phase) for phase, name in names.items() if phase in phases}
        return counts

    def _condition(self, name: str, type_: str, text: str) -> JsonObject:
        status = "False" if type_ == "Running" and self.is_finished else "True"
        times = {"lastUpdateTime": WRITTEN_AT, "lastTransitionTime": WRITTEN_AT}
        return {"type": type_, "status": status, "reason": f"Job{type_}", "message": f"{self.kind.name} {name} {text}", **times}

    def _template(self, role: str) -> JsonObject:
        command = {} if role == "Worker" and self.kind.name == "MPIJob" else {"command": ["python", "train.py"]}
        # KubeDL's users grant the permissions of the launcher themselves.
        account = {"serviceAccountName": "default"} if role == "Launcher" else {}
        return {"spec": {"containers": [{"name": self.kind.container, "image": "example.org/train:1", **command}], **account}}

    def _pod(self, name: str, namespace: str, role: str, index: int) -> JsonObject:
        spec = self._template(role)["spec"]
        (container,) = spec["containers"]
        container |= {
            "ports": [{"name": self.kind.port_name, "containerPort": self.kind.port}],
            "env": [{"name": key, "value": value} for key, value in self._env(name, namespace, role, index)],
            "terminationMessagePolicy": "FallbackToLogsOnError",
        }
        if self.kind.name == "MPIJob":
            _mount_scripts(spec, name, namespace, is_launcher=role == "Launcher")
        policy = next(policy for each, _, policy in self.kind.roles if each == role)
        master = {"job-role": "master"} if role in _MASTERS else {}
        labels = {**_labels(name, role, index), **master}
        return {"metadata": {"labels": labels}, "spec": {**spec, "restartPolicy": "Never" if policy == "ExitCode" else policy}}

    def _env(self, name: str, namespace: str, role: str, index: int) -> Iterable[tuple[str, str]]:
        task = {"type": role.lower(), "index": index}
        match self.kind.name:
            case "TFJob":
                config = {"cluster": self._cluster(name, f".{namespace}.svc"), "task": task, "environment": "cloud"}
                return [("TF_CONFIG", json.dumps(config))]
            case "PyTorchJob" | "XGBoostJob":
                rank = index + 1 if role == "Worker" and self.kind.name == "PyTorchJob" else index
                address = "localhost" if (self.kind.name, role) == ("PyTorchJob", "Master") else f"{name}-master-0"
                sizes = [("WORLD_SIZE", "3"), ("RANK", str(rank)), ("PYTHONUNBUFFERED", "0")]
                return [("MASTER_PORT", str(self.kind.port)), ("MASTER_ADDR", address), *sizes]
            case "XDLJob":
                config = {"cluster": self._cluster(name, ""), "task": task}
                return [("TASK_NAME", role.lower()), ("TASK_INDEX", str(index)), ("XDL_CONFIG", json.dumps(config))]
            case "MarsJob":
                cluster = {key: value for key, value in self._cluster(name, f".{namespace}.svc").items() if key != "worker"}
                return [("MARS_BIND_PORT", "11111"), ("MARS_CLUSTER_DETAIL", json.dumps({"cluster": cluster, "task": task}))]
            case "MPIJob" if role == "Launcher":
                shell, hosts = "OMPI_MCA_plm_rsh_agent", "OMPI_MCA_orte_default_hostfile"
                return [(shell, "/etc/mpi/kubexec.sh"), (hosts, "/etc/mpi/hostfile")]
        return []

    def _cluster(self, name: str, suffix: str) -> dict[str, list[str]]:
        return {
            role.lower(): [f"{name}-{role.lower()}-{index}{suffix}:{self.kind.port}" for index in range(count)]
            for role, count, _ in self.kind.roles
        }


def _labels(name: str, role: str, index: int) -> dict[str, str]:
    return {"group-name": "training.kubedl.io", "job-name": name, "replica-type": role.lower(), "replica-index": str(index)}


def _mount_scripts(spec: JsonObject, name: str, namespace: str, *, is_launcher: bool) -> None:
    (container,) = spec["containers"]
    files = {"kubexec.sh": 0o555} | ({"hostfile": 0o444} if is_launcher else {})
    items = [{"key": key, "path": key, "mode": mode} for key, mode in files.items()]
    volumes: list[Any] = [{"name": "mpi-config-volume", "configMap": {"name": f"{name}-config", "items": items}}]
    mounts = [{"name": "mpi-config-volume", "mountPath": "/etc/mpi"}]
    if is_launcher:
        volumes.insert(0, {"name": "kubectl-volume", "emptyDir": {}})
        mounts.insert(0, {"name": "kubectl-volume", "mountPath": "/opt/kube"})
        env = [{"name": "TARGET_DIR", "value": "/opt/kube"}, {"name": "NAMESPACE", "value": namespace}]
        resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
        image = "kubedl/kubectl-delivery:latest"
        spec["initContainers"] = [{"name": "kubectl-delivery", "image": image, "env": env, "resources": resources, "volumeMounts": mounts}]
    else:
        container |= {"command": ["sleep"], "args": ["365d"]}
    container["volumeMounts"] = mounts
    spec["volumes"] = volumes


def states(*points: str) -> list[KubeDLState]:
    """All kinds at these points, as far as a kind has them."""
    return [
        KubeDLState(kind, point)
        for point in points
        for kind in KINDS
        if (point != "partly finished" or kind.partly) and (point != "restarted" or kind.restarted)
    ]
