"""Jobs of training.kubedl.io with real processes: their programs find each other through KubeDL's environment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob
from dlop.kube.types import JsonObject
from tests.frameworks.example_manifests import EXAMPLES
from tests.frameworks.kubedl_manifests import kubedl_job, role
from tests.local.example_needs import HUGE_SECONDS, require_mpi
from tests.local.example_numbers import EXPECTED_RESULTS
from tests.local.local_jobs import write_manifests
from tests.local.local_process import ProcessResult, run_local

PACKAGE_SECONDS = 400.0
_IMAGES = EXAMPLES / "images.yaml"
_CONNECT = """
import json, os, socket, time


def connect(address):
    # A running pod may not listen yet.
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((host, int(port)), timeout=30)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
"""
# Stands for Mars: the workers send parts of a sum to the scheduler, from which the web service gets the result.
_MARS = """
detail = json.loads(os.environ["MARS_CLUSTER_DETAIL"])
cluster, task = detail["cluster"], detail["task"]
workers = int(os.environ["WORKERS"])


if task["type"] == "scheduler":
    parts, waiting = [], None
    with socket.create_server(("", int(os.environ["MARS_BIND_PORT"]))) as server:
        while len(parts) < workers or waiting is None:
            connection, _ = server.accept()
            line = connection.makefile().readline()
            if line == "result\\n":
                waiting = connection
            else:
                parts.append(int(line))
    waiting.sendall(f"{sum(parts)}\\n".encode())
    waiting.makefile().read()  # until the web service has closed the connection, because its pod is deleted with the job
    print("scheduler: collected", sum(parts), flush=True)
elif task["type"] == "worker":
    part = sum(range(task["index"], 100, workers))
    with connect(cluster["scheduler"][0]) as connection:
        connection.sendall(f"{part}\\n".encode())
    print("worker", task["index"], "of", task["resources"]["cpu_procs"], "CPUs sent", part, flush=True)
else:
    with connect(cluster["scheduler"][0]) as connection:
        connection.sendall(b"result\\n")
        result = connection.makefile().readline().strip()
        print("web service: the result is", result, "at", cluster["webservice"][0], flush=True)
    connection.close()
"""
# Starts the supervisor of Mars in the scheduler, and a worker in each worker, and runs tasks until both workers have run one.
_REAL_MARS = """
import subprocess, sys

detail = json.loads(os.environ["MARS_CLUSTER_DETAIL"])
scheduler, _, port = detail["cluster"]["scheduler"][0].rpartition(":")
arguments = [sys.executable, "-W", "ignore", "-m"]

if detail["task"]["type"] == "worker":
    address = f"{socket.gethostbyname(scheduler)}:{port}"
    os.execv(sys.executable, [*arguments, "mars.worker", "-s", address])

supervisor = subprocess.Popen([*arguments, "mars.supervisor", "-w", "7103"])
connect(f"{os.environ['MARS_CONTAINER_IP']}:7103").close()

import mars
import mars.remote as remote
import mars.tensor as tensor


def find_worker():
    import os

    return os.environ["MARS_K8S_POD_NAME"]


mars.new_session(f"http://{os.environ['MARS_CONTAINER_IP']}:7103", default=True)
deadline, found = time.monotonic() + 120, set()
while len(found) < 2 and time.monotonic() < deadline:
    found.add(remote.spawn(find_worker).execute().fetch())
numbers = tensor.arange(1, 1001, chunk_size=100)
print("sum", int((numbers**2).sum().execute().fetch()), "on", *sorted(found), flush=True)
supervisor.terminate()
supervisor.wait()
"""
# The last versions with which Mars works.
_MARS_PACKAGES = ("pymars==0.10.0", "numpy==1.23.5", "pandas==1.5.3", "scipy==1.10.1", "scikit-learn==1.2.2", "sqlalchemy==1.4.54")
_MORE_MARS_PACKAGES = ("cloudpickle==2.2.1", "numexpr==2.8.8", "setuptools==67.8.0", "tornado==6.4.2")
# Stands for XDL: each worker sends its contribution to all parameter servers.
_XDL = """
config = json.loads(os.environ["XDL_CONFIG"])
cluster, task = config["cluster"], config["task"]
assert (os.environ["TASK_NAME"], os.environ["TASK_INDEX"]) == (task["type"], str(task["index"]))

if task["type"] == "ps":
    port, total = int(cluster["ps"][task["index"]].rpartition(":")[2]), 0
    with socket.create_server(("", port)) as server:
        for _ in cluster["worker"]:
            connection, _ = server.accept()
            with connection, connection.makefile() as stream:
                total += int(stream.readline())
    print("server", task["index"], "holds", total, flush=True)
else:
    for address in cluster["ps"]:
        with connect(address) as connection:
            connection.sendall(f"{task['index'] + 1}\\n".encode())
    print("worker", task["index"], "of", len(cluster["worker"]), "trained at", os.environ["ZK_ADDR"], flush=True)
"""


async def run_job(folder: Path, job: JsonObject, *words: str, timeout_seconds: float = PACKAGE_SECONDS) -> ProcessResult:
    """Run the job to its end, and return the result with the logs of all replicas. The first job that needs packages installs them."""
    arguments = (write_manifests(folder, job), "--logs", "--timeout", f"{timeout_seconds - 20:.0f}s", *words)
    # pip has warnings.
    return await run_local(*arguments, folder=folder, timeout_seconds=timeout_seconds, PYTHONWARNINGS="default")


def program(folder: Path, kind: type[KubeDLJob], text: str, *, packages: Sequence[str] = ()) -> tuple[JsonObject, tuple[str, ...]]:
    """A container that runs this program with these packages, and the arguments for its image."""
    (folder / "program.py").write_text(_CONNECT + text)
    image: JsonObject = {"name": "program:*", "files": {"/program.py": "program.py"}}
    if packages:
        image["python"] = {"version": "3.11", "requirements": list(packages)}
    (folder / "images.yaml").write_text(json.dumps({"images": [image]}))
    container = {"name": kind.container_properties.name, "image": "program:1", "command": ["python3", "/program.py"]}
    return container, ("--images", str(folder / "images.yaml"))


def example_job(kind: type[KubeDLJob], roles: dict[str, int], container: JsonObject, **spec: Any) -> JsonObject:
    return kubedl_job(kind, {name: role(count, container=container) for name, count in roles.items()}, **spec)


def check_result(name: str, result: ProcessResult) -> None:
    """Check that the replicas print the results of the example."""
    assert result.code == 0, result.out + result.err
    expected = EXPECTED_RESULTS[name]
    assert expected.parse_output(result.out) == [pytest.approx(expected.values, abs=0.02)] * expected.times


@pytest.mark.timeout(420)
async def test_an_xgboostjob_trains_with_the_program_of_the_example(tmp_path: Path) -> None:
    # KubeDL's rank is the index in the role, so that programs count the master in.
    worker = {"command": ["sh", "-c", "RANK=$((RANK + 1)) exec python /training/train.py"]}
    roles = {
        "Master": role(container={"image": "xgboost-kinds:1"}, restartPolicy="Never"),
        "Worker": role(2, container={"image": "xgboost-kinds:1", **worker}, restartPolicy="Never"),
    }
    check_result("08-xgboost/job.yaml", await run_job(tmp_path, kubedl_job(XGBoostJob, roles), "--images", str(_IMAGES)))


@pytest.mark.frameworks
@pytest.mark.timeout(HUGE_SECONDS + 60)
async def test_a_pytorchjob_trains_with_the_program_of_the_example(tmp_path: Path) -> None:
    container = {"image": "pytorch-by-axis:1", "command": ["python", "/training/train.py"]}
    job = example_job(PyTorchJob, {"Master": 1, "Worker": 3}, container)
    result = await run_job(tmp_path, job, "--images", str(_IMAGES), timeout_seconds=HUGE_SECONDS)
    check_result("10-pytorch/job.yaml", result)


@pytest.mark.timeout(420)
def test_an_mpijob_runs_the_program_of_the_example_on_its_launcher_and_workers(tmp_path: Path) -> None:
    require_mpi("11-mpi")
    launcher = {"command": ["mpirun", "--allow-run-as-root", "-n", "6", "python", "/mpi/pi.py"]}
    roles = {"Launcher": role(container={"image": "mpi-pi:1", **launcher}), "Worker": role(2, container={"image": "mpi-pi:1"})}
    result = asyncio.run(run_job(tmp_path, kubedl_job(MPIJob, roles, slotsPerWorker=2), "--images", str(_IMAGES)))
    assert result.code == 0, result.out + result.err
    assert "6 processes on 3 hosts: pi = 3.14159" in result.out


async def test_the_roles_of_a_marsjob_find_each_other(tmp_path: Path) -> None:
    container, words = program(tmp_path, MarsJob, _MARS)
    container |= {"env": [{"name": "WORKERS", "value": "2"}], "resources": {"requests": {"cpu": "300m", "memory": "32Mi"}}}
    web = role(container=container, restartPolicy="OnFailure")
    roles = {"Scheduler": role(container=container), "WebService": web, "Worker": role(2, container=container)}
    result = await run_job(tmp_path, kubedl_job(MarsJob, roles, workerMemoryTuningPolicy={"workerCacheSize": "1Mi"}), *words)
    assert result.code == 0, result.out + result.err
    assert "scheduler: collected 4950\n" in result.out
    assert [f"worker {index} of 1 CPUs sent {sum(range(index, 100, 2))}\n" in result.out for index in (0, 1)] == [True, True]
    assert "web service: the result is 4950 at demo-webservice-0.default.svc" in result.out


@pytest.mark.frameworks
@pytest.mark.timeout(HUGE_SECONDS + 60)
async def test_mars_computes_on_the_workers_of_a_marsjob(tmp_path: Path) -> None:
    container, words = program(tmp_path, MarsJob, _REAL_MARS, packages=(*_MARS_PACKAGES, *_MORE_MARS_PACKAGES))
    container["resources"] = {"requests": {"cpu": "200m", "memory": "256Mi"}}
    result = await run_job(tmp_path, example_job(MarsJob, {"Scheduler": 1, "Worker": 2}, container), *words, timeout_seconds=HUGE_SECONDS)
    assert result.code == 0, result.out + result.err
    assert "sum 333833500 on demo-worker-0 demo-worker-1\n" in result.out


async def test_the_workers_of_an_xdljob_reach_all_parameter_servers(tmp_path: Path) -> None:
    container, words = program(tmp_path, XDLJob, _XDL)
    container["env"] = [{"name": "ZK_ADDR", "value": "zfs://zk:2181/xdl/"}]
    job = example_job(XDLJob, {"PS": 2, "Worker": 3}, container, minFinishWorkRate=100, cleanPodPolicy="None")
    result = await run_job(tmp_path, job, *words)
    assert result.code == 0, result.out + result.err
    assert [f"worker {index} of 3 trained at zfs://zk:2181/xdl/" in result.out for index in range(3)] == [True] * 3
    assert [f"server {index} holds 6\n" in result.out for index in range(2)] == [True, True]
