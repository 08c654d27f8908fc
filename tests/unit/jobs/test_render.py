"""Rendering the children of a job from its manifest."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dlop.frameworks.registry import Registry
from dlop.jobs.render import PLACEHOLDER_PORT, PLACEHOLDER_UID, RenderError, render
from tests.unit.job.jobs import PairJob, pair_spec

REGISTRY = Registry([PairJob])


def manifest(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "example.org/v1", "kind": "PairJob", "metadata": {"name": "train"}, "spec": pair_spec(followers=1)} | changes


def test_services_come_before_pods() -> None:
    rendered = [(child["kind"], child["metadata"]["name"]) for child in render(manifest(), REGISTRY)]
    assert rendered == [
        ("Service", "train-leader-0"),
        ("Service", "train-follower-0"),
        ("Pod", "train-leader-0"),
        ("Pod", "train-follower-0"),
    ]


def test_the_namespace_of_the_manifest_overrides_the_default() -> None:
    elsewhere = manifest(metadata={"name": "train", "namespace": "mine"})
    assert {child["metadata"]["namespace"] for child in render(elsewhere, REGISTRY, namespace="lab")} == {"mine"}
    assert {child["metadata"]["namespace"] for child in render(manifest(), REGISTRY, namespace="lab")} == {"lab"}


def test_the_uid_is_a_placeholder() -> None:
    assert {child["metadata"]["ownerReferences"][0]["uid"] for child in render(manifest(), REGISTRY)} == {PLACEHOLDER_UID}


def test_the_suffix_of_a_generated_name_is_a_placeholder() -> None:
    names = [child["metadata"]["name"] for child in render(manifest(metadata={"generateName": "train-"}), REGISTRY)]
    assert names[:2] == ["train-xxxxx-leader-0", "train-xxxxx-follower-0"]


def test_the_ports_of_the_host_network_are_placeholders_and_differ() -> None:
    in_host_network = manifest(metadata={"name": "train", "annotations": {"kubedl.io/network-mode": "host"}})
    pods = [child["spec"] for child in render(in_host_network, REGISTRY) if child["kind"] == "Pod"]
    assert [pod["containers"][0]["ports"][0]["hostPort"] for pod in pods] == [PLACEHOLDER_PORT, PLACEHOLDER_PORT + 1]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "a manifest must be an object with apiVersion, kind, metadata and spec."),
        (manifest(kind="Nothing"), "unknown kind example.org/v1 Nothing; known kinds: "),
        (manifest(metadata={}), "metadata.name: is required."),
        (manifest(metadata=None), "metadata.name: is required."),
        (manifest(metadata={"name": 3}), "metadata.name: expected `str`, got `int`"),
        (manifest(spec=pair_spec(image="")), "train: spec.replicaSpecs.Leader.template.spec.containers[0].image: is missing"),
        (manifest(spec=None), "train: spec.replicaSpecs: must contain at least one role"),
    ],
)
def test_an_invalid_manifest_is_reported_with_the_path_of_the_field(body: Any, message: str) -> None:
    with pytest.raises(RenderError) as raised:
        render(body, REGISTRY)
    assert message in str(raised.value)


@pytest.mark.machine
def test_importing_dlop_imports_no_large_library() -> None:
    heavy = ["pydantic", "kubernetes_asyncio", "aiohttp", "structlog", "asyncio", "yaml"]
    code = f"import sys, dlop; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
