"""`hack/bench kube`: what the Kubernetes plumbing and the embedded API server cost, against the goals they were built to.

Prints a table; with `--json FILE` also writes the figures. The exit code is 0 whatever the figures are, and 1 only if
something could not be measured. Times and sizes of other processes are read from /proc: it needs Linux.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import msgspec
import uvloop
from bench_creates import against_bare, bare_create, bare_session, rate
from bench_feed import Feed
from bench_pods import stored_pod
from bench_processes import cpu_seconds, serving
from bench_rows import MeasureError, Row, parser, say, tell
from cluster_credentials import write_kubeconfig
from real_cluster import RealCluster

_LIB = Path(__file__).parent
_MEASURE_WITHIN_SECONDS = 300.0


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    events: int = 20_000
    pods: int = 10_000
    relists: int = 3
    rounds: int = 8
    round_creates: int = 400
    embedded_creates: int = 2_000
    many_objects: int = 20_000


QUICK = Scale(events=2_000, pods=1_000, relists=1, rounds=2, round_creates=50, embedded_creates=200, many_objects=1_000)
"""Only to see that everything can be measured: the figures mean little."""


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    options = parser("kube", __doc__).parse_args(arguments)

    def measured() -> list[Row]:
        with RealCluster.started() as cluster:
            return measure(cluster, QUICK if options.quick else Scale())

    return tell(measured, json_path=options.json)


def measure(cluster: RealCluster, scale: Scale) -> list[Row]:
    """Every figure, one after the other: they share the machine."""
    return [*_informer_rows(cluster, scale), *_client_rows(cluster, scale), *_embedded_rows(scale)]


# --- the informer --------------------------------------------------------------------------------------------------------


def _informer_rows(cluster: RealCluster, scale: Scale) -> Iterator[Row]:
    size = len(msgspec.json.encode(stored_pod("bench-1", resource_version="1000")))
    say(f"informer: {scale.events} watch events of {size} bytes over TLS")
    [cpu] = _informer("cpu", cluster, Feed(pods=100, events=scale.events))
    yield Row("a watch event of a 3 KB pod through the informer", cpu, "µs of CPU", at_most=40)
    for streams_lists, how in ((True, "streamed"), (False, "in pages")):
        say(f"informer: {scale.relists} relists of {scale.pods} pods, {how}")
        feed = Feed(pods=scale.pods, relists=scale.relists, streams_lists=streams_lists)
        waited, busy = _informer("stall", cluster, feed)
        yield Row(f"loop stall, {scale.pods:,} pods listed {how}", waited, "ms by the clock", at_most=50)
        yield Row("the same without other programs' share", busy, "ms of CPU", at_most=50)
    say(f"informer: memory of {scale.pods} pods")
    [memory] = _informer("memory", cluster, Feed(pods=scale.pods))
    yield Row("a cached pod", memory, "KB resident", at_most=8)


def _informer(what: str, cluster: RealCluster, feed: Feed) -> list[float]:
    certificates = cluster.ca_path.parent
    arguments = [str(_LIB / "bench_feed.py"), json.dumps(asdict(feed)), str(certificates)]
    with serving(arguments) as (_, port):
        kubeconfig = cluster.folder / "feed.kubeconfig"
        ca_pem = cluster.ca_path.read_bytes()
        write_kubeconfig(kubeconfig, url=f"https://127.0.0.1:{port}", ca_pem=ca_pem, user="bench", token="any")
        changes = feed.events + feed.relists * feed.pods
        command = [sys.executable, str(_LIB / "bench_informer.py"), what, str(kubeconfig), str(feed.pods), str(changes)]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, timeout=_MEASURE_WITHIN_SECONDS, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise MeasureError(f"the informer's {what} could not be measured: {error}\n{error.stderr!s}") from error
        return [float(word) for word in answer.stdout.split()]


# --- creates -------------------------------------------------------------------------------------------------------------


def _client_rows(cluster: RealCluster, scale: Scale) -> Iterator[Row]:
    say(f"client: {scale.rounds} rounds of {scale.round_creates} creates on the real API server, in turns with a bare client")
    pairs = uvloop.run(against_bare(cluster, rounds=scale.rounds, count=scale.round_creates, say=say))
    ratio = median(ours.per_second / bare.per_second for ours, bare in pairs)
    yield Row("creates through the client, real API server", median(ours.per_second for ours, _ in pairs), "a second")
    yield Row("creates through bare aiohttp + orjson", median(bare.per_second for _, bare in pairs), "a second")
    yield Row("the client against the bare one", ratio, "ratio", at_least=0.95)
    yield Row("a create through the client", median(ours.cpu_microseconds for ours, _ in pairs), "µs of CPU")
    yield Row("a create through bare aiohttp + orjson", median(bare.cpu_microseconds for _, bare in pairs), "µs of CPU")


def _embedded_rows(scale: Scale) -> list[Row]:
    with serving([str(_LIB / "bench_embedded.py")]) as (_, place), _off_the_first_core():
        few, many = uvloop.run(_embedded_rates(**json.loads(place), scale=scale))
    count = f"{scale.many_objects:,}"
    return [
        Row("embedded server, one core, 200 objects: creates", few.per_second, "a second", at_least=2_500),
        Row(f"embedded server, one core, {count} objects: creates", many.per_second, "a second", at_least=2_500),
        Row("the same without other programs' share, 200 objects", few.per_cpu_second, "a CPU second", at_least=2_500),
        Row(f"the same without other programs' share, {count} objects", many.per_cpu_second, "a CPU second", at_least=2_500),
        Row(f"{count} objects against 200, in CPU", many.per_cpu_second / few.per_cpu_second, "ratio", at_least=0.95),
    ]


@dataclass(frozen=True)
class _ServerRate:
    per_second: float
    per_cpu_second: float


async def _embedded_rates(*, url: str, token: str, pid: int, scale: Scale) -> tuple[_ServerRate, _ServerRate]:
    names = (f"bench-{number}" for number in itertools.count())
    async with bare_session(None) as session:
        create = bare_create(session, url, token)

        async def measured() -> _ServerRate:
            before = cpu_seconds(pid)
            found = await rate(create, names, count=scale.embedded_creates)
            return _ServerRate(found.per_second, scale.embedded_creates / (cpu_seconds(pid) - before))

        say(f"embedded server: {scale.embedded_creates} creates with few objects")
        await rate(create, names, count=200)
        few = await measured()
        say(f"embedded server: filling it up to {scale.many_objects} objects, then {scale.embedded_creates} creates more")
        await rate(create, names, count=max(1, scale.many_objects - scale.embedded_creates - 200))
        return few, await measured()


@contextlib.contextmanager
def _off_the_first_core() -> Iterator[None]:
    """Leave the first core to the server that is being measured."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores - {min(cores)} or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
