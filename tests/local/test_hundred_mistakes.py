"""A hundred kinds of mistakes give a hundred clear errors: each names the field and the line, and is told before anything runs."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
import yaml

from dlop.api.crd import definitions
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.registry import load_registry
from dlop.jobs.manifest_files import ManifestError, documents
from dlop.kube.resources import Resource
from dlop.local.apply_order import in_order
from dlop.local.validation import all_mistakes
from tests.local.local_jobs import job, written
from tests.local.local_program import left_behind, run
from tests.local.mistakes import GOOD, MISTAKES, Mistake

_LINE = re.compile(r"file\.yaml:(\d+): (.+)")


async def _all_of(texts: list[str]) -> list[list[str]]:
    registry = load_registry()
    async with EmbeddedCluster() as cluster:
        client = cluster.client()
        await apply(client, definitions(registry), say=lambda _: None)

        def find(api_version: str, kind: str) -> Resource | None:
            found = cluster.registry.by_kind(api_version, kind)
            return None if found is None else found.resource

        async def told(text: str) -> list[str]:
            try:
                read = in_order(documents(text, name="file.yaml"))
            except ManifestError as error:
                return [str(error)]
            return await all_mistakes(read, client=client, registry=registry, find=find, namespace="default")

        return [await told(text) for text in texts]


@pytest.fixture(scope="module")
def told() -> dict[str, list[str]]:
    """What is told about each mistake."""
    found = asyncio.run(_all_of([mistake.text for mistake in MISTAKES]))
    return {mistake.title: lines for mistake, lines in zip(MISTAKES, found, strict=True)}


def test_there_are_a_hundred_kinds_and_no_two_are_the_same() -> None:
    assert len(MISTAKES) >= 100
    assert len({mistake.title for mistake in MISTAKES}) == len({mistake.text for mistake in MISTAKES}) == len(MISTAKES)


async def test_what_they_are_edits_of_has_no_mistake() -> None:
    assert await _all_of([yaml.safe_dump(make(), sort_keys=False) for make in GOOD]) == [[]] * len(GOOD)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_told_with_its_path_and_its_line(mistake: Mistake, told: dict[str, list[str]]) -> None:
    lines = told[mistake.title]
    assert lines, "nobody has found it"
    text = mistake.text.splitlines()
    for line in lines:
        assert (found := _LINE.fullmatch(line)), line
        assert 1 <= int(found[1]) <= len(text), line
        assert len(found[2]) < 400, line
        assert "Traceback" not in line
    fitting = [line for line in lines if mistake.path in line and mistake.word in text[int(line.split(":")[1]) - 1]]
    assert fitting, f"{mistake.path} at a line with {mistake.word!r} was expected: {lines}"


def test_different_mistakes_are_told_differently(told: dict[str, list[str]]) -> None:
    sentences = [tuple(line.partition(": ")[2] for line in lines) for lines in told.values()]
    same = [titles for sentence in set(sentences) if len(titles := [t for t, s in zip(told, sentences, strict=True) if s == sentence]) > 1]
    assert sum(len(titles) - 1 for titles in same) <= 5, same


async def test_all_mistakes_of_all_files_are_told_at_once_and_nothing_is_run(tmp_path: Path) -> None:
    readable = [mistake for mistake in MISTAKES if "no YAML" not in mistake.path]
    files = []
    for number, mistake in enumerate(readable):
        path = tmp_path / f"{number:03}.yaml"
        path.write_text(mistake.text)
        files.append(path)
    ended = await run(*map(str, files), folder=tmp_path)
    assert ended.code == 2
    assert ended.out == ""
    assert "nothing was run" in ended.err.splitlines()[0]
    for path, mistake in zip(files, readable, strict=True):
        assert any(line.startswith(f"  {path}:") and mistake.path in line for line in ended.err.splitlines()), mistake.title
    assert left_behind(tmp_path) == []


async def test_mistakes_of_different_kinds_in_one_pod_are_told_at_once() -> None:
    wrong = job(scheduler="true", worker="true")
    for number, role in enumerate(wrong["spec"]["replicaSpecs"]):
        (container,) = role["template"]["spec"]["containers"]
        container["comand"] = container.pop("command")
        container["resources"] = {"limits": {"memory": "64Mx", "example.org/card": "1x"}}
        container["imagePullPolicy"] = "Sometimes"
        container["args"] = ["right", number]
    ((*lines,),) = await _all_of([yaml.safe_dump(wrong, sort_keys=False)])
    fields = ("comand", "resources.limits[memory]", "resources.limits[example.org/card]", "imagePullPolicy", "args[1]")
    container_paths = [f"spec.replicaSpecs[{number}].template.spec.containers[0]" for number in (0, 1)]
    assert sorted(line.split(": ")[1] for line in lines) == sorted(f"{path}.{field}" for path in container_paths for field in fields)


async def test_the_same_object_again_is_told_also_when_a_file_is_named_twice(tmp_path: Path) -> None:
    first, second = written(tmp_path, job(), name="a.yaml"), written(tmp_path, job(), name="b.yaml")
    for again in (first, second):
        ended = await run(first, again, folder=tmp_path)
        assert ended.code == 2
        assert "Traceback" not in ended.err
        assert ended.err.splitlines()[1:] == [f"  {again}:5: metadata.name: the MXJob small stands at {first}:1 already"]


def test_the_examples_have_no_mistake() -> None:
    kinds = {str(kind.job_type.kind) for kind in load_registry()}
    files = [path for path in sorted(Path("examples").glob("*/*.yaml")) if _kinds_in(path) and _kinds_in(path) <= kinds]
    assert files
    found = asyncio.run(_all_of([path.read_text() for path in files]))
    assert dict(zip(files, found, strict=True)) == {path: [] for path in files}


def _kinds_in(path: Path) -> set[str]:
    bodies = [body for body in yaml.safe_load_all(path.read_text()) if isinstance(body, dict)]
    return {str(body.get("kind")) for body in bodies if "/" in str(body.get("apiVersion"))}
