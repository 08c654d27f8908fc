"""Small jobs of kubeflow.org/v1, and helpers for the writes, counters and statuses of the operators that run them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.job import DLJob
from dlop.kube.client import PatchType
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from tests.frameworks.kubeflow_manifests import ALL_KINDS, KINDS, manifest, role

SMALL: dict[type[DLJob], dict[str, int]] = {
    JAXJob: {"Worker": 2},
    MPIJob: {"Launcher": 1, "Worker": 2},
    MXJob: {"Scheduler": 1, "Server": 1, "Worker": 1},
    PaddleJob: {"Worker": 2},
    PyTorchJob: {"Master": 1, "Worker": 1},
    TFJob: {"Worker": 2},
    XGBoostJob: {"Master": 1, "Worker": 1},
}
"""Replicas by role of a small job of each kind."""

BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.job_type.kind)
BY_EVERY_KIND = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)


def job(
    kind: type[DLJob], roles: dict[str, int] | None = None, *, name: str = "demo", restart: str | None = None, **spec: Any
) -> JsonObject:
    """A job with these replicas by role, by default a small one. `spec` has further fields of its spec."""
    policy = {} if restart is None else {"restartPolicy": restart}
    counts = SMALL[kind] if roles is None else roles
    return manifest(kind, {name_: role(kind, count, **policy) for name_, count in counts.items()}, name=name, **spec)


def mpi_job(workers: int = 2, *, restart: str = "Never", **spec: Any) -> JsonObject:
    template = {"spec": {"containers": [{"name": "mpi", "image": "example.org/train:1"}]}}
    counts = {"Launcher": 1, "Worker": workers}
    roles: dict[str, int | JsonObject] = {
        name: {"replicas": count, "restartPolicy": restart, "template": template} for name, count in counts.items()
    }
    return manifest(MPIJob, roles, **spec)


def created(kit: OperatorKit, plural: str) -> list[str]:
    """Names of all objects of a type that operators have created, in order of creation."""
    requests = (write.request for write in kit.writes if write.request.method == "POST" and write.status == 201)
    return [msgspec.json.decode(request.body or b"")["metadata"]["name"] for request in requests if request.path.endswith(f"/{plural}")]


def recreated(kit: OperatorKit, times: dict[str, int]) -> Callable[[ObservedJob], bool]:
    """Whether each of these pods was created this many times, and all pods run."""
    return lambda view: times.items() <= Counter(created(kit, "pods")).items() and all_run(view)


def all_run(view: ObservedJob) -> bool:
    """Whether the job has pods and all of them run."""
    return set(view.pod_phases.values()) == {"Running"}


def kubeflow_counter(kit: OperatorKit, event: str, kind: type[DLJob]) -> float:
    """A counter `training_operator_jobs_*` for jobs of a kind in the default namespace, summed over all operators."""
    labels = {"job_namespace": "default", "framework": kind.status.metric_label}
    registries = (running.operator.metrics.registry for running in kit.operators)
    return sum(registry.get_sample_value(f"training_operator_jobs_{event}_total", labels) or 0.0 for registry in registries)


def message_of(view: ObservedJob, condition: str) -> str:
    """The message of a condition; empty if the job does not have it."""
    return str((view.condition(condition) or {}).get("message", ""))


def true_conditions(status: JsonObject) -> list[str]:
    """Types of the conditions with status True, in order."""
    return [condition["type"] for condition in status.get("conditions", ()) if condition["status"] == "True"]


def env(pod: JsonObject) -> dict[str, Any]:
    """Environment variables of the first container."""
    return {variable["name"]: variable.get("value") for variable in pod["spec"]["containers"][0].get("env", ())}


async def install_permissive_crd(kit: OperatorKit, kind: type[DLJob]) -> None:
    """Install a CRD without validation, as early releases had."""
    name = kind.job_type.resource.qualified_name
    crd = await kit.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{**version, "schema": anything} for version in crd["spec"]["versions"]]
    await kit.client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": {"versions": versions}}, patch_type=PatchType.MERGE)
