"""`hack/bench kube`: measures the client machinery and the embedded API server, and compares the results with goals.

Prints a table; with `--json FILE` also writes the results to a file. The exit code is 1 only if a measurement failed, not if a
goal is missed. Requires Linux, because CPU times and memory of other processes are read from /proc.
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
from bench_creates import bare_create, bare_session, compare_with_bare_client, measure_rate
from bench_pods import stored_pod
from bench_processes import cpu_seconds, run_server
from bench_report import MeasureError, Row, build_parser, log_progress, run_benchmark
from bench_watch_server import WatchScenario
from cluster_credentials import write_kubeconfig
from real_cluster import RealCluster

_LIB = Path(__file__).parent
_MEASURE_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True)
class Scale:
    """The size of each measurement."""

    events: int = 20_000
    pods: int = 10_000
    relists: int = 3
    rounds: int = 8
    round_creates: int = 400
    embedded_creates: int = 2_000
    many_objects: int = 20_000


QUICK = Scale(events=2_000, pods=1_000, relists=1, rounds=2, round_creates=50, embedded_creates=200, many_objects=1_000)
"""Checks that all measurements work. The results are not meaningful."""


def main(arguments: Sequence[str]) -> int:
    options = build_parser("kube", __doc__).parse_args(arguments)

    def run() -> list[Row]:
        with RealCluster.started() as cluster:
            return measure(cluster, QUICK if options.quick else Scale())

    return run_benchmark(run, json_path=options.json)


def measure(cluster: RealCluster, scale: Scale) -> list[Row]:
    """Measures sequentially, because the measurements share the machine."""
    return [*_informer_rows(cluster, scale), *_client_rows(cluster, scale), *_embedded_rows(scale)]


# --- the informer --------------------------------------------------------------------------------------------------------


def _informer_rows(cluster: RealCluster, scale: Scale) -> Iterator[Row]:
    size = len(msgspec.json.encode(stored_pod("bench-1", resource_version="1000")))
    log_progress(f"informer: {scale.events} watch events of {size} bytes over TLS")
    [cpu] = _informer("cpu", cluster, WatchScenario(pods=100, events=scale.events))
    yield Row("a watch event of a 3 KB pod through the informer", cpu, "µs of CPU", at_most=40)
    for streams_lists, how in ((True, "streamed"), (False, "in pages")):
        log_progress(f"informer: {scale.relists} relists of {scale.pods} pods, {how}")
        scenario = WatchScenario(pods=scale.pods, relists=scale.relists, streams_lists=streams_lists)
        wall, busy = _informer("stall", cluster, scenario)
        yield Row(f"loop stall, {scale.pods:,} pods listed {how}", wall, "ms wall time", at_most=50)
        yield Row("the same in CPU time of the process", busy, "ms of CPU", at_most=50)
    log_progress(f"informer: memory of {scale.pods} pods")
    [memory] = _informer("memory", cluster, WatchScenario(pods=scale.pods))
    yield Row("a cached pod", memory, "KB resident", at_most=8)


def _informer(measure: str, cluster: RealCluster, scenario: WatchScenario) -> list[float]:
    certificates = cluster.ca_path.parent
    arguments = [str(_LIB / "bench_watch_server.py"), json.dumps(asdict(scenario)), str(certificates)]
    with run_server(arguments) as (_, port):
        kubeconfig = cluster.folder / "feed.kubeconfig"
        ca_pem = cluster.ca_path.read_bytes()
        write_kubeconfig(kubeconfig, url=f"https://127.0.0.1:{port}", ca_pem=ca_pem, user="bench", token="any")
        changes = scenario.events + scenario.relists * scenario.pods
        command = [sys.executable, str(_LIB / "bench_informer.py"), measure, str(kubeconfig), str(scenario.pods), str(changes)]
        try:
            process = subprocess.run(command, capture_output=True, text=True, timeout=_MEASURE_TIMEOUT_SECONDS, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise MeasureError(f"cannot measure {measure} of the informer: {error}\n{error.stderr!s}") from error
        return [float(word) for word in process.stdout.split()]


# --- creates -------------------------------------------------------------------------------------------------------------


def _client_rows(cluster: RealCluster, scale: Scale) -> Iterator[Row]:
    log_progress(f"client: {scale.rounds} rounds of {scale.round_creates} creates on the real API server, alternating with a bare client")
    pairs = uvloop.run(compare_with_bare_client(cluster, rounds=scale.rounds, count=scale.round_creates, log=log_progress))
    ratio = median(ours.per_second / bare.per_second for ours, bare in pairs)
    yield Row("creates through the client, real API server", median(ours.per_second for ours, _ in pairs), "per second")
    yield Row("creates through bare aiohttp + orjson", median(bare.per_second for _, bare in pairs), "per second")
    yield Row("the client relative to the bare client", ratio, "ratio", at_least=0.95)
    yield Row("a create through the client", median(ours.cpu_microseconds for ours, _ in pairs), "µs of CPU")
    yield Row("a create through bare aiohttp + orjson", median(bare.cpu_microseconds for _, bare in pairs), "µs of CPU")


def _embedded_rows(scale: Scale) -> list[Row]:
    with run_server([str(_LIB / "bench_embedded.py")]) as (_, server), _leave_first_core_free():
        few, many = uvloop.run(_embedded_rates(**json.loads(server), scale=scale))
    count = f"{scale.many_objects:,}"
    return [
        Row("embedded server, one core, 200 objects: creates", few.per_second, "per second", at_least=2_500),
        Row(f"embedded server, one core, {count} objects: creates", many.per_second, "per second", at_least=2_500),
        Row("the same in CPU time of the server, 200 objects", few.per_cpu_second, "per CPU second", at_least=2_500),
        Row(f"the same in CPU time of the server, {count} objects", many.per_cpu_second, "per CPU second", at_least=2_500),
        Row(f"{count} objects relative to 200 objects, in CPU time", many.per_cpu_second / few.per_cpu_second, "ratio", at_least=0.95),
    ]


@dataclass(frozen=True)
class _ServerRate:
    per_second: float
    per_cpu_second: float


async def _embedded_rates(*, url: str, token: str, pid: int, scale: Scale) -> tuple[_ServerRate, _ServerRate]:
    names = (f"bench-{number}" for number in itertools.count())
    async with bare_session(None) as session:
        create = bare_create(session, url, token)

        async def measure_server() -> _ServerRate:
            before = cpu_seconds(pid)
            client_rate = await measure_rate(create, names, count=scale.embedded_creates)
            return _ServerRate(client_rate.per_second, scale.embedded_creates / (cpu_seconds(pid) - before))

        log_progress(f"embedded server: {scale.embedded_creates} creates with few objects")
        await measure_rate(create, names, count=200)
        few = await measure_server()
        log_progress(f"embedded server: {scale.embedded_creates} creates with {scale.many_objects} objects")
        await measure_rate(create, names, count=max(1, scale.many_objects - scale.embedded_creates - 200))
        return few, await measure_server()


@contextlib.contextmanager
def _leave_first_core_free() -> Iterator[None]:
    """Reserve the first core for the measured server."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores - {min(cores)} or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
