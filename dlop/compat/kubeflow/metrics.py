"""Job counters under the names and labels of the Kubeflow training operator, so that dashboards and alerts continue to work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.compat.job_counters import JOB_COUNTERS, JobCounter
from dlop.controller.metrics import ControllerMetrics

PREFIX = "training_operator_jobs_"
_LABELS = ("job_namespace", "framework")


class KubeflowMetrics(Collector):
    def __init__(self, metrics: ControllerMetrics, *, metric_labels: Mapping[str, str]) -> None:
        """`metric_labels` has the kinds to count, by qualified resource name. It may grow later."""
        self._metrics = metrics
        self._metric_labels = metric_labels

    def collect(self) -> Iterator[Metric]:
        for counter in JOB_COUNTERS:
            family = CounterMetricFamily(f"{PREFIX}{counter.name}", counter.description, labels=_LABELS)
            for labels, count in self._counts(counter).items():
                family.add_metric(labels, count)
            yield family

    def _counts(self, counter: JobCounter) -> Counter[tuple[str, str]]:
        """Sums by namespace and framework label."""
        counts: Counter[tuple[str, str]] = Counter()
        for resource, namespace, count in counter.counts(self._metrics):
            if resource in self._metric_labels:
                counts[namespace, self._metric_labels[resource]] += count
        return counts
