"""Many pods, a fork bomb and a very large log: dlop keeps running, uses little memory and releases all resources."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlop.embedded.kubelet.logs import MAX_FILE_BYTES, MAX_FILES
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON, pod, sh
from tests.embedded.node_env import embedded_node_env
from tests.local.local_cluster_env import eventually, local_cluster_env, resource_usage
from tests.local.local_jobs import job, write_manifests
from tests.local.local_process import find_processes, wait_until_exited

TOTAL_PODS = 200
MAX_PROCESSES = 400
GIGABYTE = 1024**3

# Every process forks others in their own sessions, which ignore SIGTERM. The total is bounded, in case the limits do not work.
_BOMB = """
import os, signal, time
tokens, token_writer = os.pipe()
os.set_blocking(tokens, False)
os.write(token_writer, b"x" * {total})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("started", flush=True)
while True:
    try:
        if os.read(tokens, 1) and os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.2)
"""
_LARGE_LOG = f"""
import sys
line = b"x" * 1023 + b"\\n"
for _ in range({GIGABYTE} // (1024 * len(line))):
    sys.stdout.buffer.write(line * 1024)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("namespaces", [True, False], ids=["namespaces", "plain"])
async def test_a_job_with_200_pods_succeeds_and_releases_all_resources(tmp_path: Path, *, namespaces: bool) -> None:
    folder, mark = tmp_path / "cluster", uuid.uuid4().hex
    before = resource_usage(folder)
    async with local_cluster_env(folder, namespaces=namespaces) as env:
        # The first job creates connections and threads that the cluster keeps.
        first = await env.submit(job("first", scheduler="true"))
        await env.wait_until_succeeded(first)
        await env.delete(first)
        await eventually(lambda: resource_usage(folder).pod_files == 0, details=lambda: resource_usage(folder))
        idle = resource_usage(folder)

        large = await env.submit(large_job(mark))
        finished = await env.wait_until_succeeded(large)
        assert finished.record().completed_indexes["WORKER"] == f"0-{TOTAL_PODS - 2}"
        await env.delete(large)
        await eventually(lambda: resource_usage(folder) == idle, details=lambda: (resource_usage(folder), idle))
        assert find_processes(mark) == []
    assert resource_usage(folder) == before


def large_job(mark: str) -> JsonObject:
    """A job of short processes that must all succeed."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "true"], "env": [{"name": "MARK", "value": mark}]}
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    spec = [
        {"replicaType": role, "replicas": number, "template": template} for role, number in (("SCHEDULER", 1), ("WORKER", TOTAL_PODS - 1))
    ]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "MXJob", "metadata": {"name": "large"}, "spec": spec}


@dataclass(frozen=True)
class Bomb:
    runtime: Callable[[], Runtime]
    forks: int
    """Processes that it tries to start."""
    limit: int
    """Processes that may run at the same time."""


BOMBS = {
    "namespaces": Bomb(lambda: NamespacesRuntime(max_processes=MAX_PROCESSES), forks=2000, limit=MAX_PROCESSES),
    "plain": Bomb(PlainRuntime, forks=300, limit=301),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_fork_bomb_does_not_affect_other_pods_and_is_deleted_with_its_pod(tmp_path: Path, name: str) -> None:
    bomb, mark = BOMBS[name], uuid.uuid4().hex
    async with embedded_node_env(bomb.runtime(), tmp_path) as env:
        script = _BOMB.replace("{total}", str(bomb.forks))
        fields = {"command": [PYTHON, "-c", script], "env": [{"name": "MARK", "value": mark}]}
        await env.run_pod("bomb", pod(sh("", **fields)))
        # Close to the limit. The kernel counts threads and zombies too.
        await eventually(lambda: len(find_processes(mark)) >= bomb.limit - 20, details=lambda: len(find_processes(mark)))

        await env.run_pod("other", pod(sh("echo running")))
        assert (await env.wait_finished("other"))["phase"] == "Succeeded"
        assert env.output("other") == "running\n"
        assert len(find_processes(mark)) <= bomb.limit

        await env.delete("bomb", grace_seconds=1)
        await env.wait_deleted("bomb")
        await wait_until_exited(mark)


def test_a_log_of_a_gigabyte_is_rotated_and_memory_stays_constant(tmp_path: Path) -> None:
    baseline, _ = peak_megabytes(tmp_path, "small-log", "print('hello')")
    peak, logs = peak_megabytes(tmp_path, "large-log", _LARGE_LOG)
    assert peak < baseline + 40
    sizes = [file.stat().st_size for file in logs.rglob("*.log*")]
    assert len(sizes) == MAX_FILES
    assert max(sizes) <= MAX_FILE_BYTES


def peak_megabytes(folder: Path, name: str, program: str) -> tuple[float, Path]:
    """The peak memory of `dlop local` while a pod runs a program, and the path of the logs."""
    container = {"name": "mxnet", "image": "none", "command": [PYTHON, "-c", program]}
    body = job(name)
    body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"] = [container]
    words = [sys.executable, "-m", "dlop", "local", write_manifests(folder, body), "--folder", str(folder / name), "--keep"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss / 1024, folder / name / "node" / "logs"
