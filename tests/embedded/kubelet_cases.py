"""Building blocks of the kubelet test cases: a pod, and the steps that it goes through.

The expectations are from the Kubernetes documentation (Pod Lifecycle, Init Containers, Sidecar Containers, Configure Probes, Define a
Command, Environment Variables, Volumes, Termination of Pods).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dlop.kube.resources import CONFIG_MAPS, SECRETS, Resource
from dlop.kube.types import JsonObject

PYTHON = sys.executable


@dataclass(frozen=True)
class ExpectStatus:
    """Wait for a status that matches."""

    pattern: JsonObject


@dataclass(frozen=True)
class DeletePod:
    grace_seconds: int | None = None


@dataclass(frozen=True)
class ExpectDeleted:
    """Wait for the deletion of the pod object. The last status must match."""

    pattern: JsonObject


@dataclass(frozen=True)
class ExpectEvent:
    """Wait for an event that matches."""

    pattern: JsonObject


@dataclass(frozen=True)
class ExpectOutput:
    """The complete output of the container must match."""

    text: str | re.Pattern[str]
    container: str = "main"


@dataclass(frozen=True)
class WaitForOutput:
    """Wait until the container has written this text."""

    text: str = "ready\n"
    container: str = "main"


@dataclass(frozen=True)
class CreateObject:
    resource: Resource
    body: JsonObject


@dataclass(frozen=True)
class PatchObject:
    resource: Resource
    name: str
    change: JsonObject


Step: TypeAlias = ExpectStatus | DeletePod | ExpectDeleted | ExpectEvent | ExpectOutput | WaitForOutput | CreateObject | PatchObject


@dataclass(frozen=True)
class Case:
    name: str
    spec: JsonObject
    steps: tuple[Step, ...]
    objects: tuple[CreateObject, ...] = ()
    metadata: JsonObject = field(default_factory=dict)


# --- helpers for cases ----------------------------------------------------------------------------------------------------


def sh(script: str, **fields: Any) -> JsonObject:
    return {"name": "main", "image": "shell", "command": ["sh", "-c", script], **fields}


def pod(*containers: JsonObject, **spec: Any) -> JsonObject:
    """A pod spec, by default with restartPolicy Never."""
    return {"restartPolicy": "Never", "containers": list(containers), **spec}


def main(**fields: Any) -> JsonObject:
    """A pod status whose container `main` has these fields."""
    return {"containerStatuses": [{"name": "main", **fields}]}


def terminated(exit_code: int, reason: str, **fields: Any) -> JsonObject:
    return {"terminated": {"exitCode": exit_code, "reason": reason, **fields}}


def waiting(reason: str, **fields: Any) -> JsonObject:
    return {"waiting": {"reason": reason, **fields}}


RUNNING: JsonObject = {"running": {"startedAt": re.compile("Z$")}}


def condition(type: str, status: str, **fields: Any) -> JsonObject:
    return {"type": type, "status": status, **fields}


def succeeded(**fields: Any) -> ExpectStatus:
    return ExpectStatus({"phase": "Succeeded", **fields})


def failed(**fields: Any) -> ExpectStatus:
    return ExpectStatus({"phase": "Failed", **fields})


def config_map(name: str, **data: str) -> CreateObject:
    return CreateObject(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})


def secret(name: str, **data: str) -> CreateObject:
    return CreateObject(SECRETS, {"metadata": {"name": name}, "stringData": data})
