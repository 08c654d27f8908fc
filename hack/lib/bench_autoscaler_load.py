"""The cluster and the jobs of a simulated day, drawn from a seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from dlop.reconcile.autoscaler import Amounts

GIBIBYTE = 1 << 30
DAY_SECONDS = 86_400.0
_CPU_NODE = Amounts(cpu=16_000, memory=64 * GIBIBYTE, gpu=0, pods=110)
_GPU_NODE = _CPU_NODE._replace(gpu=4)
_GPU_NODE_SHARE = 0.2
_GPU_JOB_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """A job of the day. Its replicas share a fixed amount of work, so that it ends earlier with more of them."""

    name: str
    arrival: float
    """In seconds from the start of the day."""
    minimum: int
    maximum: int
    amounts: Amounts
    """Requests of one replica."""
    work: float
    """In seconds of one replica."""
    is_background: bool = False
    """Whether these are pods of other users of the cluster, which the operator does not manage."""

    @property
    def is_elastic(self) -> bool:
        return self.minimum < self.maximum


@dataclass(frozen=True)
class Load:
    """The nodes and what arrives during the day."""

    nodes: dict[str, Amounts]
    """Allocatable amounts by name."""
    jobs: Sequence[JobSpec]
    """Sorted by arrival."""


def draw_load(*, seed: int, nodes: int, jobs: int, background: int) -> Load:
    """A day on which the minimum of all jobs fits most of the time, but the maximum does not."""
    rng = Random(seed)
    gpu_nodes = round(nodes * _GPU_NODE_SHARE)
    drawn = [_elastic_job(rng, f"job-{number:03}") for number in range(jobs)]
    drawn += [_background_pods(rng, f"background-{number:03}") for number in range(background)]
    return Load(
        nodes={f"node-{number:03}": _GPU_NODE if number < gpu_nodes else _CPU_NODE for number in range(nodes)},
        jobs=sorted(drawn, key=lambda job: (job.arrival, job.name)),
    )


def _elastic_job(rng: Random, name: str) -> JobSpec:
    minimum = rng.randint(1, 4)
    maximum = minimum * rng.randint(3, 7)
    hours = min(rng.lognormvariate(math.log(3.0), 0.6), 8.0)
    return JobSpec(
        name=name,
        arrival=_draw_arrival(rng),
        minimum=minimum,
        maximum=maximum,
        amounts=_gpu_replica(rng) if rng.random() < _GPU_JOB_SHARE else _cpu_replica(rng),
        work=hours * 3600 * (minimum + maximum) / 2,
    )


def _cpu_replica(rng: Random) -> Amounts:
    cpu = rng.choice([1, 2, 2, 3, 4, 4, 6, 8])
    return Amounts(cpu=cpu * 1000, memory=cpu * rng.choice([2, 3, 4, 6]) * GIBIBYTE, gpu=0, pods=1)


def _gpu_replica(rng: Random) -> Amounts:
    return Amounts(cpu=rng.choice([2, 3, 4]) * 1000, memory=rng.choice([8, 12, 16]) * GIBIBYTE, gpu=1, pods=1)


def _background_pods(rng: Random, name: str) -> JobSpec:
    pods, cpu = rng.randint(5, 25), rng.choice([1, 2, 4, 8])
    return JobSpec(
        name=name,
        arrival=_draw_arrival(rng),
        minimum=pods,
        maximum=pods,
        amounts=Amounts(cpu=cpu * 1000, memory=cpu * 3 * GIBIBYTE, gpu=0, pods=1),
        work=pods * rng.uniform(0.5, 4.0) * 3600,
        is_background=True,
    )


def _draw_arrival(rng: Random) -> float:
    """More jobs arrive in the middle of the day."""
    while True:
        arrival = rng.uniform(0, DAY_SECONDS)
        if rng.random() < 0.8 - 0.2 * math.cos(2 * math.pi * arrival / DAY_SECONDS):
            return arrival
