"""Job counters under the names and labels of the Kubeflow training operator, so that dashboards and alerts continue to work.

They are derived from dlop's own counters. Each transition counts once, whatever conflicts, lost responses and restarts of
the operator occur.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.controller.metrics import ControllerMetrics

PREFIX = "training_operator_jobs_"
_DESCRIPTIONS = {
    "created": "Number of jobs created.",
    "deleted": "Number of jobs deleted.",
    "successful": "Number of jobs that succeeded.",
    "failed": "Number of jobs that failed or were invalid.",
    "restarted": "Number of restarts of replicas after failures and disruptions.",
}
"""By metric name without the prefix."""
_SOURCES = {
    "created": ("created",),
    "deleted": ("deleted",),
    "successful": ("succeeded",),
    # The Kubeflow training operator reports an invalid spec as a failure.
    "failed": ("failed", "invalid"),
    "restarted": ("restarted", "disrupted", "spot_disrupted"),
}
_LABELS = ("job_namespace", "framework")


class KubeflowMetrics(Collector):
    def __init__(self, metrics: ControllerMetrics, *, metric_labels: Mapping[str, str]) -> None:
        """`metric_labels` has the kinds to count, by qualified resource name. It may grow later."""
        self._metrics = metrics
        self._metric_labels = metric_labels

    def collect(self) -> Iterator[Metric]:
        for name, description in _DESCRIPTIONS.items():
            family = CounterMetricFamily(f"{PREFIX}{name}", description, labels=_LABELS)
            for labels, count in self._counts(_SOURCES[name]).items():
                family.add_metric(labels, count)
            yield family

    def _counts(self, sources: tuple[str, ...]) -> Counter[tuple[str, str]]:
        """Sums by namespace and framework label."""
        counts: Counter[tuple[str, str]] = Counter()
        for source in sources:
            for kind, namespace, count in self._metrics.job_counts(source):
                if kind in self._metric_labels:
                    counts[namespace, self._metric_labels[kind]] += count
        return counts
