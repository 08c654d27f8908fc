"""`hack/cluster`: several clusters by name, from `up` to `down`, and nothing after it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kubernetes_build import require_assets

from tests.hack.scripts import python, without_control_plane

Cluster = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The command, with a state folder of its own; whatever a failed test left running is ended."""
    require_assets()
    yield lambda *arguments: python("hack/cluster", *arguments, environment={"XDG_STATE_HOME": str(tmp_path)})
    for name in ("default", "other"):
        python("hack/cluster", "down", "--name", name, environment={"XDG_STATE_HOME": str(tmp_path)})


def pids_and_url(folder: Path) -> tuple[dict[str, int], str]:
    programs = json.loads((folder / "state.json").read_text())
    kubeconfig = json.loads((folder / "kubeconfig").read_text())
    return {program["name"]: program["pid"] for program in programs}, kubeconfig["clusters"][0]["cluster"]["server"]


def processes_of(folder: Path) -> list[str]:
    found = [path.read_bytes().decode() for path in Path("/proc").glob("[0-9]*/cmdline") if _is_readable(path)]
    return [line for line in found if f"{folder}/" in line]


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


def test_two_clusters_run_at_once_and_nothing_outlives_down(cluster: Cluster, tmp_path: Path) -> None:
    assert cluster("up").returncode == 0
    assert cluster("up", "--name", "other").returncode == 0
    assert kubectl(cluster, "create", "configmap", "here").returncode == 0

    assert "NotFound" in kubectl(cluster, "get", "configmap", "here", name="other").stderr
    assert kubectl(cluster, "get", "configmap", "here").returncode == 0

    assert cluster("down").returncode == 0
    assert cluster("status", "--name", "other").returncode == 0
    assert cluster("down", "--name", "other").returncode == 0
    assert processes_of(tmp_path) == []


def test_a_second_up_changes_nothing_and_one_after_a_crash_brings_the_dead_back(cluster: Cluster, tmp_path: Path) -> None:
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
    healed, same_url = pids_and_url(folder)
    assert (healed["etcd"], same_url) == (pids["etcd"], url)
    assert kubectl(cluster, "get", "configmap", "kept").returncode == 0


def test_controllers_join_a_cluster_that_runs_without_them(cluster: Cluster) -> None:
    assert cluster("up").returncode == 0
    assert "kube-controller-manager" not in cluster("status").stdout
    assert cluster("up", "--controllers").returncode == 0

    assert "kube-controller-manager: running" in cluster("status").stdout
    assert kubectl(cluster, "create", "namespace", "brief").returncode == 0
    assert kubectl(cluster, "delete", "namespace", "brief", "--timeout=30s").returncode == 0


def test_down_without_a_cluster_is_harmless_and_env_says_what_to_do(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert python("hack/cluster", "down", environment=environment).returncode == 0
    answer = python("hack/cluster", "env", environment=environment)
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr == "hack/cluster: the cluster default is not up: hack/cluster up\n"


def test_no_programs_and_no_go_is_one_sentence_that_says_what_to_install(tmp_path: Path) -> None:
    answer = python("hack/cluster", "up", environment={**without_control_plane(tmp_path), "XDG_STATE_HOME": str(tmp_path)})
    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert "install Go 1.26 or newer, or set KUBEBUILDER_ASSETS" in answer.stderr


@pytest.mark.parametrize("arguments", [(), ("sideways",), ("up", "--name", "../other"), ("down", "--controllers")])
def test_wrong_usage_is_refused_with_exit_code_2(arguments: tuple[str, ...]) -> None:
    answer = python("hack/cluster", *arguments)
    assert answer.returncode == 2
    assert "usage: hack/cluster" in answer.stderr
