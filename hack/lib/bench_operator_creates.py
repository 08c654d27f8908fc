"""How fast the operator creates what jobs need, and at what cost, in turns with a bare client that creates the same.

Jobs are created while the operator is held, so that making them is no part of any figure. The bare client sends the
bytes that the operator would send. The same watches count the objects of both, each in a namespace of its own.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import orjson
from bench_operator_jobs import JobBody, Load, objects_of
from bench_operator_load import Follower, Place
from bench_operator_process import Operator
from bench_rows import MeasureError, Row, say

from dlop.kube.resources import PODS, SERVICES
from dlop.kube.watch import WatchEvent, WatchEventType

_WARM_UP_JOBS = 30
# For both alike: the server comes to an end with what it was asked before, of which collecting garbage is a part.
_REST_SECONDS = 2.0
_LAST_EVENTS_SECONDS = 0.3
_POD_BYTES = range(2_000, 3_500)


@dataclass(frozen=True)
class Speed:
    """How fast objects came, and what each cost the process that created them."""

    per_second: float
    cpu_microseconds: float
    other_writes: float = 0.0
    """How many writes besides the creates there were meanwhile: statuses, events."""


Pair = tuple[Speed, Speed]
"""The operator, and the bare client right before or after it."""


class Counts:
    """Counts objects as watches show them, without looking into them."""

    def __init__(self) -> None:
        self._objects: Counter[WatchEventType] = Counter()
        self._jobs: Counter[WatchEventType] = Counter()

    def clear(self) -> None:
        """Begin again."""
        self._objects.clear()
        self._jobs.clear()

    def told(self, event: WatchEvent) -> None:
        """An object has come, changed or gone."""
        self._objects[event.type] += 1

    def told_of_job(self, event: WatchEvent) -> None:
        """A job has come, changed or gone."""
        self._jobs[event.type] += 1

    @property
    def added(self) -> int:
        """How many objects have come."""
        return self._objects[WatchEventType.ADDED]

    @property
    def statuses(self) -> int:
        """How often the status of a job has changed: nothing else changes here of jobs."""
        return self._jobs[WatchEventType.MODIFIED]

    def follower(self, places: Sequence[Place], namespace: str) -> Follower:
        """Watches of all that is counted, in one namespace."""
        jobs = {place.kind.resource: self.told_of_job for place in places}
        return Follower(places[0].client, namespace, {PODS: self.told, SERVICES: self.told, **jobs})


async def create_rows(places: Sequence[Place], load: Load, *, rounds: int, at_least: float, name: str) -> list[list[Row]]:
    """Both clients take turns, and in turns go first, and so do the kinds: whatever the server does meanwhile happens to all."""
    say(f"{load.title}: {rounds} rounds of {load.objects} objects, in turns with the bare client")
    pairs: list[list[Pair]] = [[] for _ in places]
    for number in range(rounds):
        order = list(enumerate(places))
        for column, place in reversed(order) if number % 2 else order:
            pairs[column].append(await _pair(place, load, name=f"{name}-{number}", operator_first=bool(number % 2)))
    return [_rows(found, load, at_least=at_least) for found in pairs]


def _rows(pairs: Sequence[Pair], load: Load, *, at_least: float) -> list[Row]:
    rounds, ours, bare = len(pairs), [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    speed = median(one.per_second / other.per_second for one, other in pairs)
    cost = median(one.cpu_microseconds / other.cpu_microseconds for one, other in pairs)
    counted = f"{load.objects:,} objects, {rounds} rounds"
    return [
        Row(f"{load.title}: the operator, {counted}", median(each.per_second for each in ours), "objects a second"),
        Row(f"{load.title}: the bare client, {counted}", median(each.per_second for each in bare), "objects a second"),
        Row(f"{load.title}: the operator against the bare client", speed, "ratio", at_least=at_least),
        Row(f"{load.title}: CPU of the operator an object", median(each.cpu_microseconds for each in ours), "µs of CPU"),
        Row(f"{load.title}: CPU of the bare client an object", median(each.cpu_microseconds for each in bare), "µs of CPU"),
        Row(f"{load.title}: CPU of the operator against the bare client's", cost, "ratio", at_most=1.4),
        Row(f"{load.title}: statuses and events meanwhile", median(each.other_writes for each in ours) / load.jobs, "writes a job"),
    ]


async def _pair(place: Place, load: Load, *, name: str, operator_first: bool) -> Pair:
    if operator_first:
        ours = await operator_speed(place, load, name=name)
        bare = await bare_speed(place, load, name=name)
    else:
        bare = await bare_speed(place, load, name=name)
        ours = await operator_speed(place, load, name=name)
    say(
        f"  {place.kind.title}: dlop {ours.per_second:.0f}/s at {ours.cpu_microseconds:.0f} µs of CPU, "
        f"bare {bare.per_second:.0f}/s at {bare.cpu_microseconds:.0f} µs"
    )
    return ours, bare


# --- the bare client ------------------------------------------------------------------------------------------------------


async def bare_speed(place: Place, load: Load, *, name: str) -> Speed:
    """How fast the bare client creates the same objects, in a namespace of its own."""
    namespace, counts = await place.make_namespace(f"{name}-bare"), Counts()
    async with counts.follower([place], namespace) as follower:
        return await bare_released(place, follower, counts, bodies=load.bodies(place.kind, namespace), load=load)


async def bare_released(
    place: Place, follower: Follower, counts: Counts, *, bodies: Sequence[JobBody], load: Load, rest_seconds: float = _REST_SECONDS
) -> Speed:
    """How fast the bare client creates the objects of these jobs, which are not there themselves."""
    objects = [found for number, body in enumerate(bodies) for found in objects_of(place.kind, body, uid=_uid(number))]
    _demand_size(len(orjson.dumps(objects[-1][1])))
    items = [(resource.path(namespace=body["metadata"]["namespace"]), body) for resource, body in objects]
    path = place.folder / "bare.json"
    path.write_bytes(orjson.dumps(items))
    await _tell(place.bare, str(path))
    await asyncio.sleep(rest_seconds)
    answering = asyncio.create_task(_tell(place.bare, "go"))
    began = time.perf_counter()
    ended = await follower.until(lambda: counts.added >= load.objects, what=lambda: f"{counts.added} objects of the bare client")
    done = orjson.loads(await answering)
    if done["created"] != load.objects or counts.added != load.objects:
        raise MeasureError(f"the bare client has created {done['created']} objects and {counts.added} have come, not {load.objects}")
    return Speed(load.objects / (ended - began), done["cpu_seconds"] / load.objects * 1e6)


async def _tell(program: subprocess.Popen[str], line: str) -> str:
    def exchange() -> str:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(f"{line}\n")
        program.stdin.flush()
        return program.stdout.readline()

    answer = await asyncio.to_thread(exchange)
    if not answer:
        raise MeasureError("the bare client has ended; it says why above")
    return answer


def _uid(number: int) -> str:
    """There is no such job, and nobody looks: the control plane is run without its garbage collector."""
    return f"0f2b7a1e-1111-4c4c-8d8d-{number:012d}"


def _demand_size(pod_bytes: int) -> None:
    if pod_bytes not in _POD_BYTES:
        raise MeasureError(f"a pod has {pod_bytes} bytes: it is not what a pod of a real job is like")


# --- the operator ---------------------------------------------------------------------------------------------------------


async def operator_speed(place: Place, load: Load, *, name: str) -> Speed:
    """How fast the operator creates the objects of jobs, from when it is let go until the last one is there."""
    namespace = await place.make_namespace(name)
    counts = Counts()
    async with place.operator(namespace) as operator, counts.follower([place], namespace) as follower:
        await warm_up(place, operator, follower, counts, namespace=namespace)
        return await released(place, operator, follower, counts, bodies=load.bodies(place.kind, namespace), load=load)


async def warm_up(place: Place, operator: Operator, follower: Follower, counts: Counts, *, namespace: str) -> None:
    """A few jobs: code is loaded and connections are open, as they are in an operator that has run for more than a second."""
    load = Load(_WARM_UP_JOBS, 3)
    await place.create_jobs(load.bodies(place.kind, namespace, name=f"warm-up-{place.kind.title.lower()}"))
    await follower.until(lambda: counts.added >= load.objects, what=lambda: f"{counts.added} objects to warm up with")
    await operator.wait_idle()
    counts.clear()


async def released(
    place: Place,
    operator: Operator,
    follower: Follower,
    counts: Counts,
    *,
    bodies: Sequence[JobBody],
    load: Load,
    rest_seconds: float = _REST_SECONDS,
) -> Speed:
    """How fast an operator that was held while these jobs were made creates their objects."""
    before = await operator.samples()
    operator.pause()
    await place.create_jobs(bodies)
    await asyncio.sleep(rest_seconds)
    cpu_before, began = operator.cpu_seconds, time.perf_counter()
    operator.go_on()
    ended = await follower.until(lambda: counts.added >= load.objects, what=lambda: f"{counts.added} objects of the operator")
    # What it has put off meanwhile counts too. It is not asked whether it is done, for answering would count as well.
    await follower.until(lambda: counts.statuses >= load.jobs, what=lambda: f"{counts.statuses} statuses")
    await asyncio.sleep(_LAST_EVENTS_SECONDS)
    cpu_seconds = operator.cpu_seconds - cpu_before
    await operator.wait_idle()
    after = await operator.samples()
    refused = after.unanswered_or_refused - before.unanswered_or_refused
    if counts.added != load.objects or refused:
        raise MeasureError(f"{counts.added} objects have come instead of {load.objects}, and {refused:.0f} writes came to nothing")
    others = after.writes - before.writes - load.objects
    return Speed(load.objects / (ended - began), cpu_seconds / load.objects * 1e6, others)
