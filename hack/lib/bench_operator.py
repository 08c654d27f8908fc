"""`hack/bench operator`: what the operator can do and what it costs, on the real API server, against a bare client in the same run.

Prints a table; with `--json FILE` also writes the figures. The exit code is 0 whatever the figures are, and 1 only if
something could not be measured or the counts do not add up. The operator runs as people run it, as `python -m dlop run`
in a process of its own; how its CPU time and memory are read needs Linux. With `--kind`, jobs of that kind are measured, in
turns with those of MXNet, which stand beside them, and the two are compared; the API server then puts off collecting garbage.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop
from bench_operator_creates import bare_speed, create_rows
from bench_operator_finished import finished_rows
from bench_operator_jobs import MXNET, OTHER_KINDS, Load, MeasuredKind
from bench_operator_kinds import kind_rows
from bench_operator_life import first_child_rows, life_rows
from bench_operator_load import IN_FLIGHT, Place
from bench_operator_many import many_rows
from bench_operator_restart import restart_rows
from bench_processes import serving
from bench_rows import MeasureError, Row, parser, tell
from real_cluster import RealCluster

from dlop.kube.client import Client, Limits
from dlop.kube.errors import KubeError
from dlop.kube.http.transport import connect

_LIB = Path(__file__).parent
_WARM_UP = Load(50, 3)
# The API server inherits this. Whenever it collects its garbage, the kind whose turn it is would pay for that of both.
_UNDISTURBED = {"GOGC": "off", "GOMEMLIMIT": str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3)}


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    jobs: int = 300
    large_job_pods: int = 1_000
    rounds: int = 6
    pairs: int = 80
    pair_jobs: int = 50
    gentle_jobs: int = 200
    finished_jobs: int = 5_000
    rest_seconds: float = 20.0
    cold_jobs: int = 2_000


QUICK = Scale(jobs=20, large_job_pods=50, rounds=1, pairs=2, pair_jobs=10, gentle_jobs=10, finished_jobs=50, rest_seconds=2.0, cold_jobs=20)
"""Only to see that everything can be measured: the figures mean little."""

Scenario = Callable[[Sequence[Place], Scale], Awaitable[list[list[Row]]]]
"""Measures the same for each kind; the rows of each."""


async def _jobs(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return await create_rows(places, Load(scale.jobs, 3), rounds=scale.rounds, at_least=0.80, name="jobs")


async def _large_job(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return await create_rows(places, Load(1, scale.large_job_pods), rounds=scale.rounds, at_least=0.85, name="large-job")


async def _kinds(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return [await kind_rows(places, Load(scale.pair_jobs, 3), pairs=scale.pairs, name="kinds")]


async def _restart(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return [await restart_rows(place, pods=scale.large_job_pods, name="restart") for place in places]


async def _life(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return [await life_rows(place, jobs=scale.jobs, name="life") for place in places]


async def _first_child(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return [await first_child_rows(place, jobs=scale.gentle_jobs, name="first-child") for place in places]


async def _finished(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return [await finished_rows(place, jobs=scale.finished_jobs, rest_seconds=scale.rest_seconds, name="finished") for place in places]


async def _cold_start(places: Sequence[Place], scale: Scale) -> list[list[Row]]:
    return [await many_rows(place, jobs=scale.cold_jobs) for place in places]


SCENARIOS: Mapping[str, Scenario] = {
    "jobs": _jobs,
    "large-job": _large_job,
    "kinds": _kinds,
    "restart": _restart,
    "life": _life,
    "first-child": _first_child,
    "finished": _finished,
    "cold-start": _cold_start,
}


def main(arguments: Sequence[str]) -> int:
    """Measure, print, and return the exit code."""
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    wanted = [scenario for name, scenario in SCENARIOS.items() if name in (options.only or SCENARIOS)]
    kinds: list[MeasuredKind] = [MXNET]
    if options.kind is not None:
        kinds.insert(0, OTHER_KINDS[options.kind])
        os.environ |= _UNDISTURBED

    def measured() -> list[Row]:
        with RealCluster.started() as cluster:
            return uvloop.run(measure(cluster, wanted, scale, kinds=kinds))

    return tell(measured, json_path=options.json, beside="" if options.kind is None else MXNET.title)


def _parser() -> argparse.ArgumentParser:
    found = parser("operator", __doc__)
    found.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="NAME", help=f"only these of: {', '.join(SCENARIOS)}")
    found.add_argument("--kind", choices=OTHER_KINDS, help="measure jobs of this kind, with those of MXNet beside them")
    return found


async def measure(cluster: RealCluster, scenarios: Sequence[Scenario], scale: Scale, *, kinds: Sequence[MeasuredKind]) -> list[Row]:
    """Every figure, one after the other: they share the machine. Those of a second kind stand beside those of the first."""
    try:
        async with _places(cluster, kinds) as places:
            measured = [await scenario(places, scale) for scenario in scenarios]
    except (KubeError, ExceptionGroup) as error:
        raise MeasureError(f"the load could not do its part: {error!r}") from error
    return [row for columns in measured for row in _side_by_side(*columns)]


def _side_by_side(rows: list[Row], others: list[Row] | None = None) -> list[Row]:
    if others is None:
        return rows
    return [replace(row, beside=other.value) for row, other in zip(rows, others, strict=True)]


@contextlib.asynccontextmanager
async def _places(cluster: RealCluster, kinds: Sequence[MeasuredKind]) -> AsyncIterator[list[Place]]:
    bare = [str(_LIB / "bench_operator_bare.py"), cluster.url, cluster.token, str(cluster.ca_path)]
    client = Client(await connect(cluster.kubeconfig_path), limits=Limits(writes_in_flight=IN_FLIGHT))
    try:
        with serving(bare) as (process, _):
            places = [Place(client, cluster.kubeconfig_path, cluster.folder, process, kind) for kind in kinds]
            for place in places:
                await place.install()
                await bare_speed(place, _WARM_UP, name="warm-up")
            yield places
    finally:
        await client.close()
