"""The restart of a large job: one pod fails, all pods are deleted and created again."""

from __future__ import annotations

import time

from bench_operator_jobs import Load
from bench_operator_load import BenchTarget, Kubelet, Watcher
from bench_report import MeasureError, Row, log_progress

from dlop.api.constants import ATTEMPT_LABEL
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.resources import PODS
from dlop.kube.watch import WatchEvent, WatchEventType

_KILLED = 137
_read_pod = object_decoder(Pod)


class Attempts:
    """Counts the pods of each attempt, and deleted pods."""

    def __init__(self) -> None:
        self.pods: dict[str, list[Pod]] = {}
        self.deleted = 0

    def on_event(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.ADDED:
            pod = _read_pod(event.object)
            self.pods.setdefault(pod.metadata.labels[ATTEMPT_LABEL], []).append(pod)
        elif event.type is WatchEventType.DELETED:
            self.deleted += 1

    def of(self, attempt: int) -> list[Pod]:
        """The pods of an attempt, in the order of creation."""
        return self.pods.get(str(attempt), [])


async def restart_rows(target: BenchTarget, *, pods: int, name: str) -> list[Row]:
    """Measures the time from the failure of one pod until all pods exist again."""
    load = Load(1, pods)
    log_progress(f"restart of {load.title}")
    namespace = await target.create_namespace(name)
    attempts = Attempts()
    async with (
        target.operator(namespace) as operator,
        Watcher(target.client, namespace, {PODS: attempts.on_event}) as watcher,
    ):
        await target.create_jobs(load.bodies(target.kind, namespace))
        await watcher.until(lambda: len(attempts.of(0)) == pods, what=lambda: f"{len(attempts.of(0))} pods before the restart")
        await operator.wait_quiet()
        cpu_before, started_at = operator.cpu_seconds, time.perf_counter()
        await Kubelet(target.client).set_finished(attempts.of(0)[-1], exit_code=_KILLED)
        finished_at = await watcher.until(lambda: len(attempts.of(1)) == pods, what=lambda: f"{len(attempts.of(1))} pods after the restart")
        cpu_seconds = operator.cpu_seconds - cpu_before
        await operator.wait_quiet()
        _require_one_restart(attempts, pods=pods)
    counted = f"{attempts.deleted:,} pods deleted, {len(attempts.of(1)):,} created"
    return [
        Row(f"restart of {load.title}: until all pods exist again", finished_at - started_at, "s"),
        Row(f"restart of {load.title}: {counted}", 2 * pods / (finished_at - started_at), "writes per second"),
        Row(f"restart of {load.title}: CPU of the operator per pod", cpu_seconds / pods * 1e6, "µs of CPU"),
    ]


def _require_one_restart(attempts: Attempts, *, pods: int) -> None:
    counts = {attempt: len(pods_of_attempt) for attempt, pods_of_attempt in attempts.pods.items()}
    if counts != {"0": pods, "1": pods} or attempts.deleted != pods:
        raise MeasureError(f"pods by attempt: {counts}, deleted pods: {attempts.deleted}; expected two attempts of {pods} pods")
