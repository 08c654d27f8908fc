"""Each field of each example, replaced by whatever a user might write there: rendered, or refused with a path. Nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from dlop import DLJob, Options, Phase
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.registry import Registry, load_registry
from dlop.jobs.render import RenderError, job_of, render
from dlop.reconcile.snapshot import Snapshot
from tests.frameworks.kubeflow_jobs import job, mpi_job
from tests.frameworks.kubeflow_manifests import KINDS
from tests.frameworks.manifests import example
from tests.frameworks.test_custom_framework import RingJob

REGISTRY = Registry([*load_registry(), RingJob])
OTHER_VALUES: list[Any] = [None, "", "x", "X" * 300, 0, -1, 10**12, 1.5, True, [], {}, [None], ["x"], {"x": None}, {"x": {"y": []}}]
EVERYTHING = Options(gang_scheduler_name="coscheduling", pytorch_init_container_image="example.org/wait:1")
"""With whatever the operator can be told to add."""
Path = tuple[str | int, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, child in steps:
        yield from paths(child, (*path, step))


def changed(manifest: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    whole = copy.deepcopy({"spec": manifest["spec"]})
    place: Any = whole
    for step in ("spec", *path)[:-1]:
        place = place[step]
    place[("spec", *path)[-1]] = value
    return manifest | whole


def rich(name: str) -> dict[str, Any]:
    """An example with everything in its first template that dlop looks at."""
    manifest = example(name)
    spec = manifest["spec"]
    if isinstance(spec, dict):
        spec.setdefault("runPolicy", {}).update(suspend=False, managedBy="dlop", ttlSecondsAfterFinished=3)
    roles = spec if isinstance(spec, list) else spec["replicaSpecs"]
    enrich(roles[0] if isinstance(roles, list) else next(iter(roles.values())))
    return manifest


def enrich(first: dict[str, Any]) -> None:
    """Put everything into a role that dlop looks at."""
    first["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.org/f"]}
    first["template"]["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    first["template"]["spec"]["initContainers"] = [{"name": "i", "image": "i", "resources": {"requests": {"cpu": 1}}}]
    container = first["template"]["spec"]["containers"][0]
    container |= {
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"name": "mx-port", "containerPort": 1}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}, "requests": {"cpu": 1}},
    }


def rich_mxjob() -> dict[str, Any]:
    manifest = rich("01-mxnet-linear")
    chief = {"replicaName": "WORKER", "replicaIndex": 0}
    manifest["spec"] |= {"RuntimeId": "abcd", "schedulerName": "s", "mxImage": "x", "terminationPolicy": {"chief": chief}}
    manifest["spec"]["replicaSpecs"][0]["mxPort"] = 9001
    return manifest


def rich_of_kubeflow(kind: type[DLJob]) -> dict[str, Any]:
    """A job of each kind with all that its spec has room for."""
    scheduling = {"minAvailable": 1, "queue": "q", "minResources": {"cpu": "1"}, "priorityClass": "p", "scheduleTimeoutSeconds": 1}
    limits = {"backoffLimit": 1, "activeDeadlineSeconds": 1, "ttlSecondsAfterFinished": 3}
    policy = {"suspend": False, "cleanPodPolicy": "None", "restartScope": "Job", **limits, "schedulingPolicy": scheduling}
    manifest = mpi_job() if kind is MPIJob else job(kind)
    manifest["spec"] |= {"runPolicy": policy | {"managedBy": "kubeflow.org/training-operator"}, **MORE.get(kind, {})}
    for role in manifest["spec"][kind.replica_specs_field].values():
        enrich(role)
    return copy.deepcopy(manifest)


MORE: dict[type[DLJob], dict[str, Any]] = {
    MPIJob: {"slotsPerWorker": 1, "cleanPodPolicy": "All", "mainContainer": "m"},
    PaddleJob: {"elasticPolicy": {"minReplicas": 1, "maxReplicas": 2, "metrics": [{"type": "Resource"}]}},
    PyTorchJob: {
        "elasticPolicy": {
            "minReplicas": 1,
            "maxReplicas": 2,
            "rdzvBackend": "b",
            "rdzvPort": 1,
            "rdzvHost": "h",
            "rdzvId": "i",
            "standalone": True,
            "rdzvConf": [{"key": "a", "value": "b"}],
            "maxRestarts": 1,
            "metrics": [{"type": "Resource"}],
        },
        "nprocPerNode": "2",
    },
    TFJob: {"enableDynamicWorker": True, "successPolicy": "AllWorkers"},
}
"""What the specs of some kinds have room for besides."""

KUBEFLOW_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
MANIFESTS = {"mxjob": rich_mxjob(), "poc": rich("02-mxnet-poc"), "ring": rich("04-custom-framework")} | {
    kind.job_type.kind: rich_of_kubeflow(kind) for kind in KUBEFLOW_KINDS
}


def refusal_of(manifest: dict[str, Any]) -> str | None:
    try:
        render(manifest, REGISTRY)
    except RenderError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_with_any_value_in_any_place_is_rendered_or_refused_with_a_path(name: str) -> None:
    manifest = MANIFESTS[name]
    assert render(manifest, REGISTRY)
    refused = [
        (path, problem)
        for path in paths(manifest["spec"])
        for value in OTHER_VALUES
        if (problem := refusal_of(changed(manifest, path, value))) is not None
    ]
    assert [(path, problem) for path, problem in refused if ": spec" not in problem] == []
    assert len(refused) > 100


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_engine_makes_pods_of_such_a_manifest_or_calls_it_invalid(name: str) -> None:
    manifest = MANIFESTS[name]
    for path in paths(manifest["spec"]):
        for value in OTHER_VALUES:
            found = job_of(changed(manifest, path, value), REGISTRY, options=EVERYTHING)
            plan = found.reconcile(Snapshot(), 0.0)
            if plan.status is None:
                assert found.managed_elsewhere, path
            elif found.phase_in(plan.status) is Phase.INVALID:
                assert not plan.pods, path
