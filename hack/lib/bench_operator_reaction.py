"""How soon the operator reacts to a pod of a small job. One job at a time, measured from outside. The benchmark acts as the kubelet."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from statistics import median

from bench_operator_lifecycle import JOB_PODS, job_phase
from bench_operator_load import BenchTarget, Kubelet, Watcher
from bench_report import Row, log_progress

from dlop.kube.objects import CustomObject, Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.watch import WatchEvent, WatchEventType

_KILLED = 137
# Longer than the time within which the operator handles changes of a job together.
_PAUSE_SECONDS = 0.1
_read_pod, _read_job = object_decoder(Pod), object_decoder(CustomObject)


class _Reactions:
    """Runs jobs one after another, and measures the delays in seconds."""

    def __init__(self, target: BenchTarget, namespace: str) -> None:
        self.round_trips: list[float] = []
        self.running: list[float] = []
        self.replaced: list[float] = []
        self.succeeded: list[float] = []
        self.watcher = Watcher(target.client, namespace, {PODS: self._on_pod_event, target.kind.resource: self._on_job_event})
        self._target = target
        self._namespace = namespace
        self._kubelet = Kubelet(target.client)
        self._pods: dict[str, Pod] = {}
        self._phase = ""

    async def run_job(self, name: str) -> None:
        """Run the pods of a job, let one of them fail, and let all succeed."""
        self._pods.clear()
        await self._target.create_jobs([self._target.kind.body(name, namespace=self._namespace, pods=JOB_PODS)])
        await self._until(lambda: len(self._pods) == JOB_PODS)
        self.running.append(await self._measure(self._pods_leader_last(), reached=self._is_running))
        lost = self._pods_leader_last()[0].metadata
        is_replaced = functools.partial(self._is_replaced, lost.name, lost.uid)
        self.replaced.append(await self._measure([self._pods[lost.name]], exit_code=_KILLED, reached=is_replaced))
        await self._measure([self._pods[lost.name]], reached=self._is_running)
        self.succeeded.append(await self._measure(self._pods_leader_last(), exit_code=0, reached=lambda: self._phase == "Succeeded"))

    async def _measure(self, pods: list[Pod], *, reached: Callable[[], bool], exit_code: int | None = None) -> float:
        """Report the status of the pods one after another. Returns the time from the last report until `reached`."""
        await asyncio.sleep(_PAUSE_SECONDS)
        reported_at = 0.0
        for pod in pods:
            started_at = time.perf_counter()
            await (self._kubelet.set_running(pod) if exit_code is None else self._kubelet.set_finished(pod, exit_code=exit_code))
            reported_at = time.perf_counter()
            self.round_trips.append(reported_at - started_at)
        # The effect can be observed before the response to the report.
        return max(0.0, await self._until(reached) - reported_at)

    async def _until(self, reached: Callable[[], bool]) -> float:
        return await self.watcher.until(reached, what=lambda: f"phase {self._phase}, pods {sorted(self._pods)}")

    def _pods_leader_last(self) -> list[Pod]:
        return sorted(self._pods.values(), key=lambda pod: self._target.kind.is_leader(pod.metadata.name))

    def _is_running(self) -> bool:
        return self._phase == "Running"

    def _is_replaced(self, name: str, uid: str) -> bool:
        return self._pods[name].metadata.uid != uid

    def _on_pod_event(self, event: WatchEvent) -> None:
        pod = _read_pod(event.object)
        if event.type is WatchEventType.ADDED:
            self._pods[pod.metadata.name] = pod

    def _on_job_event(self, event: WatchEvent) -> None:
        self._phase = job_phase(bytes(_read_job(event.object).status))


async def reaction_rows(target: BenchTarget, *, jobs: int, name: str) -> list[Row]:
    log_progress(f"reaction to pods of {jobs} jobs, one at a time")
    namespace = await target.create_namespace(name)
    reactions = _Reactions(target, namespace)
    async with target.operator(namespace), reactions.watcher:
        for number in range(jobs):
            await reactions.run_job(f"job-{number}")
    counted = f"{jobs} jobs of {JOB_PODS} pods, one at a time"
    return [
        Row(f"{counted}: from the failure of a pod to its replacement, p50", median(reactions.replaced) * 1e3, "ms", at_most=12),
        Row(f"{counted}: from the success of the last pod to that of the job, p50", median(reactions.succeeded) * 1e3, "ms", at_most=8),
        Row(f"{counted}: from the start of the last pod to the job running, p50", median(reactions.running) * 1e3, "ms", at_most=8),
        Row(f"{counted}: round trip of a write of the benchmark, p50", median(reactions.round_trips) * 1e3, "ms"),
    ]
