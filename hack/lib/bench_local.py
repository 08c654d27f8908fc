"""`hack/bench local`: what it costs to run pods with `dlop local`, against the same programs started by hand.

Prints a table; with `--json FILE` also writes the figures. The exit code is 0 whatever the figures are, and 1 only if
something could not be measured. `dlop local` runs as people run it, in a process of its own, and is used through its kubeconfig;
its memory is read from /proc: it needs Linux.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
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
from bench_rows import MeasureError, Row, parser, say, tell

from dlop.frameworks.mpba.mxjob import MXJob
from dlop.jobs.errors import JobsError
from dlop.jobs.list_watch import WatchScope, follow
from dlop.jobs.lookup import JobHandle
from dlop.jobs.wait import Goal, wait_for
from dlop.kube.client import Client
from dlop.kube.errors import KubeError
from dlop.kube.http.transport import connect
from dlop.kube.objects import CustomObject
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject

_WITHIN_SECONDS = 300.0
_NAMESPACE = "default"
# Two programs that tell when they began: what they share is left out when their times are compared.
_TELL_THE_TIME = "date +%s%N > "
_POD_PLACE = "/dev/termination-log"


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    starts: int = 100
    pods: int = 200
    rounds: int = 3
    work: int = 2_000_000
    """What each pod of the large job counts up to: about a tenth of a second."""


QUICK = Scale(starts=4, pods=10, rounds=1, work=1_000)
"""Only to see that everything can be measured: the figures mean little."""


@dataclass(frozen=True)
class Local:
    """A `dlop local` that is up."""

    pid: int
    client: Client
    folder: Path
    start_seconds: float


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    options = parser("local", __doc__).parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    return tell(lambda: asyncio.run(measure(scale)), json_path=options.json, needs_control_plane=False)


async def measure(scale: Scale) -> list[Row]:
    """Every figure, one after the other: they share the machine."""
    try:
        async with local() as place:
            rows = [Row("dlop local, from the command to a cluster that is up", place.start_seconds, "s")]
            rows.append(Row("resident memory of dlop local, at rest", resident_megabytes(place.pid), "MB"))
            rows += await _start_rows(place, scale)
            rows += await _job_rows(place, scale)
            rows.append(Row("resident memory of dlop local, at most", resident_megabytes(place.pid, peak=True), "MB"))
            return rows
    except (KubeError, JobsError, TimeoutError) as error:
        raise MeasureError(f"dlop local did not do its part: {error!r}") from error


@contextlib.asynccontextmanager
async def local() -> AsyncIterator[Local]:
    """A cluster on this machine with room for everything."""
    with tempfile.TemporaryDirectory(prefix="dlop-bench-") as folder, _started(Path(folder)) as (process, kubeconfig, seconds):
        client = Client(await connect(kubeconfig))
        try:
            yield Local(process.pid, client, Path(folder), seconds)
        finally:
            await client.close()


@contextlib.contextmanager
def _started(folder: Path) -> Iterator[tuple[subprocess.Popen[str], Path, float]]:
    began = time.monotonic()
    words = [sys.executable, "-m", "dlop", "local", "--output", "json", "--cpus", "1000", "--folder", str(folder / "cluster")]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, Path(_first_document(process)["kubeconfig"]), time.monotonic() - began
        finally:
            process.terminate()


def _first_document(process: subprocess.Popen[str]) -> JsonObject:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if line.startswith("}"):
            found: JsonObject = json.loads(text)
            return found
    raise MeasureError("dlop local did not start; it says why above")


# --- one pod after the other ----------------------------------------------------------------------------------------------


async def _start_rows(place: Local, scale: Scale) -> list[Row]:
    say(f"{scale.starts} pods, one after the other, and as many bare processes")
    await _pod_start(place, "warm-up")
    bare, pods = [], []
    for number in range(scale.starts):
        bare.append(_bare_start(place.folder / "began"))
        pods.append(await _pod_start(place, f"pod-{number}"))
    above = median(pods) - median(bare)
    return [
        Row("start of a bare process, p50", median(bare), "ms"),
        Row("start of a pod, from its creation, p50", median(pods), "ms"),
        Row("start of a pod, from its creation, p99", quantiles(pods, n=100, method="inclusive")[98], "ms"),
        Row("start of a pod above that of a bare process, p50", above, "ms", at_most=60),
    ]


def _bare_start(file: Path) -> float:
    """Milliseconds until a process runs."""
    began = time.time_ns()
    subprocess.run(["sh", "-c", _TELL_THE_TIME + str(file)], check=True, stdin=subprocess.DEVNULL)
    return (int(file.read_text()) - began) / 1e6


async def _pod_start(place: Local, name: str) -> float:
    """Milliseconds until a new pod's process runs."""
    container = {"name": "main", "image": "none", "command": ["sh", "-c", _TELL_THE_TIME + _POD_PLACE]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    began = time.time_ns()
    await place.client.create(PODS, body, namespace=_NAMESPACE)
    message = await _last_words(place.client, name)
    await place.client.delete(PODS, name, namespace=_NAMESPACE, grace_seconds=0)
    return (int(message) - began) / 1e6


async def _last_words(client: Client, name: str) -> str:
    scope = WatchScope(resource=PODS, namespace=_NAMESPACE, field_selector=f"metadata.name={name}")
    async with asyncio.timeout(_WITHIN_SECONDS), aclosing(follow(client, scope, CustomObject)) as all_news:
        async for news in all_news:
            for pod in news.there:
                for status in pod.body().get("status", {}).get("containerStatuses", ()):
                    if ended := status["state"].get("terminated"):
                        return str(ended["message"])
    raise MeasureError(f"nothing was heard of the pod {name}")


# --- one large job --------------------------------------------------------------------------------------------------------


async def _job_rows(place: Local, scale: Scale) -> list[Row]:
    program = [sys.executable, "-I", "-c", f"sum(range({scale.work}))"]
    bare, jobs = [], []
    for number in range(scale.rounds):
        say(f"{scale.pods} processes, bare and as the pods of one job: round {number + 1} of {scale.rounds}")
        bare.append(_bare_crew(program, scale.pods))
        jobs.append(await _job(place.client, f"crew-{number}", program, scale.pods))
    return [
        Row(f"{scale.pods} bare processes, from first start to last end", median(bare), "s"),
        Row(f"a job of {scale.pods} pods of the same, from submission to Succeeded", median(jobs), "s"),
        Row("the job against the bare processes", median(jobs) / median(bare), "times", at_most=1.5),
    ]


def _bare_crew(program: Sequence[str], number: int) -> float:
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        for _ in range(number):
            stack.enter_context(subprocess.Popen(program, stdin=subprocess.DEVNULL))
    return time.monotonic() - began


async def _job(client: Client, name: str, program: Sequence[str], pods: int) -> float:
    template = {"spec": {"restartPolicy": "OnFailure", "containers": [{"name": "main", "image": "none", "command": list(program)}]}}
    sizes = {"SCHEDULER": 1, "WORKER": pods - 1}
    spec = [{"replicaType": role, "replicas": replicas, "template": template} for role, replicas in sizes.items()]
    body = {"apiVersion": MXJob.job_type.resource.api_version, "kind": "MXJob", "metadata": {"name": name}, "spec": spec}
    began = time.monotonic()
    created = await client.create(MXJob.job_type.resource, body, namespace=_NAMESPACE)
    job = JobHandle.read(MXJob, msgspec.json.encode(created))
    await wait_for(client, job, Goal.SUCCEEDED, timeout_seconds=_WITHIN_SECONDS)
    seconds = time.monotonic() - began
    await client.delete(MXJob.job_type.resource, name, namespace=_NAMESPACE)
    return seconds
