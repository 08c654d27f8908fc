"""Each field of each example, replaced by whatever a user might write there: rendered, or refused with a path. Nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from dlop import Phase
from dlop.engine.snapshot import Snapshot
from dlop.registry import Registry, load_registry
from dlop.rendering import RenderError, job_of, render
from tests.compat.manifests import example
from tests.compat.test_custom_framework import RingJob

REGISTRY = Registry([*load_registry(), RingJob])
OTHER_VALUES: list[Any] = [None, "", "x", "X" * 300, 0, -1, 10**12, 1.5, True, [], {}, [None], ["x"], {"x": None}, {"x": {"y": []}}]
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
    first = roles[0] if isinstance(roles, list) else next(iter(roles.values()))
    first["template"]["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.org/f"]}
    first["template"]["spec"]["volumes"] = [{"name": "v", "emptyDir": {}}]
    container = first["template"]["spec"]["containers"][0]
    container |= {
        "env": [{"name": "A", "value": "1"}],
        "ports": [{"name": "mx-port", "containerPort": 1}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "resources": {"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}, "requests": {"cpu": 1}},
    }
    return manifest


def rich_mxjob() -> dict[str, Any]:
    manifest = rich("01-mxnet-linear")
    chief = {"replicaName": "WORKER", "replicaIndex": 0}
    manifest["spec"] |= {"RuntimeId": "abcd", "schedulerName": "s", "mxImage": "x", "terminationPolicy": {"chief": chief}}
    manifest["spec"]["replicaSpecs"][0]["mxPort"] = 9001
    return manifest


MANIFESTS = {"mxjob": rich_mxjob(), "poc": rich("02-mxnet-poc"), "ring": rich("04-custom-framework")}


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
            job = job_of(changed(manifest, path, value), REGISTRY)
            plan = job.reconcile(Snapshot(), 0.0)
            if plan.status is None:
                assert job.managed_elsewhere, path
            elif job.phase_in(plan.status) is Phase.INVALID:
                assert not plan.pods, path
