"""Many pods, a fork bomb, a flood of log lines: dlop stays up, stays small, and gives everything back."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dlop.embedded.kubelet.logs import MOST_BYTES_A_FILE, MOST_FILES
from dlop.embedded.kubelet.runtime.base import Runtime
from dlop.embedded.kubelet.runtime.namespaces import NamespacesRuntime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime
from dlop.kube.types import JsonObject
from tests.embedded.kubelet_cases import PYTHON, pod, sh
from tests.embedded.node_world import embedded_world
from tests.local.local_jobs import job, written
from tests.local.local_program import processes_with, until_gone
from tests.local.local_world import comes_true, held, laptop_world

PODS_IN_ALL = 200
MOST_PROCESSES = 400
GIGABYTE = 1024**3

# Every process starts others, and so do these, in sessions of their own and deaf to SIGTERM. For the sake of a machine whose
# limits do not hold, it stops by itself some time.
_BOMB = """
import os, signal, time
tokens, given = os.pipe()
os.set_blocking(tokens, False)
os.write(given, b"x" * {most})
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("lit", flush=True)
while True:
    try:
        if os.read(tokens, 1) and os.fork() == 0:
            os.setsid()
    except OSError:
        time.sleep(0.2)
"""
_FLOOD = f"""
import sys
line = b"x" * 1023 + b"\\n"
for _ in range({GIGABYTE} // (1024 * len(line))):
    sys.stdout.buffer.write(line * 1024)
"""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("namespaces", [True, False], ids=["namespaces", "plain"])
async def test_a_job_of_200_pods_completes_and_gives_everything_back(tmp_path: Path, *, namespaces: bool) -> None:
    folder, mark = tmp_path / "cluster", uuid.uuid4().hex
    before = held(folder)
    async with laptop_world(folder, namespaces=namespaces) as world:
        # The first job leaves what every cluster has from then on: connections and threads that are kept.
        first = await world.submit(job("first", scheduler="true"))
        await world.succeeds(first)
        await world.delete(first)
        await comes_true(lambda: held(folder).stored == 0, what=lambda: held(folder))
        at_rest = held(folder)

        large = await world.submit(crew(mark))
        done = await world.succeeds(large)
        assert done.record().completed["WORKER"] == f"0-{PODS_IN_ALL - 2}"
        await world.delete(large)
        await comes_true(lambda: held(folder) == at_rest, what=lambda: (held(folder), at_rest))
        assert processes_with(mark) == []
    assert held(folder) == before


def crew(mark: str) -> JsonObject:
    """A job of short processes, all of which have to be done."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", "true"], "env": [{"name": "MARK", "value": mark}]}
    template = {"spec": {"containers": [container], "restartPolicy": "OnFailure"}}
    spec = [
        {"replicaType": role, "replicas": number, "template": template} for role, number in (("SCHEDULER", 1), ("WORKER", PODS_IN_ALL - 1))
    ]
    return {"apiVersion": "mpba.fbk.eu/v1", "kind": "MXJob", "metadata": {"name": "crew"}, "spec": spec}


@dataclass(frozen=True)
class Bomb:
    """A fork bomb, and what becomes of it."""

    runtime: Callable[[], Runtime]
    wanted: int
    most: int


BOMBS = {
    "namespaces": Bomb(lambda: NamespacesRuntime(most_processes=MOST_PROCESSES), wanted=2000, most=MOST_PROCESSES),
    "plain": Bomb(PlainRuntime, wanted=300, most=301),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_fork_bomb_hinders_no_other_pod_and_is_gone_with_its_own(tmp_path: Path, name: str) -> None:
    bomb, mark = BOMBS[name], uuid.uuid4().hex
    async with embedded_world(bomb.runtime(), tmp_path) as world:
        script = _BOMB.replace("{most}", str(bomb.wanted))
        bearing = {"command": [PYTHON, "-c", script], "env": [{"name": "MARK", "value": mark}]}
        await world.run_pod("bomb", pod(sh("", **bearing)))
        # As many as it can be, give or take what the kernel counts besides.
        await comes_true(lambda: len(processes_with(mark)) >= bomb.most - 20, what=lambda: len(processes_with(mark)))

        await world.run_pod("other", pod(sh("echo here I am")))
        assert (await world.sees_the_end("other"))["phase"] == "Succeeded"
        assert world.output("other") == "here I am\n"
        assert len(processes_with(mark)) <= bomb.most

        await world.delete("bomb", grace_seconds=1)
        await world.sees_it_gone("bomb")
        await until_gone(mark)


def test_a_log_of_a_gigabyte_is_rotated_and_memory_stays_flat(tmp_path: Path) -> None:
    quiet, _ = peak_megabytes(tmp_path, "quiet", "print('hello')")
    loud, logs = peak_megabytes(tmp_path, "loud", _FLOOD)
    assert loud < quiet + 40
    sizes = [file.stat().st_size for file in logs.rglob("*.log*")]
    assert len(sizes) == MOST_FILES
    assert max(sizes) <= MOST_BYTES_A_FILE


def peak_megabytes(folder: Path, name: str, program: str) -> tuple[float, Path]:
    """The most memory that `dlop local` ever had while its one pod ran a program, and where the logs are."""
    container = {"name": "mxnet", "image": "none", "command": [PYTHON, "-c", program]}
    body = job(name)
    body["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"] = [container]
    words = [sys.executable, "-m", "dlop", "local", written(folder, body), "--folder", str(folder / name), "--keep"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss / 1024, folder / name / "node" / "logs"
