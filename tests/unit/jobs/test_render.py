from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dlop.frameworks.registry import Registry
from dlop.jobs.render import NO_UID, RenderError, render
from tests.unit.job.jobs import PairJob, pair_spec

REGISTRY = Registry([PairJob])


def manifest(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "example.org/v1", "kind": "PairJob", "metadata": {"name": "train"}, "spec": pair_spec(followers=1)} | changes


def test_services_come_before_pods() -> None:
    found = [(each["kind"], each["metadata"]["name"]) for each in render(manifest(), REGISTRY)]
    assert found == [
        ("Service", "train-leader-0"),
        ("Service", "train-follower-0"),
        ("Pod", "train-leader-0"),
        ("Pod", "train-follower-0"),
    ]


def test_the_namespace_of_the_manifest_goes_before_the_one_that_is_asked_for() -> None:
    elsewhere = manifest(metadata={"name": "train", "namespace": "mine"})
    assert {each["metadata"]["namespace"] for each in render(elsewhere, REGISTRY, namespace="lab")} == {"mine"}
    assert {each["metadata"]["namespace"] for each in render(manifest(), REGISTRY, namespace="lab")} == {"lab"}


def test_the_uid_that_only_a_cluster_can_give_is_zeros() -> None:
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in render(manifest(), REGISTRY)} == {NO_UID}


def test_the_end_of_a_generated_name_that_only_a_cluster_can_give_is_crosses() -> None:
    names = [each["metadata"]["name"] for each in render(manifest(metadata={"generateName": "train-"}), REGISTRY)]
    assert names[:2] == ["train-xxxxx-leader-0", "train-xxxxx-follower-0"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "a manifest must be an object with apiVersion, kind, metadata and spec."),
        (manifest(kind="Nothing"), "example.org/v1 Nothing is not a kind that dlop knows."),
        (manifest(metadata={}), "metadata.name: is missing."),
        (manifest(metadata=None), "metadata.name: is missing."),
        (manifest(metadata={"name": 3}), "metadata.name: expected `str`, got `int`"),
        (manifest(spec=pair_spec(image="")), "train: spec.replicaSpecs.Leader.template.spec.containers[0].image: is missing"),
        (manifest(spec=None), "train: spec.replicaSpecs: must name at least one role"),
    ],
)
def test_what_cannot_be_rendered_is_told_with_the_path_of_the_field(given: Any, sentence: str) -> None:
    with pytest.raises(RenderError) as caught:
        render(given, REGISTRY)
    assert sentence in str(caught.value)


def test_importing_dlop_brings_in_nothing_heavy() -> None:
    heavy = ["pydantic", "kubernetes_asyncio", "aiohttp", "structlog", "asyncio", "yaml"]
    code = f"import sys, dlop; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
