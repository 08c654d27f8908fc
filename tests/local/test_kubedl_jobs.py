"""Jobs of training.kubedl.io with large packages. Those of the example need none, and are run with the other examples."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.kube.types import JsonObject
from tests.frameworks.example_manifests import EXAMPLES
from tests.frameworks.kubedl_manifests import kubedl_job, role
from tests.local.example_needs import HUGE_SECONDS
from tests.local.example_numbers import EXPECTED_RESULTS
from tests.local.local_jobs import write_manifests
from tests.local.local_process import ProcessResult, run_local

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(HUGE_SECONDS + 60)]

# Starts the supervisor of Mars in the scheduler, and a worker in each worker, and runs tasks until both workers have run one.
_MARS = """
import json, os, socket, subprocess, sys, time
from peers import connect

detail = json.loads(os.environ["MARS_CLUSTER_DETAIL"])
scheduler, _, port = detail["cluster"]["scheduler"][0].rpartition(":")
arguments = [sys.executable, "-W", "ignore", "-m"]

if detail["task"]["type"] == "worker":
    address = f"{socket.gethostbyname(scheduler)}:{port}"
    os.execv(sys.executable, [*arguments, "mars.worker", "-s", address])

supervisor = subprocess.Popen([*arguments, "mars.supervisor", "-w", "7103"])
connect(f"{os.environ['MARS_CONTAINER_IP']}:7103").close()

import mars
import mars.core
import mars.remote as remote
import mars.tensor as tensor


def find_worker(number):
    import os, time

    time.sleep(0.5)
    return os.environ["MARS_K8S_POD_NAME"]


mars.new_session(f"http://{os.environ['MARS_CONTAINER_IP']}:7103", default=True)
deadline, found = time.monotonic() + 120, set()
while len(found) < 2 and time.monotonic() < deadline:
    # Mars runs a single task on the same worker each time.
    tasks = [remote.spawn(find_worker, args=(number,)) for number in range(4)]
    found.update(mars.core.ExecutableTuple(tasks).execute().fetch())
numbers = tensor.arange(1, 1001, chunk_size=100)
print("sum", int((numbers**2).sum().execute().fetch()), "on", *sorted(found), flush=True)
supervisor.terminate()
supervisor.wait()
"""
# The last versions with which Mars works.
_MARS_PACKAGES = [
    *("pymars==0.10.0", "numpy==1.23.5", "pandas==1.5.3", "scipy==1.10.1", "scikit-learn==1.2.2", "sqlalchemy==1.4.54"),
    *("cloudpickle==2.2.1", "numexpr==2.8.8", "setuptools==67.8.0", "tornado==6.4.2"),
]


async def run_job(folder: Path, kind: type[KubeDLJob], roles: dict[str, int], container: JsonObject, *, images: Path) -> ProcessResult:
    """Run a job to its end, and return the result with the logs of all replicas. The first run installs packages."""
    job = kubedl_job(kind, {name: role(count, container=container) for name, count in roles.items()})
    words = (write_manifests(folder, job), "--images", str(images), "--logs", "--timeout", f"{HUGE_SECONDS - 20}s")
    # pip has warnings.
    return await run_local(*words, folder=folder, timeout_seconds=HUGE_SECONDS, PYTHONWARNINGS="default")


async def test_a_pytorchjob_trains_with_the_program_of_the_example(tmp_path: Path) -> None:
    container = {"image": "pytorch-by-axis:1", "command": ["python", "/training/train.py"]}
    result = await run_job(tmp_path, PyTorchJob, {"Master": 1, "Worker": 3}, container, images=EXAMPLES / "images.yaml")
    assert result.code == 0, result.out + result.err
    expected = EXPECTED_RESULTS["10-pytorch/job.yaml"]
    assert expected.parse_output(result.out) == [pytest.approx(expected.values, abs=0.02)] * expected.times


async def test_mars_computes_on_the_workers_of_a_marsjob(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_MARS)
    files = {"/program.py": "program.py", "/peers.py": str(EXAMPLES / "15-kubedl" / "peers.py")}
    image = {"name": "mars:*", "files": files, "python": {"version": "3.11", "requirements": _MARS_PACKAGES}}
    images = tmp_path / "images.yaml"
    images.write_text(json.dumps({"images": [image]}))
    resources = {"requests": {"cpu": "200m", "memory": "256Mi"}}
    container = {"image": "mars:1", "command": ["python3", "/program.py"], "resources": resources}
    result = await run_job(tmp_path, MarsJob, {"Scheduler": 1, "Worker": 2}, container, images=images)
    assert result.code == 0, result.out + result.err
    assert "sum 333833500 on demo-worker-0 demo-worker-1\n" in result.out
