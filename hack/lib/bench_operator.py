"""`hack/bench operator`: measures the operator on the real API server, compared with a bare client in the same run.

Prints a table; with `--json FILE` also writes the results to a file. The exit code is 1 only if a measurement failed or the counts
are inconsistent, not if a goal is missed. The operator is a separate process, `python -m dlop run`. Requires Linux, because its CPU
time and memory are read from the kernel. With `--kind`, jobs of that kind are measured, alternating with MXJobs as the reference.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import uvloop
from bench_operator_cold_start import cold_start_rows
from bench_operator_compare import compare_rows
from bench_operator_creates import bench_targets, create_rows
from bench_operator_finished import finished_rows
from bench_operator_jobs import MXNET, OTHER_KINDS, Load, MeasuredKind
from bench_operator_lifecycle import first_child_rows, lifecycle_rows
from bench_operator_load import BenchTarget
from bench_operator_reaction import reaction_rows
from bench_operator_restart import restart_rows
from bench_report import Row, build_parser, run_benchmark
from real_cluster import RealCluster

# The API server inherits this. Without garbage collection its cost cannot be attributed to the wrong kind.
_NO_GARBAGE_COLLECTION = {"GOGC": "off", "GOMEMLIMIT": str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3)}


@dataclass(frozen=True)
class Scale:
    """The size of each measurement."""

    jobs: int = 300
    large_job_pods: int = 1_000
    rounds: int = 6
    pairs: int = 80
    pair_jobs: int = 50
    paced_jobs: int = 200
    reaction_jobs: int = 40
    finished_jobs: int = 5_000
    idle_seconds: float = 20.0
    cold_jobs: int = 2_000


QUICK = Scale(
    jobs=20,
    large_job_pods=50,
    rounds=1,
    pairs=2,
    pair_jobs=10,
    paced_jobs=10,
    reaction_jobs=2,
    finished_jobs=50,
    idle_seconds=2.0,
    cold_jobs=20,
)
"""Checks that all measurements work. The results are not meaningful."""

Scenario = Callable[[Sequence[BenchTarget], Scale], Awaitable[list[list[Row]]]]
"""Returns one list of rows for each kind."""


async def _jobs(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return await create_rows(targets, Load(scale.jobs, 3), rounds=scale.rounds, at_least=0.80, name="jobs")


async def _large_job(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return await create_rows(targets, Load(1, scale.large_job_pods), rounds=scale.rounds, at_least=0.85, name="large-job")


async def _kinds(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await compare_rows(targets, Load(scale.pair_jobs, 3), pairs=scale.pairs, name="kinds")]


async def _restart(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await restart_rows(target, pods=scale.large_job_pods, name="restart") for target in targets]


async def _lifecycle(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await lifecycle_rows(target, jobs=scale.jobs, name="lifecycle") for target in targets]


async def _reaction(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await reaction_rows(target, jobs=scale.reaction_jobs, name="reaction") for target in targets]


async def _first_child(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await first_child_rows(target, jobs=scale.paced_jobs, name="first-child") for target in targets]


async def _finished(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await finished_rows(target, jobs=scale.finished_jobs, idle_seconds=scale.idle_seconds, name="finished") for target in targets]


async def _cold_start(targets: Sequence[BenchTarget], scale: Scale) -> list[list[Row]]:
    return [await cold_start_rows(target, jobs=scale.cold_jobs) for target in targets]


SCENARIOS: Mapping[str, Scenario] = {
    "jobs": _jobs,
    "large-job": _large_job,
    "kinds": _kinds,
    "restart": _restart,
    "lifecycle": _lifecycle,
    "first-child": _first_child,
    "reaction": _reaction,
    "finished": _finished,
    "cold-start": _cold_start,
}


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    scenarios = [scenario for name, scenario in SCENARIOS.items() if name in (options.only or SCENARIOS)]
    kinds: list[MeasuredKind] = [MXNET]
    if options.kind is not None:
        kinds.insert(0, OTHER_KINDS[options.kind])
        os.environ |= _NO_GARBAGE_COLLECTION

    def run() -> list[Row]:
        with RealCluster.started() as cluster:
            return uvloop.run(measure(cluster, scenarios, scale, kinds=kinds))

    return run_benchmark(run, json_path=options.json, reference="" if options.kind is None else MXNET.title)


def _parser() -> argparse.ArgumentParser:
    parser = build_parser("operator", __doc__)
    parser.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="NAME", help=f"scenarios to run, of: {', '.join(SCENARIOS)}")
    parser.add_argument("--kind", choices=OTHER_KINDS, help="measure jobs of this kind, with MXJobs as the reference")
    return parser


async def measure(cluster: RealCluster, scenarios: Sequence[Scenario], scale: Scale, *, kinds: Sequence[MeasuredKind]) -> list[Row]:
    """Measures sequentially, because the measurements share the machine. The second kind is the reference of the first."""
    async with bench_targets(cluster, kinds) as targets:
        results = [await scenario(targets, scale) for scenario in scenarios]
    return [row for columns in results for row in _with_reference(*columns)]


def _with_reference(rows: list[Row], reference_rows: list[Row] | None = None) -> list[Row]:
    if reference_rows is None:
        return rows
    return [replace(row, reference=other.value) for row, other in zip(rows, reference_rows, strict=True)]
