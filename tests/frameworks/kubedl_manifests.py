"""Manifests of the kinds of training.kubedl.io."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.elasticdljob import ElasticDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob
from dlop.kube.types import JsonObject

KINDS: tuple[type[KubeDLJob], ...] = (TFJob, PyTorchJob, XGBoostJob, XDLJob, MarsJob, ElasticDLJob, MPIJob)
ROLES: dict[type[KubeDLJob], dict[str, int]] = {
    TFJob: {"PS": 1, "Worker": 2},
    PyTorchJob: {"Master": 1, "Worker": 2},
    XGBoostJob: {"Master": 1, "Worker": 2},
    XDLJob: {"PS": 1, "Scheduler": 1, "Worker": 2},
    MarsJob: {"Scheduler": 1, "WebService": 1, "Worker": 2},
    ElasticDLJob: {"Master": 1},
    MPIJob: {"Launcher": 1, "Worker": 2},
}
"""The roles of a typical job, with their replicas."""


def role(replicas: int = 1, *, container: JsonObject | None = None, pod: JsonObject | None = None, **fields: Any) -> JsonObject:
    """A replica spec. The container gets the default name of the kind, unless `container` has a name."""
    return {"replicas": replicas, "template": {"spec": {"containers": [dict(container or {})], **(pod or {})}}, **fields}


def kubedl_job(kind: type[KubeDLJob], roles: Mapping[str, Any] | None = None, *, name: str = "demo", **spec: Any) -> JsonObject:
    """A job with these roles: a number of replicas, or a replica spec."""
    field, main = kind.schema.field, {"name": kind.container_properties.name or "mpi", "image": "example.org/train:1"}
    specs: dict[str, JsonObject] = {}
    for role_name, value in (ROLES[kind] if roles is None else roles).items():
        entry = role(value) if isinstance(value, int) else value
        (first, *others) = entry["template"]["spec"]["containers"]
        template = {**entry["template"], "spec": {**entry["template"]["spec"], "containers": [{**main, **first}, *others]}}
        specs[role_name] = {**entry, "template": template}
    return {
        "apiVersion": kind.job_type.api_version,
        "kind": kind.job_type.kind,
        "metadata": {"name": name},
        "spec": {field: specs, **spec},
    }
