"""Jobs of kubeflow.org/v1, as plain data, and what becomes of them."""

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
"""The kinds whose replicas find each other by services."""
ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)


def role(kind: type[DLJob], replicas: int | None = 1, **more: Any) -> JsonObject:
    """One role with a container of the name that the kind asks for, if it does."""
    template = {"spec": {"containers": [{"name": kind.container_properties.name or "main", "image": "example.org/train:1"}]}}
    counted = {} if replicas is None else {"replicas": replicas}
    return {**counted, "template": template, **more}


def spec_of(kind: type[DLJob], roles: dict[str, int | JsonObject], **more: Any) -> JsonObject:
    """A spec with these roles: by number of replicas, or whole."""
    found = {name: role(kind, given) if isinstance(given, int) else copy.deepcopy(given) for name, given in roles.items()}
    mode = {"jobMode": "MXTrain"} if kind is MXJob else {}
    return {kind.replica_specs_field: found, **mode, **more}


def manifest(kind: type[DLJob], roles: dict[str, int | JsonObject], *, name: str = "demo", **more: Any) -> JsonObject:
    """A whole job."""
    about = {"apiVersion": kind.job_type.api_version, "kind": kind.job_type.kind, "metadata": {"name": name}}
    return {**about, "spec": spec_of(kind, roles, **more)}


def environment(job: DLJob, role_name: str, index: int = 0, *, container: int = 0) -> dict[str, Any]:
    """The variables of a replica's pod: texts, and the paths of pod fields."""
    found = job.spec.role(role_name)
    assert found is not None
    variables = job.make_pod(found, index, attempt=0)["spec"]["containers"][container].get("env", [])
    return {each["name"]: each["value"] if "value" in each else each["valueFrom"]["fieldRef"]["fieldPath"] for each in variables}
