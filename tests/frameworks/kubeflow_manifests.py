"""Manifests of kubeflow.org/v1 jobs, and the environment of the pods that dlop makes from them."""

from __future__ import annotations

import copy
from typing import Any

from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.job import DLJob
from dlop.kube.types import JsonObject

KINDS: tuple[type[DLJob], ...] = (JAXJob, MXJob, PaddleJob, PyTorchJob, TFJob, XGBoostJob)
"""Kinds with a service per replica."""
ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)


def role(kind: type[DLJob], replicas: int | None = 1, **more: Any) -> JsonObject:
    """One role whose container has the name that the kind requires."""
    template = {"spec": {"containers": [{"name": kind.container_properties.name or "main", "image": "example.org/train:1"}]}}
    count = {} if replicas is None else {"replicas": replicas}
    return {**count, "template": template, **more}


def spec_of(kind: type[DLJob], roles: dict[str, int | JsonObject], **more: Any) -> JsonObject:
    """A spec with these roles, each given as its number of replicas or as a complete replica spec."""
    replica_specs = {name: role(kind, value) if isinstance(value, int) else copy.deepcopy(value) for name, value in roles.items()}
    mode = {"jobMode": "MXTrain"} if kind is MXJob else {}
    return {kind.schema.field: replica_specs, **mode, **more}


def manifest(kind: type[DLJob], roles: dict[str, int | JsonObject], *, name: str = "demo", **more: Any) -> JsonObject:
    header = {"apiVersion": kind.job_type.api_version, "kind": kind.job_type.kind, "metadata": {"name": name}}
    return {**header, "spec": spec_of(kind, roles, **more)}


def environment(job: DLJob, role_name: str, index: int = 0, *, container: int = 0) -> dict[str, Any]:
    """Variables of a replica's container: values, or paths of pod fields."""
    role_spec = job.spec.role(role_name)
    assert role_spec is not None
    variables = job.replica(role_spec, index).pod()["spec"]["containers"][container].get("env", [])
    return {each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"] for each in variables}
