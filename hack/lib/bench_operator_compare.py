"""Compares the speed of two kinds of jobs in one operator, in many short alternating turns.

Background load varies more than the kinds differ, so adjacent turns are compared. The result is the median of all pairs with its
95 % confidence interval. The bare client is measured in the same way, because larger objects are slower for any client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import comb
from statistics import median

from bench_operator_creates import Counts, Speed, measure_bare_batch, measure_operator_batch, warm_up
from bench_operator_jobs import Load
from bench_operator_load import BenchTarget
from bench_operator_process import running_operator
from bench_report import Row, log_progress

_CONFIDENCE = 0.95
# Tolerances of the comparison: speed and CPU time.
_MINIMUM_SPEED, _MAXIMUM_COST = 0.95, 1.05
_QUIET_SECONDS, _IDLE_SECONDS = 0.3, 0.5

Measure = Callable[[BenchTarget, int], Awaitable[Speed]]
"""Measures the turn of this number with a kind."""
TurnPair = tuple[Speed, Speed]
"""Adjacent turns of the two kinds."""


async def compare_rows(targets: Sequence[BenchTarget], load: Load, *, pairs: int, name: str) -> list[Row]:
    """The first kind relative to the second; empty if there is only one."""
    if len(targets) == 1:
        return []
    one, other = targets
    title = f"{one.kind.title} relative to {other.kind.title}, {pairs} pairs of {load.title}"
    log_progress(f"{title}, alternating")
    ours, bare = await _measure_both_clients(one, other, load, pairs=pairs, name=name)
    speeds, costs, bare_speeds, bare_costs = _speeds(ours), _costs(ours), _speeds(bare), _costs(bare)
    return [
        Row(f"{title}: objects per second, {_format_interval(speeds)}", median(speeds), "ratio", at_least=_MINIMUM_SPEED),
        Row(f"{title}: the same for the bare client, {_format_interval(bare_speeds)}", median(bare_speeds), "ratio"),
        Row(f"{title}: CPU per object, {_format_interval(costs)}", median(costs), "ratio", at_most=_MAXIMUM_COST),
        Row(f"{title}: the same for the bare client, {_format_interval(bare_costs)}", median(bare_costs), "ratio"),
    ]


async def _measure_both_clients(
    one: BenchTarget, other: BenchTarget, load: Load, *, pairs: int, name: str
) -> tuple[list[TurnPair], list[TurnPair]]:
    """The turns of the operator and of the bare client, in separate namespaces."""
    namespace, bare_namespace = await one.create_namespace(name), await one.create_namespace(f"{name}-bare")
    counts, bare_counts = Counts(), Counts()
    kinds = ",".join(target.kind.resource.qualified_name for target in (one, other))
    async with (
        running_operator(one.kubeconfig, kind=kinds, namespace=namespace, folder=one.folder) as operator,
        counts.watcher([one, other], namespace) as watcher,
        bare_counts.watcher([one, other], bare_namespace) as bare_watcher,
    ):

        async def turn(target: BenchTarget, number: int) -> Speed:
            await operator.wait_quiet(seconds=_QUIET_SECONDS)  # do not count the events of the other kind
            counts.clear()
            bodies = load.bodies(target.kind, namespace, name=_job_name(target, number))
            return await measure_operator_batch(target, operator, watcher, counts, bodies=bodies, load=load, idle_seconds=_IDLE_SECONDS)

        async def bare_turn(target: BenchTarget, number: int) -> Speed:
            bare_counts.clear()
            bodies = load.bodies(target.kind, bare_namespace, name=_job_name(target, number))
            return await measure_bare_batch(target, bare_watcher, bare_counts, bodies=bodies, load=load, idle_seconds=_IDLE_SECONDS)

        for target in (one, other):
            await warm_up(target, operator, watcher, counts, namespace=namespace)
        ours: list[TurnPair] = []
        bare: list[TurnPair] = []
        for number in range(pairs):
            ours.append(await _pair(turn, one, other, number))
            bare.append(await _pair(bare_turn, one, other, number))
            log_progress(f"  {number + 1}: {_describe(one, ours[-1][0])}, {_describe(other, ours[-1][1])}")
        return ours, bare


async def _pair(turn: Measure, one: BenchTarget, other: BenchTarget, number: int) -> TurnPair:
    """Which kind goes first alternates."""
    if number % 2:
        second = await turn(other, number)
        return await turn(one, number), second
    return await turn(one, number), await turn(other, number)


def _job_name(target: BenchTarget, number: int) -> str:
    return f"{target.kind.title.lower()}-{number}"


def _describe(target: BenchTarget, speed: Speed) -> str:
    return f"{target.kind.title} {speed.per_second:.0f}/s at {speed.cpu_microseconds:.0f} µs of CPU"


def _speeds(turns: Sequence[TurnPair]) -> list[float]:
    return [one.per_second / other.per_second for one, other in turns]


def _costs(turns: Sequence[TurnPair]) -> list[float]:
    return [one.cpu_microseconds / other.cpu_microseconds for one, other in turns]


def _format_interval(ratios: Sequence[float]) -> str:
    interval = median_bounds(ratios)
    return "too few for an interval" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def median_bounds(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % confidence interval of the median, by the sign test; None if there are too few ratios.

    Each ratio is below or above the true median with equal probability.
    """
    ordered, count = sorted(ratios), len(ratios)
    outside, chance = 0, 1 / 2**count
    while 2 * chance <= 1 - _CONFIDENCE:
        outside += 1
        chance += comb(count, outside) / 2**count
    return (ordered[outside - 1], ordered[-outside]) if outside else None
