"""What a job of `dlop local` tries to read and write on the machine, and cannot. The output says what is isolated."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dlop.kube.types import JsonObject
from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import ProcessResult, run_local, start_local

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="requires namespaces")


async def run_script(
    script: str, *words: str, folder: Path, volumes: dict[str, Path] | None = None, wrapper: Sequence[str] = (), **environment: str
) -> ProcessResult:
    """Run a job with this script. `volumes` are hostPath volumes by mount path. `wrapper` starts `dlop local`."""
    body = job(scheduler=script)
    for role in body["spec"]["replicaSpecs"]:
        _add_volumes(role["template"]["spec"], volumes or {})
    async with start_local(write_manifests(folder, body), "--logs", *words, folder=folder, wrapper=wrapper, **environment) as dlop:
        return await dlop.wait_for_exit()


def _add_volumes(spec: JsonObject, volumes: dict[str, Path]) -> None:
    spec["volumes"] = [{"name": f"v{index}", "hostPath": {"path": str(path)}} for index, path in enumerate(volumes.values())]
    spec["containers"][0]["volumeMounts"] = [{"name": f"v{index}", "mountPath": target} for index, target in enumerate(volumes)]


def log_lines(result: ProcessResult) -> list[str]:
    return [line.partition("| ")[2] for line in result.out.splitlines() if line.startswith("scheduler-0 | ")]


async def test_a_job_cannot_read_the_kubeconfig_whatever_the_folder_and_tmpdir_are(tmp_path: Path) -> None:
    """The folder is below a directory that the job sees, by --mount and by volumes. So is TMPDIR."""
    cluster = tmp_path / "cluster"
    script = f"""
        grep -rs '[t]oken' {tmp_path} /parent /folder
        find {cluster} /parent/cluster /folder -mindepth 1
        echo end
    """
    volumes = {"/parent": tmp_path, "/folder": cluster}
    result = await run_script(script, "--folder", str(cluster), "--mount", str(tmp_path), folder=tmp_path, volumes=volumes)
    assert result.code == 0, result
    assert log_lines(result) == ["end"]


async def test_a_job_cannot_read_a_kubeconfig_in_a_temporary_folder(tmp_path: Path) -> None:
    script = "find /it/dlop-local-* /it/dlop-runtime-* -mindepth 1; ls /it | wc -l"
    result = await run_script(script, folder=tmp_path, volumes={"/it": tmp_path / "tmp"})
    assert result.code == 0, result
    assert log_lines(result) == ["2"]


async def test_a_job_cannot_read_the_kubeconfig_through_a_bind_mount_of_the_host(tmp_path: Path) -> None:
    """The host shows the parent of the folder at a second path, in a directory that pods see."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as alias:
        bind = f'mount --bind {tmp_path} {alias}; exec "$@"'
        wrapper = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", bind, "sh")
        script = f"ls {alias}; find {alias}/cluster -mindepth 1"
        result = await run_script(script, "--folder", str(tmp_path / "cluster"), folder=tmp_path, wrapper=wrapper)
    assert result.code == 0, result
    assert log_lines(result) == ["cluster", "job.yaml", "tmp"]


@pytest.mark.parametrize("tmpdir", ["missing", "/missing"])
async def test_pods_are_isolated_if_tmpdir_does_not_exist(tmp_path: Path, tmpdir: str) -> None:
    async with start_local("--timeout", "1s", folder=tmp_path, TMPDIR=tmpdir) as dlop:
        assert "pods run in namespaces" in (await dlop.wait_for_exit()).out


async def test_a_folder_that_pods_need_is_refused(tmp_path: Path) -> None:
    project = tmp_path / "cluster" / "project"
    project.mkdir(parents=True, mode=0o700)
    result = await run_local("--folder", str(tmp_path / "cluster"), "--mount", str(project), folder=tmp_path)
    assert result.code == 1
    assert result.err == (
        f"dlop local: pods must not see the directory {tmp_path}/cluster, which contains the kubeconfig, but need {project}; "
        "choose another directory with --folder.\n"
    )


@pytest.fixture
def home() -> Iterator[Path]:
    """The home of a user, not below a directory that is hidden anyway."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        yield Path(directory)


async def test_the_home_is_hidden_except_for_what_mount_names(tmp_path: Path, home: Path) -> None:
    for name in ("project", "data", "private"):
        (home / name).mkdir()
        (home / name / "file").write_text(name)
    script = f"""
        cd {home}; ls -A; echo $(cat */file)
        echo new > project/new; echo new > data/new; echo new > new; test $HOME = {home} && echo end
    """
    mounts = ("--mount", str(home / "project"), "--mount", f"{home / 'data'}:ro")
    result = await run_script(script, *mounts, folder=tmp_path, HOME=str(home))
    lines = log_lines(result)
    assert sum("data/new: Read-only file system" in line for line in lines) == 1
    assert [line for line in lines if "Read-only" not in line] == ["data", "project", "dataproject", "end"]
    assert sorted(str(path.relative_to(home)) for path in _files(home)) == ["data/file", "private/file", "project/file", "project/new"]


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def test_the_working_directory_is_writable_and_the_files_beside_it_are_hidden(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "manifests"
    project.mkdir()
    folder.mkdir()
    (tmp_path / "private").write_text("private")
    script = f"ls {tmp_path}; echo new > {project}/new"
    result = await run_script(script, folder=folder, wrapper=("env", "--chdir", str(project)))
    assert result.code == 0, result
    assert log_lines(result) == ["manifests", "project"]
    assert (project / "new").read_text() == "new\n"


async def test_python_environments_in_the_cache_are_readable_and_not_writable(tmp_path: Path) -> None:
    cache = tmp_path / "home" / ".cache"
    environment = cache / "dlop" / "environments" / "some"
    environment.mkdir(parents=True)
    (environment / "module.py").write_text("content")
    (cache / "other").write_text("other")
    script = f"ls {cache}; cat {environment}/module.py; echo; echo new > {environment}/module.py"
    result = await run_script(script, folder=tmp_path, HOME=str(tmp_path / "home"), XDG_CACHE_HOME=str(cache))
    assert [line for line in log_lines(result) if "Read-only file system" not in line][:2] == ["dlop", "content"]
    assert (environment / "module.py").read_text() == "content"


async def test_a_mount_of_a_missing_path_is_an_error(tmp_path: Path) -> None:
    result = await run_local("--mount", str(tmp_path / "missing"), folder=tmp_path)
    assert (result.code, result.err) == (2, f"dlop local: --mount {tmp_path}/missing: {tmp_path}/missing does not exist.\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "host files read-only, home and /run hidden; not a security boundary"),
        (("--network", "host"), "host files read-only, home and /run hidden; not a security boundary"),
        (("--no-namespaces",), "nothing isolates pods: they run as plain processes with your permissions"),
    ],
)
async def test_the_output_says_what_is_isolated(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    file = write_manifests(tmp_path, job())
    assert sentence in (await run_local(file, *words, folder=tmp_path)).out.splitlines()[0]


async def test_the_json_output_says_what_is_isolated(tmp_path: Path) -> None:
    file = write_manifests(tmp_path, job())
    sentence = "nothing isolates pods: they run as plain processes with your permissions"
    assert sentence in json.loads((await run_local(file, "--no-namespaces", "--output", "json", folder=tmp_path)).out)["isolation"]
    cluster = await run_local("--no-namespaces", "--timeout", "1s", "--output", "json", folder=tmp_path)
    assert sentence in json.JSONDecoder().raw_decode(cluster.out)[0]["isolation"]
