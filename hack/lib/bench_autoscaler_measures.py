"""What is measured on a simulated day."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from dlop.reconcile.autoscaler import Amounts


def fairness(fulfilments: Sequence[float]) -> float:
    """Jain's index: 1 if all are equal, and 1/n if one job has everything."""
    squares = math.fsum(value * value for value in fulfilments)
    return math.fsum(fulfilments) ** 2 / (len(fulfilments) * squares) if squares else 1.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of the values does not exceed; 0 without values."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)] if values else 0.0


def mean(values: Iterable[float]) -> float:
    """0 without values."""
    numbers = list(values)
    return fmean(numbers) if numbers else 0.0


@dataclass
class Decisions:
    """The decisions of one autoscaler."""

    passes: list[int] = field(default_factory=list)
    """Of the loop of each decision."""
    cpu_seconds: float = 0.0


@dataclass
class Actions:
    """Changes of the number of replicas of jobs."""

    ups: int = 0
    downs: int = 0
    oscillations: list[str] = field(default_factory=list)
    """Names of jobs, one for each change in the opposite direction of the last one in the same steady state."""
    in_vain: int = 0
    """Replicas that were removed before they ran."""
    _last: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Direction and steady state of the last change, by job."""

    def count(self, job: str, change: int, *, steady_state: int) -> None:
        """A steady state ends when a job or pods of other users arrive or end, or when a pod that a job needs gets a node."""
        direction = 1 if change > 0 else -1
        if direction > 0:
            self.ups += 1
        else:
            self.downs += 1
        if self._last.get(job) == (-direction, steady_state):
            self.oscillations.append(job)
        self._last[job] = (direction, steady_state)


@dataclass
class Integrals:
    """Time-weighted means."""

    total: Amounts
    seconds: float = 0.0
    used: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    fairness: float = 0.0
    fairness_seconds: float = 0.0

    def add(self, seconds: float, *, used: Amounts, fairness: float | None) -> None:
        """Count a period in which jobs with these requests made progress."""
        self.seconds += seconds
        for index in range(3):
            self.used[index] += seconds * used[index]
        if fairness is not None:
            self.fairness += seconds * fairness
            self.fairness_seconds += seconds

    @property
    def utilisation(self) -> tuple[float, ...]:
        """Of CPU, memory and GPUs, by jobs that make progress."""
        return tuple(used / (self.seconds * total) for used, total in zip(self.used, self.total, strict=False))

    @property
    def mean_fairness(self) -> float:
        return self.fairness / self.fairness_seconds
