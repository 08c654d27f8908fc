"""Counters of jobs that other operators have under their own names, and the counters of dlop from which they are derived.

Each transition counts once, whatever conflicts, lost responses and restarts of the operator occur.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dlop.controller.metrics import ControllerMetrics


@dataclass(frozen=True, slots=True)
class JobCounter:
    """A counter, without the prefix of the operator in its name."""

    name: str
    description: str
    sources: tuple[str, ...]
    """The counters of dlop that it adds up."""

    def counts(self, metrics: ControllerMetrics) -> Iterator[tuple[str, str, int]]:
        """Counts by qualified resource name and namespace. A pair can occur several times."""
        return (entry for source in self.sources for entry in metrics.job_counts(source))


JOB_COUNTERS = (
    JobCounter("created", "Number of jobs created.", ("created",)),
    JobCounter("deleted", "Number of jobs deleted.", ("deleted",)),
    JobCounter("successful", "Number of jobs that succeeded.", ("succeeded",)),
    # The other operators report an invalid spec as a failure.
    JobCounter("failed", "Number of jobs that failed or were invalid.", ("failed", "invalid")),
    JobCounter("restarted", "Number of restarts of replicas after failures and disruptions.", ("restarted", "disrupted", "spot_disrupted")),
)
