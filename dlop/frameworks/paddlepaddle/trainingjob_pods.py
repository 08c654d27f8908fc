"""Pod templates of a TrainingJob, and which of its pods listen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dlop import JsonObject, ManifestField
from dlop.frameworks.paddlepaddle.fields import (
    read_command,
    read_objects,
    read_ports,
    read_string_map,
    read_strings,
    read_trainer_ports,
)
from dlop.frameworks.paddlepaddle.pods import drop_empty, job_ports, main_container, pod_spec

_IMAGE = "paddlepaddle/paddlecloud-job:0.11.0"
_MASTER_PORTS = {"master-port": 8080, "etcd-port": 2379}
_MASTER_RESOURCES = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "500Mi"}}
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
ETCD: JsonObject = {
    "name": "etcd",
    "imagePullPolicy": "Always",
    "command": [
        *("etcd", "-name", "etcd0"),
        *("-advertise-client-urls", "http://$(POD_IP):2379,http://$(POD_IP):4001"),
        *("-listen-client-urls", "http://0.0.0.0:2379,http://0.0.0.0:4001"),
        *("-initial-advertise-peer-urls", "http://$(POD_IP):2380"),
        *("-listen-peer-urls", "http://0.0.0.0:2380"),
        *("-initial-cluster", "etcd0=http://$(POD_IP):2380"),
        *("-initial-cluster-state", "new"),
    ],
}
"""The container next to the master. Its image is a flag of the operator."""


class FrameworkName(StrEnum):
    PADDLE = "paddle"
    TENSORFLOW = "tensorflow"


class FrameworkType(StrEnum):
    LOCAL = "local"
    NCCL2 = "nccl2"
    MULTI = "multi"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How the pods of a job work together."""

    has_servers: bool
    """Whether there are parameter servers."""
    is_local: bool = False
    """Whether there is only one trainer."""
    is_collective: bool = False
    """Whether trainers reach each other."""
    has_trainer_ports: bool = False
    """Whether trainers listen on the ports for trainers."""


def read_mode(spec: ManifestField) -> Mode:
    """`frame_work` takes precedence over `local_job` and `is_nccl`."""
    framework, is_local, is_nccl = spec.get("frame_work"), spec.get("local_job").boolean(), spec.get("is_nccl").boolean()
    if framework.is_absent:
        return Mode(has_servers=not is_local and not is_nccl, is_local=is_local, is_collective=is_nccl)
    framework.object()
    if framework.get("type").value in (None, ""):
        framework.get("type").error("is missing; set it to local, nccl2 or multi")
    match framework.get("type").choice(FrameworkType, FrameworkType.MULTI):
        case FrameworkType.LOCAL:
            return Mode(has_servers=False, is_local=True)
        case FrameworkType.NCCL2:
            return Mode(has_servers=False, is_collective=True, has_trainer_ports=True)
        case FrameworkType.MULTI:
            name = framework.get("name").choice(FrameworkName, FrameworkName.PADDLE)
            return Mode(has_servers=True, has_trainer_ports=name is FrameworkName.TENSORFLOW)


def read_role_ports(spec: ManifestField, role: str) -> range:
    """The ports of the pods of a role; empty for the master, whose ports are fixed."""
    mode = read_mode(spec)
    if role == "pserver" or (role == "trainer" and mode.is_collective and not mode.has_trainer_ports):
        return read_ports(spec)
    return read_trainer_ports(spec) if role == "trainer" and mode.has_trainer_ports else range(0)


def read_pod_template(spec: ManifestField, role: str, *, is_fault_tolerant: bool) -> JsonObject:
    """The pod template of a role. Its environment comes from the job."""
    field = spec.get(role)
    read_envs(spec, role)
    container = main_container(
        spec,
        role,
        image=_IMAGE,
        command=_read_command(field, role, is_fault_tolerant=is_fault_tolerant),
        ports=_MASTER_PORTS if role == "master" else job_ports(read_role_ports(spec, role)),
        resources=_MASTER_RESOURCES if role == "master" else None,
        lifecycle=_read_lifecycle(field),
        livenessProbe=field.get("liveness_probe").object(),
        readinessProbe=field.get("readiness_probe").object(),
    )
    scheduler = spec.get("annotations").get("scheduler").string() if role != "master" else ""
    pod = pod_spec(
        spec,
        role,
        *((container, ETCD) if role == "master" else (container,)),
        tolerations=read_objects(field.get("tolerations")),
        terminationGracePeriodSeconds=field.get("grace_period_seconds").optional_integer(),
        schedulerName=scheduler or spec.get("schedulerName").string(),
    )
    return {"metadata": _read_metadata(spec, role), "spec": pod}


def read_envs(spec: ManifestField, role: str) -> Mapping[str, str]:
    """The environment variables of the user for a role."""
    return read_string_map(spec.get(role).get("envs"))


def _read_command(field: ManifestField, role: str, *, is_fault_tolerant: bool) -> list[str]:
    program = f"start_new_{role}" if is_fault_tolerant and role != "master" else f"start_{role}"
    default = ("paddle_k8s", program)
    return list(default) if role == "master" else read_command(field.get("entrypoint"), default)


def _read_lifecycle(field: ManifestField) -> JsonObject:
    command = read_strings(field.get("pre_stop_cmd"))
    return {"preStop": {"exec": {"command": command}}} if command else {}


def _read_metadata(spec: ManifestField, role: str) -> JsonObject:
    field = spec.get("annotations").get("priority")
    priority, group = field.string(), spec.get("podGroupName").string()
    if not _LABEL_VALUE.fullmatch(priority):
        field.error("must be a label value: at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends")
    return {
        "labels": drop_empty({"priority": priority}),
        "annotations": drop_empty({_GROUP_ANNOTATION: group, "priority": priority if role == "trainer" else ""}),
    }
