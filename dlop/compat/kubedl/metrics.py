"""Metrics under KubeDL's names, so that dashboards and alerts continue to work.

Counters and histograms are derived from dlop's own. The number of running and pending jobs is kept up to date by events of the job
informers. KubeDL's histograms also had the labels name, namespace and uid; here they have only the kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.compat.job_counters import JOB_COUNTERS
from dlop.controller.metrics import ControllerMetrics
from dlop.kube.cache import CacheChange
from dlop.kube.metrics import Histogram
from dlop.kube.objects import CustomObject

GROUP = "training.kubedl.io"
PREFIX = "kubedl_jobs_"
_GAUGES = {"running": "Number of running jobs.", "pending": "Number of jobs that have not started yet."}
_WAITING = frozenset({"Created", "Queuing", "Blocked"})
"""The conditions that a pending job may have."""


class _Condition(msgspec.Struct):
    type: Any = ""
    status: Any = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


_decode = msgspec.json.Decoder(_Status).decode


class JobGauges:
    """Number of running and pending jobs by kind."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[str, str]] = {}
        """Qualified resource name and gauge by the uid of the job."""
        self._jobs: Counter[tuple[str, str]] = Counter()
        """Number of jobs by the values of `_states`."""

    def count(self, resource: str, gauge: str) -> int:
        return self._jobs[resource, gauge]

    def handler(self, resource: str) -> Callable[[CacheChange[CustomObject]], None]:
        """A handler for the jobs of a kind with this qualified resource name."""

        def handle(change: CacheChange[CustomObject]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._set_state(old.metadata.uid, None)
            if new is not None:
                gauge = _gauge_of(new)
                self._set_state(new.metadata.uid, None if gauge is None else (resource, gauge))

        return handle

    def _set_state(self, uid: str, state: tuple[str, str] | None) -> None:
        previous = self._states.pop(uid, None)
        if previous is not None:
            self._jobs[previous] -= 1
        if state is not None:
            self._states[uid] = state
            self._jobs[state] += 1


class KubeDLMetrics(Collector):
    def __init__(self, metrics: ControllerMetrics, gauges: JobGauges, *, kinds: Mapping[str, str]) -> None:
        """`kinds` has the kinds to count, by qualified resource name."""
        self._metrics = metrics
        self._gauges = gauges
        self._kinds = kinds

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        for name, description in _GAUGES.items():
            gauge = GaugeMetricFamily(f"{PREFIX}{name}", description, labels=["kind"])
            for resource, kind in self._kinds.items():
                gauge.add_metric([kind.lower()], self._gauges.count(resource, name))
            yield gauge
        yield self._histogram(
            "first_pod_launch_delay_seconds",
            "Seconds from the creation of a job until its first pod was running.",
            self._metrics.first_pod_running(),
        )
        yield self._histogram(
            "all_pods_launch_delay_seconds",
            "Seconds from the creation of a job until all its pods were running.",
            self._metrics.all_pods_running(),
        )

    def _counters(self) -> Iterator[Metric]:
        for counter in JOB_COUNTERS:
            name = f"{PREFIX}{counter.name}"
            # KubeDL's names have no suffix `_total`, which a metric of the type counter would get.
            metric = Metric(name, counter.description, "unknown")
            counts: Counter[str] = Counter()
            for resource, _, count in counter.counts(self._metrics):
                if resource in self._kinds:
                    counts[self._kinds[resource]] += count
            for kind, count in counts.items():
                metric.add_sample(name, {"kind": kind.lower()}, count)
            yield metric

    def _histogram(self, name: str, description: str, histograms: Mapping[str, Histogram]) -> Metric:
        # Unlike the other metrics, KubeDL's histograms have the kind in its original case.
        family = HistogramMetricFamily(f"{PREFIX}{name}", description, labels=["kind"])
        for resource, histogram in histograms.items():
            if resource in self._kinds:
                histogram.add_to(family, [self._kinds[resource]])
        return family


def _gauge_of(job: CustomObject) -> str | None:
    """The gauge that counts the job; None if it is restarting, suspended or finished, or has no status yet."""
    try:
        conditions = _decode(job.status).conditions
    except msgspec.ValidationError:
        return None  # a client has written it
    current = {condition.type for condition in conditions if condition.status == "True"}
    if "Running" in current:
        return "running"
    return "pending" if "Created" in current and current <= _WAITING else None
