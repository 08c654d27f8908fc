"""Small jobs for `dlop local`, as files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dlop.kube.types import JsonObject


def job(name: str = "small", *, scheduler: str = "true", worker: str | None = None, workers: int = 1, **metadata: Any) -> JsonObject:
    """An MXJob whose replicas run these shell scripts. The scheduler decides."""
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


def written(folder: Path, *objects: JsonObject, name: str = "job.yaml") -> str:
    """The path of a file with these objects."""
    path = folder / name
    path.write_text("\n---\n".join(json.dumps(each, indent=2) for each in objects))
    return str(path)
