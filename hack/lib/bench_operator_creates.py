"""Measures how fast the operator creates pods and services, alternating with a bare client that creates the same objects.

Jobs are created while the operator is stopped, so that their creation is not part of the result. The bare client sends the same
bodies as the operator. The objects of both are counted by the same watches, in separate namespaces.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Self

import orjson
from bench_operator_jobs import JobBody, Load, MeasuredKind, child_objects
from bench_operator_load import IN_FLIGHT, TIMEOUT_SECONDS, BenchTarget, Watcher
from bench_operator_process import Operator, Samples
from bench_processes import run_server
from bench_report import MeasureError, Row, log_progress
from real_cluster import RealCluster

from dlop.kube.client import Client, ClientLimits
from dlop.kube.errors import KubeError
from dlop.kube.http.transport import connect
from dlop.kube.resources import PODS, SERVICES
from dlop.kube.watch import WatchEvent, WatchEventType

_LIB = Path(__file__).parent
_WARM_UP_JOBS = 30
_SERVER_WARM_UP = Load(50, 3)
# Idle time before each measurement, in which the server finishes earlier work such as garbage collection.
_IDLE_SECONDS = 2.0
_LAST_EVENTS_SECONDS = 0.3
_POD_BYTES = range(2_000, 3_500)
# Far below the speed of any machine, so that a timeout means that no more objects are created.
_MINIMUM_OBJECTS_PER_SECOND = 50


@dataclass(frozen=True)
class Speed:
    """Objects per second, and CPU time per object of the process that created them."""

    per_second: float
    cpu_microseconds: float
    other_writes: float = 0.0
    """Number of other writes: status updates and events."""


SpeedPair = tuple[Speed, Speed]
"""Adjacent measurements of the operator and of the bare client."""


@contextlib.asynccontextmanager
async def bench_targets(cluster: RealCluster, kinds: Sequence[MeasuredKind]) -> AsyncIterator[list[BenchTarget]]:
    """One target for each kind, after a warm-up of the API server. They share a load generator.

    Raises:
        MeasureError: the load generator failed.
    """
    bare = [str(_LIB / "bench_bare_client.py"), cluster.url, cluster.token, str(cluster.ca_path)]
    client = Client(await connect(cluster.kubeconfig_path), limits=ClientLimits(writes_in_flight=IN_FLIGHT))
    try:
        with run_server(bare) as (process, _):
            targets = [BenchTarget(client, cluster.kubeconfig_path, cluster.folder, process, kind) for kind in kinds]
            for target in targets:
                await target.install()
                await measure_bare_client(target, _SERVER_WARM_UP, name="warm-up")
            yield targets
    except (KubeError, ExceptionGroup) as error:
        raise MeasureError(f"the load generator failed: {error!r}") from error
    finally:
        await client.close()


class Counts:
    """Counts watch events without decoding the objects."""

    def __init__(self) -> None:
        self._objects: Counter[WatchEventType] = Counter()
        self._jobs: Counter[WatchEventType] = Counter()

    def clear(self) -> None:
        self._objects.clear()
        self._jobs.clear()

    def count_object(self, event: WatchEvent) -> None:
        self._objects[event.type] += 1

    def count_job(self, event: WatchEvent) -> None:
        self._jobs[event.type] += 1

    @property
    def added(self) -> int:
        return self._objects[WatchEventType.ADDED]

    @property
    def status_updates(self) -> int:
        """Number of status updates of jobs. Nothing else of the jobs changes."""
        return self._jobs[WatchEventType.MODIFIED]

    def watcher(self, targets: Sequence[BenchTarget], namespace: str) -> Watcher:
        """Watches of the counted resources in one namespace."""
        jobs = {target.kind.resource: self.count_job for target in targets}
        return Watcher(targets[0].client, namespace, {PODS: self.count_object, SERVICES: self.count_object, **jobs})


async def create_rows(targets: Sequence[BenchTarget], load: Load, *, rounds: int, at_least: float, name: str) -> list[list[Row]]:
    """The clients and the kinds alternate, and so does which one starts, so that background load of the server affects all."""
    log_progress(f"{load.title}: {rounds} rounds of {load.objects} objects, alternating with the bare client")
    pairs: list[list[SpeedPair]] = [[] for _ in targets]
    for number in range(rounds):
        order = list(enumerate(targets))
        for column, target in reversed(order) if number % 2 else order:
            pairs[column].append(await _pair(target, load, name=f"{name}-{number}", operator_first=bool(number % 2)))
    return [_rows(kind_pairs, load, at_least=at_least) for kind_pairs in pairs]


def _rows(pairs: Sequence[SpeedPair], load: Load, *, at_least: float) -> list[Row]:
    rounds, ours, bare = len(pairs), [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    relative_speed = median(one.per_second / other.per_second for one, other in pairs)
    relative_cost = median(one.cpu_microseconds / other.cpu_microseconds for one, other in pairs)
    counted = f"{load.objects:,} objects, {rounds} rounds"
    return [
        Row(f"{load.title}: the operator, {counted}", median(speed.per_second for speed in ours), "objects per second"),
        Row(f"{load.title}: the bare client, {counted}", median(speed.per_second for speed in bare), "objects per second"),
        Row(f"{load.title}: the operator relative to the bare client", relative_speed, "ratio", at_least=at_least),
        Row(f"{load.title}: CPU of the operator per object", median(speed.cpu_microseconds for speed in ours), "µs of CPU"),
        Row(f"{load.title}: CPU of the bare client per object", median(speed.cpu_microseconds for speed in bare), "µs of CPU"),
        Row(f"{load.title}: CPU of the operator relative to the bare client", relative_cost, "ratio", at_most=1.4),
        Row(f"{load.title}: status updates and events", median(speed.other_writes for speed in ours) / load.jobs, "writes per job"),
    ]


async def _pair(target: BenchTarget, load: Load, *, name: str, operator_first: bool) -> SpeedPair:
    if operator_first:
        ours = await measure_operator(target, load, name=name)
        bare = await measure_bare_client(target, load, name=name)
    else:
        bare = await measure_bare_client(target, load, name=name)
        ours = await measure_operator(target, load, name=name)
    log_progress(
        f"  {target.kind.title}: dlop {ours.per_second:.0f}/s at {ours.cpu_microseconds:.0f} µs of CPU, "
        f"bare {bare.per_second:.0f}/s at {bare.cpu_microseconds:.0f} µs"
    )
    return ours, bare


# --- the bare client ------------------------------------------------------------------------------------------------------


async def measure_bare_client(target: BenchTarget, load: Load, *, name: str) -> Speed:
    """Creates the objects of the load in a new namespace."""
    namespace, counts = await target.create_namespace(f"{name}-bare"), Counts()
    async with counts.watcher([target], namespace) as watcher:
        return await measure_bare_batch(target, watcher, counts, bodies=load.bodies(target.kind, namespace), load=load)


async def measure_bare_batch(
    target: BenchTarget, watcher: Watcher, counts: Counts, *, bodies: Sequence[JobBody], load: Load, idle_seconds: float = _IDLE_SECONDS
) -> Speed:
    """Creates the objects of these jobs, but not the jobs themselves."""
    objects = [child for number, body in enumerate(bodies) for child in child_objects(target.kind, body, uid=_uid(number))]
    _require_realistic_size(len(orjson.dumps(objects[-1][1])))
    items = [(resource.path(namespace=body["metadata"]["namespace"]), body) for resource, body in objects]
    path = target.folder / "bare.json"
    path.write_bytes(orjson.dumps(items))
    await _send(target.bare, str(path))
    await asyncio.sleep(idle_seconds)
    creating = asyncio.create_task(_send(target.bare, "go"))
    started_at = time.perf_counter()
    finished_at = await watcher.until(lambda: counts.added >= load.objects, what=lambda: f"{counts.added} objects of the bare client")
    result = orjson.loads(await creating)
    if result["created"] != load.objects or counts.added != load.objects:
        raise MeasureError(
            f"the bare client created {result['created']} objects and the watches counted {counts.added}, expected {load.objects}"
        )
    return Speed(load.objects / (finished_at - started_at), result["cpu_seconds"] / load.objects * 1e6)


async def _send(program: subprocess.Popen[str], line: str) -> str:
    def exchange() -> str:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(f"{line}\n")
        program.stdin.flush()
        return program.stdout.readline()

    response = await asyncio.to_thread(exchange)
    if not response:
        raise MeasureError("the bare client has exited; see its output above")
    return response


def _uid(number: int) -> str:
    """The owner does not exist. This has no effect, because the control plane runs without the garbage collector."""
    return f"0f2b7a1e-1111-4c4c-8d8d-{number:012d}"


def _require_realistic_size(pod_bytes: int) -> None:
    if pod_bytes not in _POD_BYTES:
        raise MeasureError(f"a pod has {pod_bytes} bytes, which is not realistic")


# --- the operator ---------------------------------------------------------------------------------------------------------


async def measure_operator(target: BenchTarget, load: Load, *, name: str) -> Speed:
    """Creates the objects of the load in a new namespace, after a warm-up."""
    namespace = await target.create_namespace(name)
    counts = Counts()
    async with target.operator(namespace) as operator, counts.watcher([target], namespace) as watcher:
        await warm_up(target, operator, watcher, counts, namespace=namespace)
        return await measure_operator_batch(target, operator, watcher, counts, bodies=load.bodies(target.kind, namespace), load=load)


async def warm_up(target: BenchTarget, operator: Operator, watcher: Watcher, counts: Counts, *, namespace: str) -> None:
    """Run a few jobs, so that code is loaded and connections are open."""
    load = Load(_WARM_UP_JOBS, 3)
    await target.create_jobs(load.bodies(target.kind, namespace, name=f"warm-up-{target.kind.title.lower()}"))
    await watcher.until(lambda: counts.added >= load.objects, what=lambda: f"{counts.added} objects of the warm-up")
    await operator.wait_idle()
    counts.clear()


async def measure_operator_batch(
    target: BenchTarget,
    operator: Operator,
    watcher: Watcher,
    counts: Counts,
    *,
    bodies: Sequence[JobBody],
    load: Load,
    idle_seconds: float = _IDLE_SECONDS,
) -> Speed:
    """Create jobs while the operator is stopped, then continue it and measure the creation of their objects."""
    before = await operator.samples()
    operator.pause()
    await target.create_jobs(bodies)
    await asyncio.sleep(idle_seconds)
    started = CreationStart(before, operator.cpu_seconds, time.perf_counter())  # a stopped operator does not answer
    operator.resume()
    return await measure_creation(operator, watcher, counts, load=load, started=started)


@dataclass(frozen=True)
class CreationStart:
    """The state of the operator before it creates objects."""

    samples: Samples
    cpu_seconds: float
    at: float
    """The time, from `time.perf_counter()`."""

    @classmethod
    async def now(cls, operator: Operator) -> Self:
        return cls(await operator.samples(), operator.cpu_seconds, time.perf_counter())


async def measure_creation(operator: Operator, watcher: Watcher, counts: Counts, *, load: Load, started: CreationStart) -> Speed:
    """Wait until the operator has created all objects of the load and has written the statuses."""
    finished_at = await watcher.until(
        lambda: counts.added >= load.objects,
        what=lambda: f"{counts.added} objects of the operator",
        timeout_seconds=max(TIMEOUT_SECONDS, load.objects / _MINIMUM_OBJECTS_PER_SECOND),
    )
    # Include delayed status updates and events. Do not poll the metrics here, because serving them costs CPU time.
    await watcher.until(lambda: counts.status_updates >= load.jobs, what=lambda: f"{counts.status_updates} status updates")
    await asyncio.sleep(_LAST_EVENTS_SECONDS)
    cpu_seconds = operator.cpu_seconds - started.cpu_seconds
    await operator.wait_idle()
    before, after = started.samples, await operator.samples()
    failed = after.failed_writes - before.failed_writes
    if counts.added != load.objects or failed:
        raise MeasureError(f"{counts.added} objects were created, expected {load.objects}; {failed:.0f} writes failed")
    other_writes = after.writes - before.writes - load.objects
    return Speed(load.objects / (finished_at - started.at), cpu_seconds / load.objects * 1e6, other_writes)
