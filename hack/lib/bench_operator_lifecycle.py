"""The lifecycle of jobs from creation to success. The benchmark acts as the kubelet."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from statistics import mean, median, quantiles

import msgspec
from bench_operator_load import BenchTarget, Kubelet, Watcher, for_each
from bench_operator_process import Operator
from bench_report import MeasureError, Row, log_progress

from dlop.api.phase import Phase
from dlop.api.record import Record
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, PartialObject, Pod, object_decoder
from dlop.kube.resources import EVENTS, PODS, SERVICES
from dlop.kube.watch import WatchEvent, WatchEventType

JOB_PODS = 3
_SINGLE_JOBS = 5
_JOBS_PER_SECOND = 20.0
_read_pod, _read_job, _read_partial = object_decoder(Pod), object_decoder(CustomObject), object_decoder(PartialObject)


class JobRunner:
    """Runs jobs in a namespace and observes them. Sets their pods to running as soon as they are created."""

    def __init__(self, target: BenchTarget, namespace: str, **run_policy: str) -> None:
        self.running_pods = 0
        """Number of pods that were set to running."""
        self.writes: Counter[str] = Counter()
        """Number of updates of each job. All of them are status updates."""
        self.watcher = Watcher(target.client, namespace, {PODS: self._on_pod_event, target.kind.resource: self._on_job_event})
        self._place = target
        self._namespace = namespace
        self._run_policy = run_policy
        self._kubelet = Kubelet(target.client)
        self._pods: dict[str, list[Pod]] = {}
        self._phases: dict[str, str] = {}
        self._new_pods: asyncio.Queue[Pod] = asyncio.Queue()

    async def run_pods(self) -> None:
        """Set new pods to running, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(self._run_pods_sequentially())

    async def start_jobs(self, names: list[str]) -> None:
        """Create jobs and wait until they and all their pods are running."""
        bodies = [self._place.kind.body(name, namespace=self._namespace, pods=JOB_PODS, **self._run_policy) for name in names]
        expected = self.running_pods + JOB_PODS * len(names)
        await self._place.create_jobs(bodies)
        await self.watcher.until(
            lambda: self.running_pods == expected, what=lambda: f"{self.running_pods} running pods, expected {expected}"
        )
        await self._wait_for_phase("Running", names)

    async def run_jobs(self, names: list[str]) -> float:
        """Create jobs and let them succeed. Returns the seconds from the success of the last pod until all jobs have succeeded."""
        await self.start_jobs(names)
        await for_each(names, self._succeed)
        last_pod_at = time.perf_counter()
        return await self._wait_for_phase("Succeeded", names) - last_pod_at

    async def _succeed(self, name: str) -> None:
        """Finishes the leader last."""
        pods = sorted(self._pods[name], key=lambda pod: self._place.kind.is_leader(pod.metadata.name))
        if len(pods) != JOB_PODS:
            raise MeasureError(f"the job {name} has {len(pods)} pods, expected {JOB_PODS}")
        for pod in pods:
            await self._kubelet.set_finished(pod)

    async def _wait_for_phase(self, phase: str, names: list[str]) -> float:
        def count() -> int:
            return sum(self._phases.get(name) == phase for name in names)

        return await self.watcher.until(lambda: count() == len(names), what=lambda: f"{count()} jobs {phase}, expected {len(names)}")

    async def _run_pods_sequentially(self) -> None:
        while True:
            await self._kubelet.set_running(await self._new_pods.get())
            self.running_pods += 1

    def _on_pod_event(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.ADDED:
            pod = _read_pod(event.object)
            self._pods.setdefault(_owner(pod), []).append(pod)
            self._new_pods.put_nowait(pod)

    def _on_job_event(self, event: WatchEvent) -> None:
        job = _read_job(event.object)
        self.writes[job.metadata.name] += event.type is WatchEventType.MODIFIED
        self._phases[job.metadata.name] = job_phase(bytes(job.status))


class _Status(msgspec.Struct):
    dlop: Record = Record()


_decode = msgspec.json.Decoder(_Status).decode


def job_phase(status: bytes) -> str:
    """The phase in the operator's record, which has the same format for every kind."""
    phase = _decode(status or b"{}").dlop.phase
    if phase == Phase.FAILED:
        raise MeasureError(f"a job failed: {status.decode()}")
    return phase


def _owner(child: Pod | PartialObject) -> str:
    owner = child.metadata.controller
    return "" if owner is None else owner.name


async def lifecycle_rows(target: BenchTarget, *, jobs: int, name: str) -> list[Row]:
    """A few jobs one at a time, then many concurrent jobs."""
    log_progress(f"lifecycle of {_SINGLE_JOBS} jobs one at a time, and of {jobs} concurrent jobs")
    namespace = await target.create_namespace(name)
    runner = JobRunner(target, namespace)
    async with target.operator(namespace) as operator, runner.watcher:
        running = asyncio.create_task(runner.run_pods())
        try:
            single = await _single_job_rows(target.client, operator, runner, namespace=namespace)
            return [*single, *await _concurrent_rows(operator, runner, jobs=jobs)]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _single_job_rows(client: Client, operator: Operator, runner: JobRunner, *, namespace: str) -> list[Row]:
    names = [f"single-{number}" for number in range(_SINGLE_JOBS)]
    for job in names:
        await runner.run_jobs([job])
    await operator.wait_quiet()
    events = (await client.list(EVENTS, namespace=namespace))["items"]
    if not events:
        raise MeasureError("no events were created; the benchmark does not count them correctly")
    counted = f"{_SINGLE_JOBS} jobs one at a time"
    return [
        Row(f"{counted}, success: status writes per job, maximum", max(runner.writes[job] for job in names), "writes", at_most=4),
        Row(f"{counted}, success: events per job", len(events) / _SINGLE_JOBS, "events"),
    ]


async def _concurrent_rows(operator: Operator, runner: JobRunner, *, jobs: int) -> list[Row]:
    names = [f"job-{number}" for number in range(jobs)]
    cpu_before, started_at = operator.cpu_seconds, time.perf_counter()
    after_last_seconds = await runner.run_jobs(names)
    seconds, cpu_seconds = time.perf_counter() - started_at, operator.cpu_seconds - cpu_before
    await operator.wait_idle()
    writes = [runner.writes[job] for job in names]
    if min(writes) == 0:
        raise MeasureError("a job succeeded without a status write; the benchmark does not count them correctly")
    counted = f"{jobs} jobs of {JOB_PODS} pods"
    return [
        Row(f"{counted}, creation to success", seconds, "s"),
        Row(f"{counted}, creation to success: CPU of the operator per pod", cpu_seconds / (jobs * JOB_PODS) * 1e6, "µs of CPU"),
        Row(f"{counted}: from the success of the last pod to the success of all jobs", after_last_seconds, "s"),
        Row(f"{counted}: status writes per job, mean", mean(writes), "writes", at_most=4),
        Row(f"{counted}: status writes per job, maximum", max(writes), "writes", at_most=4),
    ]


async def first_child_rows(target: BenchTarget, *, jobs: int, name: str) -> list[Row]:
    """The delay from the creation of a job to its first child, at a fixed rate of jobs."""
    log_progress(f"{jobs} jobs at {_JOBS_PER_SECOND:g} per second: delay to the first child")
    namespace = await target.create_namespace(name)
    first: dict[str, float] = {}

    def record_first(event: WatchEvent) -> None:
        first.setdefault(_owner(_read_partial(event.object)), time.perf_counter())

    async with (
        target.operator(namespace) as operator,
        Watcher(target.client, namespace, {SERVICES: record_first}) as watcher,
    ):
        await target.create_jobs([target.kind.body("warm-up", namespace=namespace, pods=JOB_PODS)])
        await watcher.until(lambda: "warm-up" in first, what=lambda: "no services")
        created_at = await _create_at_fixed_rate(target, (f"job-{number}" for number in range(jobs)), namespace=namespace)
        await watcher.until(lambda: first.keys() >= created_at.keys(), what=lambda: f"services of {len(first)} jobs, expected {jobs}")
        await operator.wait_idle()
    # The first child can be observed before the response to the create of the job.
    waits = [max(0.0, first[job] - created_at[job]) * 1e3 for job in created_at]
    counted = f"{jobs} jobs at {_JOBS_PER_SECOND:g} per second"
    return [
        Row(f"{counted}: from the response to the create of a job to its first child, p50", median(waits), "ms"),
        Row("the same, p99", quantiles(waits, n=100, method="inclusive")[98], "ms"),
    ]


async def _create_at_fixed_rate(target: BenchTarget, names: Iterable[str], *, namespace: str) -> dict[str, float]:
    """The time of the response to each create."""
    created_at: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    for number, name in enumerate(names):
        await asyncio.sleep(max(0.0, started_at + number / _JOBS_PER_SECOND - loop.time()))
        body = target.kind.body(name, namespace=namespace, pods=JOB_PODS)
        await target.client.call("POST", target.kind.resource.path(namespace=namespace), body=body)
        created_at[name] = time.perf_counter()
    return created_at
