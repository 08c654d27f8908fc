"""`hack/bench local`: measures the start-up of the program, and pods of `dlop local`, compared with the same programs started directly.

Prints a table; with `--json FILE` also writes the results to a file. The exit code is 1 only if a measurement failed, not if a
goal is missed. `dlop local` is a separate process that the benchmark uses through its kubeconfig. Requires Linux, because its
memory is read from /proc.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import msgspec
from bench_processes import resident_megabytes
from bench_report import MeasureError, Row, build_parser, log_progress, run_benchmark

from dlop.frameworks.mpba.mxjob import MXJob
from dlop.jobs.errors import JobsError
from dlop.jobs.list_watch import WatchScope, list_and_watch
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import WaitCondition, wait_for_job
from dlop.kube.client import Client
from dlop.kube.errors import KubeError
from dlop.kube.http.transport import connect
from dlop.kube.objects import CustomObject
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject

_TIMEOUT_SECONDS = 300.0
_NAMESPACE = "default"
# The pod and the bare process run the same command, so that its own cost cancels out.
_WRITE_TIME = "date +%s%N > "
_TERMINATION_LOG = "/dev/termination-log"


@dataclass(frozen=True)
class Scale:
    """The size of each measurement."""

    imports: int = 10
    starts: int = 100
    pods: int = 200
    rounds: int = 3
    work: int = 2_000_000
    """Loop iterations of each pod of the large job; the default takes about 0.1 s."""


QUICK = Scale(imports=1, starts=4, pods=10, rounds=1, work=1_000)
"""Checks that all measurements work. The results are not meaningful."""


@dataclass(frozen=True)
class Local:
    """A running `dlop local`."""

    pid: int
    client: Client
    folder: Path
    start_seconds: float


def main(arguments: Sequence[str]) -> int:
    options = build_parser("local", __doc__).parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    return run_benchmark(lambda: asyncio.run(measure(scale)), json_path=options.json, needs_control_plane=False)


async def measure(scale: Scale) -> list[Row]:
    """Measures sequentially, because the measurements share the machine."""
    try:
        async with run_local() as target:
            rows = [*_import_rows(scale), Row("dlop local, from the command to a ready cluster", target.start_seconds, "s")]
            rows.append(Row("resident memory of dlop local, idle", resident_megabytes(target.pid), "MB"))
            rows += await _start_rows(target, scale)
            rows += await _job_rows(target, scale)
            rows.append(Row("resident memory of dlop local, peak", resident_megabytes(target.pid, peak=True), "MB"))
            return rows
    except (KubeError, JobsError, TimeoutError) as error:
        raise MeasureError(f"dlop local failed: {error!r}") from error


@contextlib.asynccontextmanager
async def run_local() -> AsyncIterator[Local]:
    """A cluster with enough CPUs for all pods."""
    with tempfile.TemporaryDirectory(prefix="dlop-bench-") as folder, _start(Path(folder)) as (process, kubeconfig, seconds):
        client = Client(await connect(kubeconfig))
        try:
            yield Local(process.pid, client, Path(folder), seconds)
        finally:
            await client.close()


@contextlib.contextmanager
def _start(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path, float]]:
    started_at = time.monotonic()
    command = [sys.executable, "-m", "dlop", "local", "--output", "json", "--cpus", "1000", "--folder", str(folder / "cluster")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, Path(_first_document(process)["kubeconfig"]), time.monotonic() - started_at
        finally:
            process.terminate()


def _first_document(process: subprocess.Popen[str]) -> JsonObject:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            document: JsonObject = json.loads(text)
            return document
    raise MeasureError("dlop local did not start; see its output above")


# --- the program ------------------------------------------------------------------------------------------------------


def _import_rows(scale: Scale) -> list[Row]:
    log_progress(f"import dlop and dlop --help, {scale.imports} times each")
    return [
        Row("import dlop, minimum", _min_cpu_milliseconds(scale.imports, "-c", "import dlop"), "ms of CPU", at_most=150),
        Row("dlop --help, minimum", _min_cpu_milliseconds(scale.imports, "-m", "dlop", "--help"), "ms of CPU", at_most=400),
    ]


def _min_cpu_milliseconds(runs: int, *words: str) -> float:
    return min(_cpu_milliseconds(*words) for _ in range(runs))


def _cpu_milliseconds(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


# --- single pods ------------------------------------------------------------------------------------------------------


async def _start_rows(target: Local, scale: Scale) -> list[Row]:
    log_progress(f"{scale.starts} pods and {scale.starts} bare processes, one at a time")
    await _pod_start(target, "warm-up")
    bare, pods = [], []
    for number in range(scale.starts):
        bare.append(_bare_start(target.folder / "started"))
        pods.append(await _pod_start(target, f"pod-{number}"))
    difference = median(pods) - median(bare)
    return [
        Row("start of a bare process, p50", median(bare), "ms"),
        Row("start of a pod, from its creation, p50", median(pods), "ms"),
        Row("start of a pod, from its creation, p99", quantiles(pods, n=100, method="inclusive")[98], "ms"),
        Row("start of a pod, minus start of a bare process, p50", difference, "ms", at_most=60),
    ]


def _bare_start(file: Path) -> float:
    """Milliseconds until the process runs."""
    started_at = time.time_ns()
    subprocess.run(["sh", "-c", _WRITE_TIME + str(file)], check=True, stdin=subprocess.DEVNULL)
    return (int(file.read_text()) - started_at) / 1e6


async def _pod_start(target: Local, name: str) -> float:
    """Milliseconds from the creation of a pod until its process runs."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", _WRITE_TIME + _TERMINATION_LOG]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    started_at = time.time_ns()
    await target.client.create(PODS, body, namespace=_NAMESPACE)
    message = await _termination_message(target.client, name)
    await target.client.delete(PODS, name, namespace=_NAMESPACE, grace_seconds=0)
    return (int(message) - started_at) / 1e6


async def _termination_message(client: Client, name: str) -> str:
    scope = WatchScope(resource=PODS, namespace=_NAMESPACE, field_selector=f"metadata.name={name}")
    async with asyncio.timeout(_TIMEOUT_SECONDS), aclosing(list_and_watch(client, scope, CustomObject)) as changes:
        async for change in changes:
            for pod in change.upserted:
                for status in pod.body().get("status", {}).get("containerStatuses", ()):
                    if terminated := status["state"].get("terminated"):
                        return str(terminated["message"])
    raise MeasureError(f"the watch of the pod {name} ended")


# --- one large job --------------------------------------------------------------------------------------------------------


async def _job_rows(target: Local, scale: Scale) -> list[Row]:
    program = [sys.executable, "-I", "-c", f"sum(range({scale.work}))"]
    bare, jobs = [], []
    for number in range(scale.rounds):
        log_progress(f"{scale.pods} bare processes, and one job of {scale.pods} pods: round {number + 1} of {scale.rounds}")
        bare.append(_bare_processes(program, scale.pods))
        jobs.append(await _job(target.client, f"job-{number}", program, scale.pods))
    return [
        Row(f"{scale.pods} bare processes, from the first start to the last exit", median(bare), "s"),
        Row(f"a job of {scale.pods} such pods, from submission to Succeeded", median(jobs), "s"),
        Row("the job relative to the bare processes", median(jobs) / median(bare), "ratio", at_most=1.5),
    ]


def _bare_processes(program: Sequence[str], count: int) -> float:
    started_at = time.monotonic()
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(subprocess.Popen(program, stdin=subprocess.DEVNULL))
    return time.monotonic() - started_at


async def _job(client: Client, name: str, program: Sequence[str], pods: int) -> float:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "none", "command": list(program)}]}}
    sizes = {"SCHEDULER": 1, "WORKER": pods - 1}
    spec = [{"replicaType": role, "replicas": replicas, "template": template} for role, replicas in sizes.items()]
    body = {"apiVersion": MXJob.job_type.resource.api_version, "kind": "MXJob", "metadata": {"name": name}, "spec": spec}
    started_at = time.monotonic()
    created = await client.create(MXJob.job_type.resource, body, namespace=_NAMESPACE)
    job = JobHandle.decode(MXJob, msgspec.json.encode(created))
    await wait_for_job(client, job, WaitCondition.SUCCEEDED, timeout_seconds=_TIMEOUT_SECONDS)
    seconds = time.monotonic() - started_at
    await client.delete(MXJob.job_type.resource, name, namespace=_NAMESPACE)
    return seconds
