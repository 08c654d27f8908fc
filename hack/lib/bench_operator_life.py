"""The life of jobs, from their creation to their success, with a kubelet that is played by the load."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from statistics import mean, median, quantiles

import msgspec
from bench_operator_load import Follower, Kubelet, Place, many
from bench_operator_process import Operator
from bench_rows import MeasureError, Row, say

from dlop.api.phase import Phase
from dlop.api.record import Record
from dlop.kube.client import Client
from dlop.kube.objects import CustomObject, PartialObject, Pod, reader
from dlop.kube.resources import EVENTS, PODS, SERVICES
from dlop.kube.watch import WatchEvent, WatchEventType

_PODS = 3
_LONE_JOBS = 5
_GENTLE_JOBS_A_SECOND = 20.0
_read_pod, _read_job, _read_partial = reader(Pod), reader(CustomObject), reader(PartialObject)


class Lives:
    """What becomes of the jobs of a namespace. Their pods run as soon as they are there."""

    def __init__(self, place: Place, namespace: str, **run_policy: str) -> None:
        self.running_pods = 0
        """How many pods were said to run."""
        self.writes: Counter[str] = Counter()
        """How often each job was changed: how often its status was written, for nobody changes anything else."""
        self.follower = Follower(place.client, namespace, {PODS: self._told_of_pod, place.kind.resource: self._told_of_job})
        self._place = place
        self._namespace = namespace
        self._run_policy = run_policy
        self._kubelet = Kubelet(place.client)
        self._pods: dict[str, list[Pod]] = {}
        self._phases: dict[str, str] = {}
        self._new_pods: asyncio.Queue[Pod] = asyncio.Queue()

    async def run_pods(self) -> None:
        """Let every pod run that comes, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(self._run_one_after_another())

    async def begin(self, names: list[str]) -> None:
        """Create jobs and wait until they and all their pods run."""
        bodies = [self._place.kind.body(name, namespace=self._namespace, pods=_PODS, **self._run_policy) for name in names]
        wanted = self.running_pods + _PODS * len(names)
        await self._place.create_jobs(bodies)
        await self.follower.until(lambda: self.running_pods == wanted, what=lambda: f"{self.running_pods} running pods, not {wanted}")
        await self._all_are("Running", names)

    async def live(self, names: list[str]) -> float:
        """Create jobs and let them succeed; seconds from the success of the last pod until all jobs have succeeded."""
        await self.begin(names)
        await many(names, self._succeed)
        last = time.perf_counter()
        return await self._all_are("Succeeded", names) - last

    async def _succeed(self, name: str) -> None:
        """First the workers, then the one that decides."""
        pods = sorted(self._pods[name], key=lambda pod: self._place.kind.is_leader(pod.metadata.name))
        if len(pods) != _PODS:
            raise MeasureError(f"the job {name} has {len(pods)} pods, not {_PODS}")
        for pod in pods:
            await self._kubelet.ended(pod)

    async def _all_are(self, phase: str, names: list[str]) -> float:
        def count() -> int:
            return sum(self._phases.get(name) == phase for name in names)

        return await self.follower.until(lambda: count() == len(names), what=lambda: f"{count()} jobs {phase}, not {len(names)}")

    async def _run_one_after_another(self) -> None:
        while True:
            await self._kubelet.runs(await self._new_pods.get())
            self.running_pods += 1

    def _told_of_pod(self, event: WatchEvent) -> None:
        if event.type is WatchEventType.ADDED:
            pod = _read_pod(event.object)
            self._pods.setdefault(_owner(pod), []).append(pod)
            self._new_pods.put_nowait(pod)

    def _told_of_job(self, event: WatchEvent) -> None:
        job = _read_job(event.object)
        self.writes[job.metadata.name] += event.type is WatchEventType.MODIFIED
        self._phases[job.metadata.name] = _phase(bytes(job.status))


class _Status(msgspec.Struct):
    dlop: Record = Record()


_decode = msgspec.json.Decoder(_Status).decode


def _phase(status: bytes) -> str:
    """As the operator's own record tells it, which is the same for every kind."""
    phase = _decode(status or b"{}").dlop.phase
    if phase == Phase.FAILED:
        raise MeasureError(f"a job has failed: {status.decode()}")
    return phase


def _owner(found: Pod | PartialObject) -> str:
    owner = found.metadata.controller
    return "" if owner is None else owner.name


async def life_rows(place: Place, *, jobs: int, name: str) -> list[Row]:
    """A few jobs alone, then many at once, from creation to success."""
    say(f"the life of {_LONE_JOBS} jobs one by one, and of {jobs} at once")
    namespace = await place.make_namespace(name)
    lives = Lives(place, namespace)
    async with place.operator(namespace) as operator, lives.follower:
        running = asyncio.create_task(lives.run_pods())
        try:
            lone = await _lone_rows(place.client, operator, lives, namespace=namespace)
            return [*lone, *await _crowd_rows(operator, lives, jobs=jobs)]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _lone_rows(client: Client, operator: Operator, lives: Lives, *, namespace: str) -> list[Row]:
    names = [f"lone-{number}" for number in range(_LONE_JOBS)]
    for each in names:
        await lives.live([each])
    await operator.wait_quiet()
    events = (await client.list(EVENTS, namespace=namespace))["items"]
    if not events:
        raise MeasureError("no events have come: something is not looked at as it should be")
    counted = f"{_LONE_JOBS} jobs one by one"
    return [
        Row(f"{counted}, success: status writes a job, at most", max(lives.writes[each] for each in names), "writes", at_most=4),
        Row(f"{counted}, success: events a job", len(events) / _LONE_JOBS, "events"),
    ]


async def _crowd_rows(operator: Operator, lives: Lives, *, jobs: int) -> list[Row]:
    names = [f"job-{number}" for number in range(jobs)]
    cpu_before, began = operator.cpu_seconds, time.perf_counter()
    after_last_seconds = await lives.live(names)
    seconds, cpu_seconds = time.perf_counter() - began, operator.cpu_seconds - cpu_before
    await operator.wait_idle()
    writes = [lives.writes[each] for each in names]
    if min(writes) == 0:
        raise MeasureError("a job has succeeded without a status write: they are not counted as they should be")
    counted = f"{jobs} jobs of {_PODS} pods"
    return [
        Row(f"{counted}, creation to success: the whole", seconds, "s"),
        Row(f"{counted}, creation to success: CPU of the operator a pod", cpu_seconds / (jobs * _PODS) * 1e6, "µs of CPU"),
        Row(f"{counted}: from the last pod's success until all jobs'", after_last_seconds, "s"),
        Row(f"{counted}: status writes a job, on average", mean(writes), "writes", at_most=4),
        Row(f"{counted}: status writes a job, at most", max(writes), "writes", at_most=4),
    ]


async def first_child_rows(place: Place, *, jobs: int, name: str) -> list[Row]:
    """Jobs that come one by one: how soon does the first object of each appear?"""
    say(f"{jobs} jobs at {_GENTLE_JOBS_A_SECOND:g} a second: how soon is the first object of each there?")
    namespace = await place.make_namespace(name)
    first: dict[str, float] = {}

    def told(event: WatchEvent) -> None:
        first.setdefault(_owner(_read_partial(event.object)), time.perf_counter())

    async with (
        place.operator(namespace) as operator,
        Follower(place.client, namespace, {SERVICES: told}) as follower,
    ):
        await place.create_jobs([place.kind.body("warm-up", namespace=namespace, pods=_PODS)])
        await follower.until(lambda: "warm-up" in first, what=lambda: "no services")
        answered = await _create_gently(place, (f"job-{number}" for number in range(jobs)), namespace=namespace)
        await follower.until(lambda: first.keys() >= answered.keys(), what=lambda: f"services of {len(first)} jobs, not of {jobs}")
        await operator.wait_idle()
    # The operator may be faster than the answer to whoever created the job.
    waits = [max(0.0, first[each] - answered[each]) * 1e3 for each in answered]
    counted = f"{jobs} jobs at {_GENTLE_JOBS_A_SECOND:g} a second"
    return [
        Row(f"{counted}: from the answer to a job's POST to its first object, median", median(waits), "ms"),
        Row("the same, 99th of 100", quantiles(waits, n=100, method="inclusive")[98], "ms"),
    ]


async def _create_gently(place: Place, names: Iterable[str], *, namespace: str) -> dict[str, float]:
    """Create jobs at a steady pace; when each was answered."""
    answered: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, name in enumerate(names):
        await asyncio.sleep(max(0.0, began + number / _GENTLE_JOBS_A_SECOND - loop.time()))
        body = place.kind.body(name, namespace=namespace, pods=_PODS)
        await place.client.call("POST", place.kind.resource.path(namespace=namespace), body=body)
        answered[name] = time.perf_counter()
    return answered
