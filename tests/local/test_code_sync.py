"""Jobs whose programs come from a git repository, with real processes and the git of this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dlop.kube.types import JsonObject
from tests.git_repositories import bare_repository
from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import run_local

PROGRAM = "import os, pathlib; print('{} runs in', pathlib.Path(__file__).parent, 'with rank', os.environ.get('RANK'))\n"


def kubedl_job(annotation: JsonObject, *arguments: str) -> JsonObject:
    container = {"name": "pytorch", "image": "none", "workingDir": "/app", "command": ["python", *arguments]}
    role = {"replicas": 1, "restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "training.kubedl.io/v1alpha1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch", "annotations": {"kubedl.io/git-sync-config": json.dumps(annotation)}},
        "spec": {"pytorchReplicaSpecs": {"Master": role, "Worker": role}},
    }


def with_code(manifest: JsonObject, *sources: JsonObject, policy: str = "OnFailure") -> JsonObject:
    manifest["spec"]["runPolicy"] = {"codeSync": list(sources)}
    for role in manifest["spec"]["replicaSpecs"]:
        role["template"]["spec"]["restartPolicy"] = policy
    return manifest


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return bare_repository(tmp_path / "train.git", {"train.py": PROGRAM.format("old")}, {"train.py": PROGRAM.format("new")})


async def test_a_job_of_kubedl_runs_a_program_from_a_local_repository(repository: Path, tmp_path: Path) -> None:
    annotation = {"source": str(repository), "image": "kubedl/git-sync:v1", "branch": "main", "depth": "1"}
    result = await run_local(write_manifests(tmp_path, kubedl_job(annotation, "train/train.py")), "--logs", folder=tmp_path)
    assert result.code == 0, result
    assert "master-0 | new runs in /app/train with rank 0" in result.out
    assert "worker-0 | new runs in /app/train with rank 1" in result.out


async def test_a_job_runs_programs_from_two_repositories_and_revisions(repository: Path, tmp_path: Path) -> None:
    script = "python /old/train.py; python /src/new/train.py; test ! -e /train"
    sources = ({"source": str(repository), "revision": "v1", "destPath": "old"}, {"source": f"file://{repository}", "destPath": "src/new"})
    result = await run_local(write_manifests(tmp_path, with_code(job(scheduler=script), *sources)), "--logs", folder=tmp_path)
    assert result.code == 0, result
    assert "scheduler-0 | old runs in /old with" in result.out
    assert "scheduler-0 | new runs in /src/new with" in result.out


async def test_without_namespaces_paths_of_the_code_in_arguments_are_replaced(repository: Path, tmp_path: Path) -> None:
    manifest = with_code(job(scheduler="python /train/train.py"), {"source": str(repository)})
    result = await run_local(write_manifests(tmp_path, manifest), "--logs", "--no-namespaces", folder=tmp_path)
    assert result.code == 0, result
    assert "scheduler-0 | new runs in " in result.out


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ({"branch": "nope"}, "(branch nope): fatal: Remote branch nope not found in upstream origin"),
        ({"revision": "nope"}, "(revision nope): fatal: couldn't find remote ref nope"),
        ({"source": "/missing.git"}, ": fatal: repository '/missing.git' does not exist"),
    ],
)
async def test_a_clone_that_fails_fails_the_job_with_the_message_of_git(
    repository: Path, tmp_path: Path, source: dict[str, Any], cause: str
) -> None:
    annotation = {"source": str(repository), **source}
    result = await run_local(write_manifests(tmp_path, kubedl_job(annotation, "train/train.py")), folder=tmp_path)
    assert result.code == 1
    last = result.out.splitlines()[-1]
    assert last.startswith("PyTorchJob torch Failed after ")
    assert "(CodeSyncFailed): metadata.annotations[kubedl.io/git-sync-config]: cannot clone" in last
    assert cause in last


async def test_a_repository_that_pods_do_not_see_is_mounted_with_an_option(tmp_path: Path) -> None:
    elsewhere = bare_repository(tmp_path / "elsewhere" / "train.git", {"train.py": PROGRAM.format("mounted")})
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    file = write_manifests(jobs, kubedl_job({"source": str(elsewhere)}, "train/train.py"))
    hidden = await run_local(file, folder=tmp_path)
    assert f"fatal: repository '{elsewhere}' does not exist" in hidden.out.splitlines()[-1]
    mounted = await run_local(file, "--mount", f"{elsewhere}:ro", "--logs", folder=tmp_path)
    assert mounted.code == 0, mounted
    assert "master-0 | mounted runs in /app/train" in mounted.out


async def test_a_secret_of_the_repository_need_not_exist(repository: Path, tmp_path: Path) -> None:
    manifest = with_code(job(scheduler="python /train/train.py"), {"source": str(repository), "secretName": "not-here"})
    result = await run_local(write_manifests(tmp_path, manifest), folder=tmp_path)
    assert result.code == 0, result


async def test_invalid_repositories_are_reported_before_anything_is_created(tmp_path: Path) -> None:
    manifest = with_code(job(), {"source": "ext::sh -c id", "depth": 1})
    result = await run_local(write_manifests(tmp_path, manifest), folder=tmp_path)
    assert result.code == 2
    assert "spec.runPolicy.codeSync[0].source: must be a URL or a path; the transport 'ext' runs programs" in result.out + result.err
