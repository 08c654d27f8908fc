"""The CPU time of single decisions of the autoscaler, by number of jobs and nodes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from statistics import median

from bench_autoscaler_load import GIBIBYTE
from bench_report import Row, log_progress

from dlop.reconcile.autoscaler import Amounts, Cluster, ElasticJob, NodeCapacity, WaitingPod, decide

_MAX_LOAD = 0.97
_SHAPES = 16
"""Different requests. In real clusters, many jobs have the same."""
_JOBS_PER_BATCH = 1_000
_NODE = Amounts(cpu=16_000, memory=64 * GIBIBYTE, pods=110)
_OTHERS = Amounts(cpu=4_000, memory=8 * GIBIBYTE, pods=10)
_WAITING = Amounts(cpu=7_000, memory=8 * GIBIBYTE, pods=1)


@dataclass(frozen=True)
class Inputs:
    cluster: Cluster
    jobs: Sequence[ElasticJob]


def cost_rows(sizes: Sequence[int], *, runs: int) -> list[Row]:
    """`sizes` are numbers of jobs in ascending order."""
    fixed = sizes[len(sizes) // 2]
    rows = []
    for name, build, nodes, at_most in (
        ("growth, as many nodes as jobs", _idle, None, 1.5),
        (f"growth, {fixed:,} nodes", _idle, fixed, 1.5),
        ("growth, as many nodes as jobs, requests all different", _distinct, None, None),
        ("a waiting pod for every ten jobs, as many nodes as jobs", _contended, None, None),
    ):
        log_progress(f"decisions: {name}")
        costs = [_microseconds(build(size, nodes or size), runs=runs) for size in sizes]
        rows += [Row(f"{name}: decision about {size:,} jobs", cost, "µs per job") for size, cost in zip(sizes, costs, strict=True)]
        rows.append(Row(f"the same, {sizes[-1]:,} jobs relative to {sizes[0]:,}", costs[-1] / costs[0], "ratio", at_most=at_most))
    return rows


def _microseconds(inputs: Inputs, *, runs: int) -> float:
    """CPU time per job, median of several batches of decisions."""
    decisions = max(_JOBS_PER_BATCH // len(inputs.jobs), 1)
    seconds = []
    for _ in range(runs):
        started_at = time.process_time()
        for _ in range(decisions):
            decide(inputs.cluster, inputs.jobs, max_load=_MAX_LOAD)
        seconds.append(time.process_time() - started_at)
    return median(seconds) / decisions / len(inputs.jobs) * 1e6


def _idle(jobs: int, nodes: int, *, shapes: int = _SHAPES) -> Inputs:
    """All jobs have their minimum, and there is room for about five more replicas on each node."""
    used = {f"node-{number:05}": _OTHERS for number in range(nodes)}
    return Inputs(_cluster(used), [_job(number, _shape(number % shapes)) for number in range(jobs)])


def _distinct(jobs: int, nodes: int) -> Inputs:
    return _idle(jobs, nodes, shapes=jobs)


def _contended(jobs: int, nodes: int) -> Inputs:
    """Each job has four replicas more than its minimum. They fill the nodes, so that a waiting pod needs the room of several replicas."""
    names = [f"node-{number:05}" for number in range(nodes)]
    used = dict.fromkeys(names, Amounts(cpu=1_000, pods=10))
    elastic = []
    for number in range(jobs):
        each = Amounts(cpu=3_500, memory=GIBIBYTE, pods=1)
        placed = [names[(number + offset * 7) % nodes] for offset in range(4)]
        for name in placed:
            used[name] = used[name].plus(each)
        elastic.append(_job(number, each, placed))
    waiting = [WaitingPod(name=f"waiting-{number}", amounts=_WAITING) for number in range(jobs // 10)]
    return Inputs(_cluster(used, waiting), elastic)


def _cluster(used: dict[str, Amounts], waiting: Sequence[WaitingPod] = ()) -> Cluster:
    nodes = [NodeCapacity(name=name, allocatable=_NODE, used=amounts, labels={}) for name, amounts in used.items()]
    demand = Amounts()
    for amounts in (*used.values(), *(pod.amounts for pod in waiting)):
        demand = demand.plus(amounts)
    return Cluster(nodes=nodes, demand=demand, waiting=waiting)


def _job(number: int, amounts: Amounts, nodes: Sequence[str] = ()) -> ElasticJob:
    minimum = 1 + number % 3
    return ElasticJob(
        uid=f"uid-{number}",
        name=f"job-{number:05}",
        minimum=minimum,
        maximum=minimum + 2 + number % 9 + len(nodes),
        replicas=minimum + len(nodes),
        amounts=amounts,
        nodes=nodes,
    )


def _shape(number: int) -> Amounts:
    rng = Random(number)
    return Amounts(cpu=rng.randrange(500, 4_000, 100), memory=rng.randrange(1, 16) * GIBIBYTE + number, pods=1)
