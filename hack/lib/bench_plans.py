"""`hack/bench plans`: measures how the operator executes ScalePlans of ElasticJobs, on the real API server.

First the cost of each plan, by the number of plans that wait for one job. Then a job whose workers nearly all fail at once. Then the CPU
time of the planner alone, by the number of workers.

Prints a table; with `--json FILE` also writes the results to a file. The exit code is 1 only if a measurement failed, not if a goal is
missed. The operator is a separate process, `python -m dlop run`. Requires Linux, because its CPU time is read from the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import uvloop
from bench_operator_creates import bench_targets
from bench_operator_jobs import MXNET
from bench_plans_changes import changes_rows
from bench_plans_job import ELASTIC
from bench_plans_replacement import replacement_rows
from bench_plans_waiting import waiting_rows
from bench_report import Row, build_parser, run_benchmark
from real_cluster import RealCluster


@dataclass(frozen=True)
class Scale:
    """The size of each measurement."""

    plans: tuple[int, ...] = (10, 100, 1_000)
    rounds: int = 3
    plans_per_round: int = 50
    workers: int = 32
    lost: int = 30
    losses: int = 7
    members: tuple[int, ...] = (10, 1_000)
    runs: int = 9


QUICK = Scale(plans=(2, 4, 10), rounds=1, plans_per_round=2, workers=4, lost=3, losses=1, members=(5, 10), runs=1)
"""Checks that all measurements work. The results are not meaningful."""


def main(arguments: Sequence[str]) -> int:
    options = build_parser("plans", __doc__).parse_args(arguments)
    scale = QUICK if options.quick else Scale()

    def run() -> list[Row]:
        with RealCluster.started() as cluster:
            return uvloop.run(measure(cluster, scale))

    return run_benchmark(run, json_path=options.json)


async def measure(cluster: RealCluster, scale: Scale) -> list[Row]:
    """Measures sequentially, because the measurements share the machine."""
    async with bench_targets(cluster, [MXNET]) as (warm,):  # the warm-up creates the objects of MXJobs
        target = replace(warm, kind=ELASTIC)
        await target.install()
        return [
            *await waiting_rows(target, sizes=scale.plans, rounds=scale.rounds, plans_per_round=scale.plans_per_round),
            *await replacement_rows(target, workers=scale.workers, lost=scale.lost, rounds=scale.losses),
            *changes_rows(scale.members, runs=scale.runs),
        ]
