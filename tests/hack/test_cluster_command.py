"""`hack/cluster`: several clusters by name, and no process left after `down`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from kubernetes_build import require_assets

from tests.hack.scripts import python, run, without_control_plane

pytestmark = pytest.mark.selftest

Cluster = Callable[..., subprocess.CompletedProcess[str]]


def _cluster_command(*arguments: str, environment: Mapping[str, str | None]) -> subprocess.CompletedProcess[str]:
    """Run `hack/cluster` without its shell script, which needs programs that some tests remove from PATH."""
    return python("-m", "cluster_command", *arguments, environment={**environment, "PYTHONPATH": "hack/lib"})


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The command, with its own state directory. Clusters of a failed test are deleted."""
    require_assets()
    yield lambda *arguments: _cluster_command(*arguments, environment={"XDG_STATE_HOME": str(tmp_path)})
    for name in ("default", "other"):
        _cluster_command("down", "--name", name, environment={"XDG_STATE_HOME": str(tmp_path)})


def pids_and_url(folder: Path) -> tuple[dict[str, int], str]:
    programs = json.loads((folder / "state.json").read_text())
    kubeconfig = json.loads((folder / "kubeconfig").read_text())
    return {program["name"]: program["pid"] for program in programs}, kubeconfig["clusters"][0]["cluster"]["server"]


def processes_of(folder: Path) -> list[str]:
    command_lines = [path.read_bytes().decode() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_readable(path)]
    return [line for line in command_lines if f"{folder}/" in line]


def _is_readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def kubectl(cluster: Cluster, *arguments: str, name: str = "default") -> subprocess.CompletedProcess[str]:
    exported = cluster("env", "--name", name).stdout
    command = f'eval "{exported.strip()}" && exec {require_assets()["kubectl"]} {" ".join(arguments)}'
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)


def test_two_clusters_run_at_the_same_time_and_down_stops_all_processes(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster("up").returncode == 0
    assert cluster("up", "--name", "other").returncode == 0
    assert kubectl(cluster, "create", "configmap", "here").returncode == 0

    assert "NotFound" in kubectl(cluster, "get", "configmap", "here", name="other").stderr
    assert kubectl(cluster, "get", "configmap", "here").returncode == 0

    assert cluster("down").returncode == 0
    assert cluster("status", "--name", "other").returncode == 0
    assert cluster("down", "--name", "other").returncode == 0
    assert processes_of(tmp_path) == []


def test_a_second_up_changes_nothing_and_after_a_crash_restarts_the_stopped_program(cluster: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "dlop" / "clusters" / "default"
    assert cluster("up").returncode == 0
    pids, url = pids_and_url(folder)
    assert kubectl(cluster, "create", "configmap", "kept").returncode == 0

    assert cluster("up").returncode == 0
    assert pids_and_url(folder) == (pids, url)

    os.kill(pids["kube-apiserver-0"], signal.SIGKILL)
    assert cluster("status").returncode == 1
    assert "hack/cluster up" in cluster("env").stderr
    assert cluster("up").returncode == 0
    new_pids, new_url = pids_and_url(folder)
    assert (new_pids["etcd"], new_url) == (pids["etcd"], url)
    assert kubectl(cluster, "get", "configmap", "kept").returncode == 0


def test_controllers_can_be_added_to_a_running_cluster(cluster: Cluster) -> None:
    assert cluster("up").returncode == 0
    assert "kube-controller-manager" not in cluster("status").stdout
    assert cluster("up", "--controllers").returncode == 0

    assert "kube-controller-manager: running" in cluster("status").stdout
    assert kubectl(cluster, "create", "namespace", "brief").returncode == 0
    assert kubectl(cluster, "delete", "namespace", "brief", "--timeout=30s").returncode == 0


def test_down_without_a_cluster_succeeds_and_env_names_the_command_to_run(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert _cluster_command("down", environment=environment).returncode == 0
    process = _cluster_command("env", environment=environment)
    assert (process.returncode, process.stdout) == (1, "")
    assert process.stderr == "hack/cluster: cluster default is not running: run hack/cluster up\n"


def test_without_programs_and_go_one_line_names_what_to_install(tmp_path: Path) -> None:
    process = _cluster_command("up", environment={**without_control_plane(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    assert process.returncode == 1
    assert process.stderr.count("\n") == 1
    assert "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS" in process.stderr


@pytest.mark.parametrize("arguments", [(), ("sideways",), ("up", "--name", "../other"), ("down", "--controllers")])
def test_invalid_usage_exits_with_code_2(arguments: tuple[str, ...]) -> None:
    process = run("hack/cluster", *arguments)
    assert process.returncode == 2
    assert "usage: hack/cluster" in process.stderr
