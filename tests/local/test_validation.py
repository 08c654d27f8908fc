"""Validation errors of `dlop local` name the field and the line, and are reported before anything is created."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.registry import load_registry
from dlop.jobs.manifest_files import ManifestError, parse_documents
from dlop.kube.resources import Resource
from dlop.local.apply_order import sort_for_creation
from dlop.local.validation import validate_documents
from tests.frameworks.paddle_manifests import (
    batch_job,
    sample,
    stored_training_job,
    training_example,
    training_example_with_pod_group,
    training_job,
)
from tests.local.invalid_manifests import INVALID_MANIFESTS, INVALID_YAML, VALID, InvalidManifest
from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import leftover_files, run_local

_LINE = re.compile(r"file\.yaml:(\d+): (.+)")


async def validate_all(texts: list[str]) -> list[list[str]]:
    registry = load_registry()
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        await apply(client, build_crds(registry), report=lambda _: None)

        def find(api_version: str, kind: str) -> Resource | None:
            resource_type = cluster.registry.by_kind(api_version, kind)
            return None if resource_type is None else resource_type.resource

        async def validate(text: str) -> list[str]:
            try:
                documents = sort_for_creation(parse_documents(text, name="file.yaml"))
            except ManifestError as error:
                return [str(error)]
            return await validate_documents(documents, client=client, registry=registry, find=find, namespace="default")

        return [await validate(text) for text in texts]


@pytest.fixture(scope="module")
def reported() -> dict[str, list[str]]:
    """The errors of each invalid manifest by title."""
    errors = asyncio.run(validate_all([invalid.text for invalid in INVALID_MANIFESTS]))
    return {invalid.title: lines for invalid, lines in zip(INVALID_MANIFESTS, errors, strict=True)}


def test_there_are_at_least_a_hundred_different_invalid_manifests() -> None:
    assert len(INVALID_MANIFESTS) >= 100
    assert (
        len({invalid.title for invalid in INVALID_MANIFESTS})
        == len({invalid.text for invalid in INVALID_MANIFESTS})
        == len(INVALID_MANIFESTS)
    )


async def test_valid_manifests_have_no_errors() -> None:
    assert await validate_all([yaml.safe_dump(manifest(), sort_keys=False) for manifest in VALID]) == [[]] * len(VALID)


async def test_the_published_spellings_of_early_paddle_operators_are_valid() -> None:
    volume, mount, selector = {"name": "data", "emptyDir": {}}, {"name": "data", "mountPath": "/data"}, {"disk": "ssd"}
    other: dict[str, Any] = {
        "hostNetwork": True,
        "volumes": [volume],
        "volumeMounts": [mount],
        "nodeSelector": selector,
        "mountpath": "/data",
    }
    manifests = [
        sample(),
        {**sample(), "spec": {**sample()["spec"], **other}},
        training_example_with_pod_group(),
        training_job(**other, trainer={"min-instance": 1, "nodeSelector": selector}),
        *({**training_example(), "apiVersion": f"paddlepaddle.org/{version}"} for version in ("v1", "v1alpha1")),
        stored_training_job("stored"),
        batch_job(cleanPolicy="Always", cleanPodPolicy="OnFailed"),
    ]
    assert await validate_all([yaml.safe_dump(manifest, sort_keys=False) for manifest in manifests]) == [[]] * len(manifests)


@pytest.mark.parametrize("invalid", INVALID_MANIFESTS, ids=lambda invalid: invalid.title)
def test_an_error_is_reported_with_its_path_and_line(invalid: InvalidManifest, reported: dict[str, list[str]]) -> None:
    lines = reported[invalid.title]
    assert lines, "no error was reported"
    text = invalid.text.splitlines()
    for line in lines:
        assert (match := _LINE.fullmatch(line)), line
        assert 1 <= int(match[1]) <= len(text), line
        assert len(match[2]) < 400, line
        assert "Traceback" not in line
    matching = [line for line in lines if invalid.path in line and invalid.word in text[int(line.split(":")[1]) - 1]]
    assert matching, f"expected {invalid.path} on a line with {invalid.word!r}: {lines}"


def test_different_errors_have_different_messages(reported: dict[str, list[str]]) -> None:
    messages = [tuple(line.partition(": ")[2] for line in lines) for lines in reported.values()]
    same = [titles for message in set(messages) if len(titles := [t for t, s in zip(reported, messages, strict=True) if s == message]) > 1]
    assert sum(len(titles) - 1 for titles in same) <= 5, same


async def test_the_errors_of_all_files_are_reported_together_and_nothing_is_created(tmp_path: Path) -> None:
    readable = [invalid for invalid in INVALID_MANIFESTS if invalid.path != INVALID_YAML]
    files = []
    for number, invalid in enumerate(readable):
        path = tmp_path / f"{number:03}.yaml"
        path.write_text(invalid.text)
        files.append(path)
    result = await run_local(*map(str, files), folder=tmp_path)
    assert result.code == 2
    assert result.out == ""
    assert "nothing was created" in result.err.splitlines()[0]
    for path, invalid in zip(files, readable, strict=True):
        assert any(line.startswith(f"  {path}:") and invalid.path in line for line in result.err.splitlines()), invalid.title
    assert leftover_files(tmp_path) == []


async def test_several_errors_of_one_pod_are_reported_together() -> None:
    wrong = job(scheduler="true", worker="true")
    for number, role in enumerate(wrong["spec"]["replicaSpecs"]):
        (container,) = role["template"]["spec"]["containers"]
        container["comand"] = container.pop("command")
        container["resources"] = {"limits": {"memory": "64Mx", "example.org/card": "1x"}}
        container["imagePullPolicy"] = "Sometimes"
        container["args"] = ["right", number]
    ((*lines,),) = await validate_all([yaml.safe_dump(wrong, sort_keys=False)])
    fields = ("comand", "resources.limits[memory]", "resources.limits[example.org/card]", "imagePullPolicy", "args[1]")
    container_paths = [f"spec.replicaSpecs[{number}].template.spec.containers[0]" for number in (0, 1)]
    assert sorted(line.split(": ")[1] for line in lines) == sorted(f"{path}.{field}" for path in container_paths for field in fields)


async def test_a_duplicate_object_is_reported_even_if_a_file_is_passed_twice(tmp_path: Path) -> None:
    first, second = write_manifests(tmp_path, job(), name="a.yaml"), write_manifests(tmp_path, job(), name="b.yaml")
    for again in (first, second):
        result = await run_local(first, again, folder=tmp_path)
        assert result.code == 2
        assert "Traceback" not in result.err
        assert result.err.splitlines()[1:] == [f"  {again}:5: metadata.name: MXJob small is already defined at {first}:1"]


def test_the_examples_are_valid() -> None:
    kinds = {str(kind.job_type.kind) for kind in load_registry()}
    files = [path for path in sorted(Path("examples").glob("*/*.yaml")) if _kinds_in(path) and _kinds_in(path) <= kinds]
    assert files
    errors = asyncio.run(validate_all([path.read_text() for path in files]))
    assert dict(zip(files, errors, strict=True)) == {path: [] for path in files}


def _kinds_in(path: Path) -> set[str]:
    bodies = [body for body in yaml.safe_load_all(path.read_text()) if isinstance(body, dict)]
    return {str(body.get("kind")) for body in bodies if "/" in str(body.get("apiVersion"))}
