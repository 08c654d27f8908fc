"""The counters of Kubeflow's operator, under their old names and labels, so that dashboards and alerts go on working.

They are other words for what dlop counts anyway, and are as right: each thing once, whatever conflicts, lost answers and restarts
of the operator there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.controller.metrics import ControllerMetrics

PREFIX = "training_operator_jobs_"
MEANINGS = {
    "created": "How many jobs were seen for the first time.",
    "deleted": "How many jobs are gone, whoever has deleted them.",
    "successful": "How many jobs have succeeded.",
    "failed": "How many jobs have failed, for whatever reason.",
    "restarted": "How often replicas were started again, after failures and disruptions.",
}
"""By the last word of the name."""
_SOURCES = {
    "created": ("created",),
    "deleted": ("deleted",),
    "successful": ("succeeded",),
    # A spec that cannot be run is told as a failure too.
    "failed": ("failed", "invalid"),
    "restarted": ("restarted", "disrupted"),
}
_LABELS = ("job_namespace", "framework")


class KubeflowMetrics(Collector):
    """The counters of jobs, as Kubeflow's operator named them."""

    def __init__(self, counts: ControllerMetrics, *, framework_labels: Mapping[str, str]) -> None:
        """`framework_labels` has the kinds that are counted, by the names of their resources. It may grow."""
        self._counts = counts
        self._framework_labels = framework_labels

    def collect(self) -> Iterator[Metric]:
        """The families, as of now."""
        for what, meaning in MEANINGS.items():
            family = CounterMetricFamily(f"{PREFIX}{what}", meaning, labels=_LABELS)
            for labels, count in self._counted(_SOURCES[what]).items():
                family.add_metric(labels, count)
            yield family

    def _counted(self, sources: tuple[str, ...]) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for source in sources:
            for kind, namespace, count in self._counts.jobs(source):
                if kind in self._framework_labels:
                    found[namespace, self._framework_labels[kind]] += count
        return found
