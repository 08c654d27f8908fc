"""Manifests of small jobs for `dlop local`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlop.kube.types import JsonObject


def job(name: str = "small", *, scheduler: str = "true", worker: str | None = None, workers: int = 1, **metadata: Any) -> JsonObject:
    """An MXJob whose replicas run these shell scripts. The scheduler decides about success."""
    roles = [_role("SCHEDULER", 1, scheduler)]
    if worker is not None:
        roles.append(_role("WORKER", workers, worker))
    return {
        "apiVersion": "fioravanzo.org/v1alpha1",
        "kind": "MXJob",
        "metadata": {"name": name, **metadata},
        "spec": {"replicaSpecs": roles},
    }


def _role(name: str, replicas: int, script: str) -> JsonObject:
    container = {"name": "mxnet", "image": "none", "command": ["sh", "-c", script]}
    return {"replicas": replicas, "mxReplicaType": name, "template": {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}}


def write_manifests(folder: Path, *objects: JsonObject, name: str = "job.yaml") -> str:
    """Write the objects to a file and return its path."""
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(item, indent=2) for item in objects))
    return str(path)
