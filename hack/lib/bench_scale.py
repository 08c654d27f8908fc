"""`hack/bench scale`: measures the operator with the largest jobs, and with many jobs, on the real API server.

Prints a table; with `--json FILE` also writes the results to a file. The exit code is 1 only if a measurement failed, not if a goal is
missed. The pods of a large job are created, then all of them run, then every other worker succeeds. Memory and loop stalls are those of
the whole run. Loop stalls are measured by the operator itself, with `--event-loop-metrics`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec
import uvloop
from bench_operator_creates import Counts, CreationStart, Speed, bench_targets, measure_creation, warm_up
from bench_operator_jobs import PYTORCH, TENSORFLOW, Load
from bench_operator_lifecycle import JOB_PODS, JobRunner, job_phase
from bench_operator_load import BenchTarget, Kubelet, for_each
from bench_operator_process import Operator
from bench_report import MeasureError, Row, build_parser, log_progress, run_benchmark
from real_cluster import RealCluster

from dlop.api.record import parse_indexes
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS

_STATUS_TIMEOUT_SECONDS = 300.0
_POLL_INTERVAL_SECONDS = 0.5
_SETTLE_SECONDS = 5.0
_PAGE_SIZE = 50
_JOBS_AT_ONCE = 500
_JOB = "job-0"
_EVENT_LOOP_METRICS = "--event-loop-metrics"
_read_pod = object_decoder(Pod)


@dataclass(frozen=True)
class Scale:
    """The size of each measurement."""

    pytorch_pods: int = 10_000
    compared_pods: int = 1_000
    compared_rounds: int = 3
    tensorflow_pods: int = 2_000
    small_jobs: int = 10_000
    idle_seconds: float = 30.0


QUICK = Scale(pytorch_pods=50, compared_pods=20, compared_rounds=1, tensorflow_pods=20, small_jobs=20, idle_seconds=2.0)
"""Checks that all measurements work. The results are not meaningful."""


def main(arguments: Sequence[str]) -> int:
    options = build_parser("scale", __doc__).parse_args(arguments)
    scale = QUICK if options.quick else Scale()

    def run() -> list[Row]:
        with RealCluster.started() as cluster:
            return uvloop.run(measure(cluster, scale))

    return run_benchmark(run, json_path=options.json)


async def measure(cluster: RealCluster, scale: Scale) -> list[Row]:
    """Measures sequentially, because the measurements share the machine."""
    async with bench_targets(cluster, [PYTORCH, TENSORFLOW]) as (pytorch, tensorflow):
        return [
            *await _pytorch_rows(pytorch, scale),
            *await _tensorflow_rows(tensorflow, pods=scale.tensorflow_pods),
            *await _at_rest_rows(pytorch, jobs=scale.small_jobs, idle_seconds=scale.idle_seconds),
        ]


# --- large jobs ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LargeJob:
    """The results of one large job."""

    speed: Speed
    peak_megabytes: float
    stall_milliseconds: tuple[float, float]
    """In wall time, and in CPU time of the process."""
    status_bytes: int
    start_megabytes: float
    """Peak memory of an operator that starts when the job is running."""


async def _pytorch_rows(target: BenchTarget, scale: Scale) -> list[Row]:
    compared = [
        await _measure_creation(target, Load(1, scale.compared_pods), name=f"compared-{number}") for number in range(scale.compared_rounds)
    ]
    compared_cpu = median(speed.cpu_microseconds for speed in compared)
    job = await _measure_large_job(target, Load(1, scale.pytorch_pods))
    name, compared_name = _title(target, scale.pytorch_pods), _title(target, scale.compared_pods)
    growth = Row(
        f"{name}: CPU per object relative to {scale.compared_pods:,}", job.speed.cpu_microseconds / compared_cpu, "ratio", at_most=1.2
    )
    return [
        Row(f"{compared_name}: CPU of the operator per object", compared_cpu, "µs of CPU"),
        *_large_job_rows(name, job, peak_megabytes=200),
        growth,
    ]


async def _tensorflow_rows(target: BenchTarget, *, pods: int) -> list[Row]:
    return _large_job_rows(_title(target, pods), await _measure_large_job(target, Load(1, pods)), peak_megabytes=130)


def _large_job_rows(name: str, job: LargeJob, *, peak_megabytes: float) -> list[Row]:
    return [
        Row(f"{name}: objects of the operator", job.speed.per_second, "objects per second"),
        Row(f"{name}: CPU of the operator per object", job.speed.cpu_microseconds, "µs of CPU"),
        Row(f"{name}: peak memory of the operator", job.peak_megabytes, "MB resident", at_most=peak_megabytes),
        Row(f"{name}: peak memory of an operator that starts later", job.start_megabytes, "MB resident", at_most=peak_megabytes),
        *_stall_rows(name, job.stall_milliseconds),
        Row(f"{name}: status of the job", job.status_bytes / 1000, "KB of JSON", at_most=150),
    ]


def _stall_rows(name: str, milliseconds: tuple[float, float]) -> list[Row]:
    wall, cpu = milliseconds
    return [
        Row(f"{name}: longest loop stall", wall, "ms wall time", at_most=50),
        Row("the same in CPU time of the process", cpu, "ms of CPU", at_most=50),
    ]


def _title(target: BenchTarget, pods: int) -> str:
    return f"one {target.kind.title} of {pods:,} pods"


async def _measure_creation(target: BenchTarget, load: Load, *, name: str) -> Speed:
    log_progress(f"{_title(target, load.pods)}: {load.objects} objects")
    namespace, counts = await target.create_namespace(name), Counts()
    async with target.operator(namespace, _EVENT_LOOP_METRICS) as operator:
        return await _create_large_job(target, operator, counts, load, namespace=namespace)


async def _measure_large_job(target: BenchTarget, load: Load) -> LargeJob:
    log_progress(f"{_title(target, load.pods)}: {load.objects} objects, from creation until every other worker has succeeded")
    namespace, counts = await target.create_namespace("large"), Counts()
    async with target.operator(namespace, _EVENT_LOOP_METRICS) as operator:
        speed = await _create_large_job(target, operator, counts, load, namespace=namespace)
        await _run_pods(target, namespace=namespace, pods=load.pods)
        peak_megabytes, stall_milliseconds = operator.resident_megabytes(peak=True), await _stall_milliseconds(operator)
    status = await _status(target, namespace=namespace)
    async with target.operator(namespace) as operator:
        await operator.wait_passes(1)
        await operator.wait_quiet()
        start_megabytes = operator.resident_megabytes(peak=True)
    log_progress(f"  {speed.per_second:.0f} objects/s at {speed.cpu_microseconds:.0f} µs of CPU, {peak_megabytes:.0f} MB")
    return LargeJob(speed, peak_megabytes, stall_milliseconds, len(msgspec.json.encode(status)), start_megabytes)


async def _create_large_job(target: BenchTarget, operator: Operator, counts: Counts, load: Load, *, namespace: str) -> Speed:
    async with counts.watcher([target], namespace) as watcher:
        await warm_up(target, operator, watcher, counts, namespace=namespace)
        started = await CreationStart.now(operator)
        await target.create_jobs(load.bodies(target.kind, namespace))
        return await measure_creation(operator, watcher, counts, load=load, started=started)


async def _stall_milliseconds(operator: Operator) -> tuple[float, float]:
    samples = await operator.samples()
    wall, cpu = (samples.total("dlop_event_loop_longest_delay_seconds", clock=clock) * 1e3 for clock in ("wall", "cpu"))
    if not wall:
        raise MeasureError("the operator has not measured its event loop")
    return wall, cpu


async def _run_pods(target: BenchTarget, *, namespace: str, pods: int) -> None:
    """Set all pods to running, then let every other worker succeed. Waits each time until the status shows it."""
    kubelet = Kubelet(target.client)
    own = await _pods(target, namespace=namespace)
    if len(own) != pods:
        raise MeasureError(f"the job has {len(own)} pods, expected {pods}")
    await for_each(own, kubelet.set_running)
    await _wait_for_status(target, lambda status: job_phase(msgspec.json.encode(status)) == "Running", namespace=namespace)
    workers = [pod for pod in own if not target.kind.is_leader(pod.metadata.name)]
    succeeded = [pod for pod in workers if int(pod.metadata.name.rpartition("-")[2]) % 2]
    await for_each(succeeded, kubelet.set_finished)
    await _wait_for_status(target, lambda status: _completed(status) == len(succeeded), namespace=namespace)


async def _pods(target: BenchTarget, *, namespace: str) -> list[Pod]:
    """The pods of the large job, without those of the warm-up."""
    async with aclosing(target.client.pages(PODS, namespace=namespace, page_size=_PAGE_SIZE)) as pages:
        pods = [_read_pod(item) async for page in pages for item in page.items]
    return [pod for pod in pods if pod.metadata.controller is not None and pod.metadata.controller.name == _JOB]


def _completed(status: dict[str, Any]) -> int:
    return sum(len(parse_indexes(indexes)) for indexes in status["dlop"].get("completedIndexes", {}).values())


async def _status(target: BenchTarget, *, namespace: str) -> dict[str, Any]:
    status: dict[str, Any] = (await target.client.get(target.kind.resource, _JOB, namespace=namespace))["status"]
    return status


async def _wait_for_status(target: BenchTarget, is_reached: Callable[[dict[str, Any]], bool], *, namespace: str) -> None:
    deadline = time.perf_counter() + _STATUS_TIMEOUT_SECONDS
    while not is_reached(status := await _status(target, namespace=namespace)):
        if time.perf_counter() > deadline:
            raise MeasureError(
                f"timed out after {_STATUS_TIMEOUT_SECONDS:g} seconds with the status {msgspec.json.encode(status)[:2000]!r}"
            )
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)


# --- many small jobs -----------------------------------------------------------------------------------------------------


async def _at_rest_rows(target: BenchTarget, *, jobs: int, idle_seconds: float) -> list[Row]:
    """Jobs with running pods, of which none changes. An operator that does not measure its event loop observes them."""
    log_progress(f"{jobs} jobs of {JOB_PODS} pods: creating them, and {idle_seconds:g} idle seconds")
    namespace = await target.create_namespace("small")
    runner = JobRunner(target, namespace)
    async with target.operator(namespace, _EVENT_LOOP_METRICS) as operator, runner.watcher:
        running = asyncio.create_task(runner.run_pods())
        for start in range(0, jobs, _JOBS_AT_ONCE):
            await runner.start_jobs([f"job-{number}" for number in range(start, min(start + _JOBS_AT_ONCE, jobs))])
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await operator.wait_quiet(seconds=_SETTLE_SECONDS)
        current, peak = operator.resident_megabytes(), operator.resident_megabytes(peak=True)
        stall_milliseconds = await _stall_milliseconds(operator)
    async with target.operator(namespace) as operator:
        before, cpu_before = await operator.wait_quiet(seconds=_SETTLE_SECONDS), operator.cpu_seconds
        await asyncio.sleep(idle_seconds)
        cpu_seconds, after = operator.cpu_seconds - cpu_before, await operator.samples()
    name = f"{jobs:,} running jobs of {JOB_PODS} pods"
    return [
        Row(f"{name}: memory of the operator that created them", current, "MB resident"),
        Row(f"{name}: peak memory of that operator", peak, "MB resident"),
        *_stall_rows(name, stall_milliseconds),
        Row(f"{name}: passes in {idle_seconds:g} s at rest", after.passes - before.passes, "passes", at_most=0),
        Row(f"{name}: writes in {idle_seconds:g} s at rest", after.writes - before.writes, "writes", at_most=0),
        Row(f"{name}: CPU in {idle_seconds:g} s at rest", cpu_seconds / idle_seconds * 100, "% of a core"),
    ]
