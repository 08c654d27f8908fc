"""The cost of each ScalePlan, by the number of plans that wait for one job.

The plans are created while the job is suspended, so that all of them wait. Then the job is resumed, and the operator executes them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from bench_operator_jobs import JobBody
from bench_operator_load import BenchTarget
from bench_operator_process import Operator
from bench_plans_job import OPERATOR_FLAGS, ElasticRun, scaling_plan
from bench_report import MeasureError, Row, log_progress

_WORKERS = 2
# Idle time after plans were created, in which the operator ends its passes. Polling its metrics would cost CPU time.
_IDLE_SECONDS = 1.0
_LAST_EVENTS_SECONDS = 0.3


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of one plan."""

    received_cpu_microseconds: float
    """From the creation of the plans until all of them wait."""
    cpu_microseconds: float
    """From the end of the suspension until all plans were executed and deleted."""
    wall_microseconds: float
    writes: float


@dataclass(frozen=True)
class Shape:
    """A sequence of plans."""

    title: str
    name: str
    """The name of its namespace."""
    build: Callable[[int], list[JobBody]]
    created_per_plan: float
    """How many workers the plans create, on average."""


SHAPES = (
    Shape(
        "plans that scale 2 workers to 3 and back",
        "scaling",
        lambda plans: [scaling_plan(_WORKERS + 1 - number % 2) for number in range(plans)],
        0.5,
    ),
    Shape("empty plans", "empty", lambda plans: [{} for _ in range(plans)], 0),
)


async def waiting_rows(target: BenchTarget, *, sizes: Sequence[int], rounds: int, plans_per_round: int) -> list[Row]:
    """`sizes` are even numbers of plans in ascending order.

    Small batches are repeated until a round has about `plans_per_round` plans, because their results vary more.
    """
    return [
        row for shape in SHAPES for row in await _shape_rows(target, shape, sizes=sizes, rounds=rounds, plans_per_round=plans_per_round)
    ]


async def _shape_rows(target: BenchTarget, shape: Shape, *, sizes: Sequence[int], rounds: int, plans_per_round: int) -> list[Row]:
    log_progress(f"{', '.join(f'{size:,}' for size in sizes)} waiting {shape.title}: {rounds} rounds")
    namespace = await target.create_namespace(shape.name)
    costs: dict[int, list[Cost]] = {size: [] for size in sizes}
    run = ElasticRun(target, namespace)
    async with target.operator(namespace, *OPERATOR_FLAGS) as operator, run.watcher:
        await run.start(workers=_WORKERS)
        await _measure(run, operator, shape, plans=sizes[len(sizes) // 2])  # warm-up
        for number in range(rounds):
            for size in sizes:
                batches = [await _measure(run, operator, shape, plans=size) for _ in range(max(1, plans_per_round // size))]
                costs[size] += batches
                cpu = median(cost.cpu_microseconds for cost in batches)
                wall = median(cost.wall_microseconds for cost in batches)
                log_progress(f"  round {number + 1}: {size:,} plans at {cpu:.0f} µs of CPU, {wall:.0f} µs")
    return _rows(shape, costs)


async def _measure(run: ElasticRun, operator: Operator, shape: Shape, *, plans: int) -> Cost:
    await run.set_suspended(suspended=True)
    await asyncio.sleep(_IDLE_SECONDS)
    executed, created = run.executed, len(run.created)
    received_from = operator.cpu_seconds
    await run.create_plans(shape.build(plans))
    await asyncio.sleep(_IDLE_SECONDS)
    received_cpu = operator.cpu_seconds - received_from
    if run.executed != executed:
        raise MeasureError(f"{run.executed - executed} plans were executed while the job was suspended")
    before = await operator.samples()
    cpu_before, started_at = operator.cpu_seconds, time.perf_counter()
    await run.set_suspended(suspended=False)
    finished_at = await run.wait_executed(executed + plans)
    await asyncio.sleep(_LAST_EVENTS_SECONDS)
    cpu_seconds = operator.cpu_seconds - cpu_before
    after = await operator.samples()
    _require_effects(run, shape, plans=plans, created=len(run.created) - created)
    return Cost(
        received_cpu_microseconds=received_cpu / plans * 1e6,
        cpu_microseconds=cpu_seconds / plans * 1e6,
        wall_microseconds=(finished_at - started_at) / plans * 1e6,
        writes=(after.writes - before.writes) / plans,
    )


def _require_effects(run: ElasticRun, shape: Shape, *, plans: int, created: int) -> None:
    """Raise MeasureError if a plan had another effect than it should have, because the results would be invalid."""
    expected = plans * shape.created_per_plan
    if created != expected or len(run.workers) != _WORKERS:
        raise MeasureError(
            f"{plans} {shape.title} created {created} workers and left {len(run.workers)}, expected {expected:g} and {_WORKERS}"
        )


def _rows(shape: Shape, costs: dict[int, list[Cost]]) -> list[Row]:
    sizes = list(costs)
    received = {size: median(cost.received_cpu_microseconds for cost in costs[size]) for size in sizes}
    cpu = {size: median(cost.cpu_microseconds for cost in costs[size]) for size in sizes}
    wall = {size: median(cost.wall_microseconds for cost in costs[size]) for size in sizes}
    largest = sizes[-1]
    rows = []
    for size in sizes:
        name = f"{size:,} waiting {shape.title}"
        rows += [
            Row(f"{name}: CPU of the operator per plan", cpu[size], "µs of CPU"),
            Row(f"{name}: time per plan", wall[size], "µs wall time"),
            Row(f"{name}: writes of the operator per plan", median(cost.writes for cost in costs[size]), "writes"),
            Row(f"{name}: CPU of the operator per plan until it waits", received[size], "µs of CPU"),
        ]
    for size in sizes[:-1]:
        compared = f"{shape.title}, {largest:,} relative to {size:,}"
        rows += [
            Row(f"{compared}: CPU of the operator per plan", cpu[largest] / cpu[size], "ratio", at_most=1.5),
            Row(f"{compared}: time per plan", wall[largest] / wall[size], "ratio", at_most=1.5),
        ]
    return rows
