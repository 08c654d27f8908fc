"""What a node must make of a pod, case by case: the words of the table.

A case is a pod, and what comes of it, step by step. The expectations are those of the Kubernetes documentation (Pod Lifecycle,
Init Containers, Sidecar Containers, Configure Probes, Define a Command, Environment Variables, Volumes, Termination of Pods).
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
class Sees:
    """A status that looks like this is written, sooner or later."""

    pattern: JsonObject


@dataclass(frozen=True)
class Deletes:
    """The pod is deleted."""

    grace_seconds: int | None = None


@dataclass(frozen=True)
class Gone:
    """The pod object vanishes, and this was its last status."""

    pattern: JsonObject


@dataclass(frozen=True)
class Hears:
    """An event is told."""

    pattern: JsonObject


@dataclass(frozen=True)
class Says:
    """The container has written this, and nothing else."""

    text: str | re.Pattern[str]
    container: str = "main"


@dataclass(frozen=True)
class Speaks:
    """The container writes this, sooner or later: it has come so far."""

    text: str = "ready\n"
    container: str = "main"


@dataclass(frozen=True)
class Creates:
    """Somebody creates another object."""

    resource: Resource
    body: JsonObject


@dataclass(frozen=True)
class Patches:
    """Somebody changes another object."""

    resource: Resource
    name: str
    change: JsonObject


Step: TypeAlias = Sees | Deletes | Gone | Hears | Says | Speaks | Creates | Patches


@dataclass(frozen=True)
class Case:
    """A pod, and what comes of it."""

    name: str
    spec: JsonObject
    steps: tuple[Step, ...]
    before: tuple[Creates, ...] = ()
    metadata: JsonObject = field(default_factory=dict)


# --- how cases are written ------------------------------------------------------------------------------------------------


def sh(script: str, **fields: Any) -> JsonObject:
    """A container that runs a shell script."""
    return {"name": "main", "image": "shell", "command": ["sh", "-c", script], **fields}


def pod(*containers: JsonObject, **spec: Any) -> JsonObject:
    """A pod that is not restarted, unless it says so."""
    return {"restartPolicy": "Never", "containers": list(containers), **spec}


def main(**fields: Any) -> JsonObject:
    """The status of a pod whose container `main` looks like this."""
    return {"containerStatuses": [{"name": "main", **fields}]}


def ended(exit_code: int, reason: str, **fields: Any) -> JsonObject:
    """A state."""
    return {"terminated": {"exitCode": exit_code, "reason": reason, **fields}}


def waiting(reason: str, **fields: Any) -> JsonObject:
    """A state."""
    return {"waiting": {"reason": reason, **fields}}


RUNNING: JsonObject = {"running": {"startedAt": re.compile("Z$")}}


def condition(type: str, status: str, **fields: Any) -> JsonObject:
    """A condition."""
    return {"type": type, "status": status, **fields}


def succeeded(**fields: Any) -> Sees:
    """The pod succeeds."""
    return Sees({"phase": "Succeeded", **fields})


def failed(**fields: Any) -> Sees:
    """The pod fails."""
    return Sees({"phase": "Failed", **fields})


def config_map(name: str, **data: str) -> Creates:
    """A config map."""
    return Creates(CONFIG_MAPS, {"metadata": {"name": name}, "data": data})


def secret(name: str, **data: str) -> Creates:
    """A secret."""
    return Creates(SECRETS, {"metadata": {"name": name}, "stringData": data})
