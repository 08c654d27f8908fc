"""`hack/bench autoscaler`: measures the decisions of the autoscaler, on a simulated clock and without a cluster.

First the CPU time of single decisions, by number of jobs and nodes. Then a day of a cluster with elastic jobs and with pods of other users,
drawn from a seed: the same day with the autoscaler of dlop, with the one of the TrainingJob operator (the column "upstream"), and with
none. Both are Python code here, so their CPU times can be compared.

Prints a table; with `--json FILE` also writes the results to a file. The exit code is 1 if a measurement failed, or if dlop has scaled a
job up and down, or down and up, while nothing else has changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bench_autoscaler_cost import cost_rows
from bench_autoscaler_day import Day, SimJob
from bench_autoscaler_load import Load, draw_load
from bench_autoscaler_measures import mean, percentile
from bench_autoscaler_scalers import DlopScaler, NoScaler, UpstreamScaler
from bench_report import Row, build_parser, log_progress, run_benchmark


@dataclass(frozen=True)
class Scale:
    """The size of each measurement."""

    sizes: tuple[int, ...] = (10, 100, 1_000)
    runs: int = 9
    nodes: int = 100
    jobs: int = 200
    background: int = 80


QUICK = Scale(sizes=(5, 10, 20), runs=1, nodes=20, jobs=40, background=16)
"""Checks that all measurements work. The results are not meaningful."""

_OSCILLATIONS = "changes in the opposite direction in a steady state"


def main(arguments: Sequence[str]) -> int:
    parser = build_parser("autoscaler", __doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the simulated day (default: %(default)s)")
    options = parser.parse_args(arguments)
    scale = QUICK if options.quick else Scale()
    rows: list[Row] = []

    def run() -> list[Row]:
        rows.extend([*cost_rows(scale.sizes, runs=scale.runs), *_day_rows(scale, seed=options.seed)])
        return rows

    code = run_benchmark(run, json_path=options.json, needs_control_plane=False, reference="upstream")
    oscillations = next((row.value for row in rows if row.name == _OSCILLATIONS), 0)
    if oscillations:
        print(f"hack/bench: the autoscaler must not oscillate, but it has reversed {oscillations:g} changes", file=sys.stderr)
    return 1 if oscillations else code


def _day_rows(scale: Scale, *, seed: int) -> list[Row]:
    load = draw_load(seed=seed, nodes=scale.nodes, jobs=scale.jobs, background=scale.background)
    day = f"a day of {scale.jobs} elastic jobs on {scale.nodes} nodes (seed {seed})"
    log_progress(f"{day}, with dlop")
    dlop = _run_day(load, DlopScaler())
    log_progress(f"{day}, with the TrainingJob operator")
    upstream = _run_day(load, UpstreamScaler(seed=seed))
    log_progress(f"{day}, without an autoscaler")
    none = _run_day(load, NoScaler())
    rows = [
        Row(row.name, row.value, row.unit, at_most=row.at_most, reference=other.value)
        for row, other in zip(_result_rows(*dlop), _result_rows(*upstream), strict=True)
    ]
    kept = ("CPU in use by", "from arrival to the minimum", "from arrival to completion")
    rows += [Row(f"without an autoscaler: {row.name}", row.value, row.unit) for row in _result_rows(*none) if row.name.startswith(kept)]
    return rows


def _run_day(load: Load, scaler: DlopScaler | UpstreamScaler | NoScaler) -> tuple[Day, DlopScaler | UpstreamScaler | NoScaler]:
    day = Day(load, scaler)
    day.run()
    return day, scaler


def _result_rows(day: Day, scaler: DlopScaler | UpstreamScaler | NoScaler) -> list[Row]:
    elastic, others = ([job for job in day.ended if job.spec.is_elastic is is_elastic] for is_elastic in (True, False))
    cpu, memory, gpu = day.integrals.utilisation
    waits = _waits(elastic)
    completion = [job.ended_at - job.spec.arrival for job in elastic if job.ended_at is not None]
    actions, decisions = day.actions, scaler.decisions
    return [
        Row("CPU in use by jobs that make progress, mean", cpu * 100, "%"),
        Row("memory in use by jobs that make progress, mean", memory * 100, "%"),
        Row("GPUs in use by jobs that make progress, mean", gpu * 100, "%"),
        Row("fairness among elastic jobs that make progress, mean", day.integrals.mean_fairness, "Jain's index"),
        Row("from arrival to the minimum of an elastic job running, mean", mean(waits), "s"),
        Row("from arrival to the minimum of an elastic job running, p95", percentile(waits, 0.95), "s"),
        Row("from arrival to the pods of another user running, mean", mean(_waits(others)), "s"),
        Row("from arrival to completion of an elastic job, mean", mean(completion), "s"),
        Row("changes up", actions.ups, "changes"),
        Row("changes down", actions.downs, "changes"),
        Row(_OSCILLATIONS, len(actions.oscillations), "changes", at_most=0),
        Row("replicas removed before they ran", actions.in_vain, "replicas"),
        Row("decisions", len(decisions.passes), "decisions"),
        Row("passes of the loop of one decision, maximum", max(decisions.passes, default=0), "passes"),
        Row("CPU time of all decisions", decisions.cpu_seconds, "s of CPU"),
    ]


def _waits(jobs: Sequence[SimJob]) -> list[float]:
    """From arrival until the minimum is running."""
    return [job.started_at - job.spec.arrival for job in jobs if job.started_at is not None]
