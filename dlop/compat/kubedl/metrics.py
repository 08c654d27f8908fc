"""Metrics under KubeDL's names, so that dashboards and alerts continue to work.

Counters and histograms are derived from dlop's own. The number of running and pending jobs is kept up to date by events of the job
informers. KubeDL's histograms also had the labels name, namespace and uid; here they have only the kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

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
_QUEUES = "kubedl_tenant_queue_jobs_pending_count"
_GAUGES = {"running": "Number of running jobs.", "pending": "Number of jobs that have not started yet."}
_WAITING = frozenset({"Created", "Queuing", "Blocked"})
"""The conditions that a pending job may have."""


class _Condition(msgspec.Struct):
    type: Any = ""
    status: Any = ""


class _Record(msgspec.Struct, frozen=True):
    queue: Any = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []
    dlop: _Record = _Record()


_decode = msgspec.json.Decoder(_Status).decode


class _State(NamedTuple):
    """How a job is counted."""

    resource: str
    """The qualified name."""
    gauge: str
    queue: str
    """The queue of Kueue in which the job waits; empty if it does not."""


class JobGauges:
    """Number of running and pending jobs by kind, and of those that wait in a queue by queue."""

    def __init__(self) -> None:
        self._states: dict[str, _State] = {}
        """By the uid of the job."""
        self._jobs: Counter[_State] = Counter()

    def count(self, resource: str, gauge: str) -> int:
        return sum(jobs for state, jobs in self._jobs.items() if (state.resource, state.gauge) == (resource, gauge))

    def queues(self) -> Counter[str]:
        """Number of waiting jobs by queue. A queue that has become empty is included."""
        waiting: Counter[str] = Counter()
        for state, jobs in self._jobs.items():
            if state.queue:
                waiting[state.queue] += jobs
        return waiting

    def handler(self, resource: str) -> Callable[[CacheChange[CustomObject]], None]:
        """A handler for the jobs of a kind with this qualified resource name."""

        def handle(change: CacheChange[CustomObject]) -> None:
            old, new = change.old, change.new
            if old is not None and (new is None or new.metadata.uid != old.metadata.uid):
                self._set_state(old.metadata.uid, None)
            if new is not None:
                self._set_state(new.metadata.uid, _state_of(new, resource))

        return handle

    def _set_state(self, uid: str, state: _State | None) -> None:
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
        queues = GaugeMetricFamily(
            _QUEUES, "Number of jobs that wait in queues of Kueue with this name, in all namespaces.", labels=["queue"]
        )
        for queue, jobs in self._gauges.queues().items():
            queues.add_metric([queue], jobs)
        yield queues
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


def _state_of(job: CustomObject, resource: str) -> _State | None:
    """How a job is counted; None if it is restarting, suspended or finished, or has no status yet."""
    try:
        status = _decode(job.status)
    except msgspec.ValidationError:
        return None  # a client has written it
    current = {condition.type for condition in status.conditions if condition.status == "True"}
    if "Running" in current:
        return _State(resource, "running", "")
    queue = str(status.dlop.queue) if "Suspended" in current else ""
    is_pending = "Created" in current and current <= (_WAITING | {"Suspended"} if queue else _WAITING)
    return _State(resource, "pending", queue) if is_pending else None
