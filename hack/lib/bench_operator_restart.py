"""The restart of a large job: one of its pods fails, all are deleted, and all are made anew."""

from __future__ import annotations

import time

from bench_operator_jobs import Load
from bench_operator_load import Follower, Kubelet, Place
from bench_rows import MeasureError, Row, say

from dlop.api.constants import ATTEMPT_LABEL
from dlop.kube.objects import Pod, reader
from dlop.kube.resources import PODS
from dlop.kube.watch import WatchEvent, WatchEventType

_KILLED = 137
_read_pod = reader(Pod)


class Attempts:
    """Counts the pods of each attempt, and those that have gone."""

    def __init__(self) -> None:
        self.pods: dict[str, list[Pod]] = {}
        self.gone = 0

    def told(self, event: WatchEvent) -> None:
        """A pod has come, changed or gone."""
        if event.type is WatchEventType.ADDED:
            pod = _read_pod(event.object)
            self.pods.setdefault(pod.metadata.labels[ATTEMPT_LABEL], []).append(pod)
        elif event.type is WatchEventType.DELETED:
            self.gone += 1

    def of(self, attempt: int) -> list[Pod]:
        """The pods of an attempt, in the order in which they came."""
        return self.pods.get(str(attempt), [])


async def restart_rows(place: Place, *, pods: int, name: str) -> list[Row]:
    """One pod of a large job fails, and all are made anew."""
    load = Load(1, pods)
    say(f"restart of {load.title}")
    namespace = await place.make_namespace(name)
    attempts = Attempts()
    async with (
        place.operator(namespace) as operator,
        Follower(place.client, namespace, {PODS: attempts.told}) as follower,
    ):
        await place.create_jobs(load.bodies(place.kind, namespace))
        await follower.until(lambda: len(attempts.of(0)) == pods, what=lambda: f"{len(attempts.of(0))} pods before the restart")
        await operator.wait_quiet()
        cpu_before, began = operator.cpu_seconds, time.perf_counter()
        await Kubelet(place.client).ended(attempts.of(0)[-1], exit_code=_KILLED)
        ended = await follower.until(lambda: len(attempts.of(1)) == pods, what=lambda: f"{len(attempts.of(1))} pods after the restart")
        cpu_seconds = operator.cpu_seconds - cpu_before
        await operator.wait_quiet()
        _demand_one_restart(attempts, pods=pods)
    counted = f"{attempts.gone:,} pods deleted, {len(attempts.of(1)):,} created"
    return [
        Row(f"restart of {load.title}: until all are there again", ended - began, "s"),
        Row(f"restart of {load.title}: {counted}", 2 * pods / (ended - began), "writes a second"),
        Row(f"restart of {load.title}: CPU of the operator a pod", cpu_seconds / pods * 1e6, "µs of CPU"),
    ]


def _demand_one_restart(attempts: Attempts, *, pods: int) -> None:
    found = {attempt: len(there) for attempt, there in attempts.pods.items()}
    if found != {"0": pods, "1": pods} or attempts.gone != pods:
        raise MeasureError(f"the pods by attempt are {found} and {attempts.gone} have gone; there should be two attempts of {pods}")
