"""Prometheus metrics of the controller: passes under the names of controller-runtime, and jobs by kind and namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.api.phase import Phase
from dlop.api.record import Record, parse_counts, parse_record
from dlop.api.spec import SpecError
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey
from dlop.job import DLJob
from dlop.kube.metrics import Histogram
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot

# The buckets of controller-runtime.
_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 5.0, 10.0)
_START_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_RESULTS = ("success", "error", "requeue", "requeue_after")

_JOB_COUNTERS = {
    "created": "Number of jobs created.",
    "deleted": "Number of jobs deleted.",
    "succeeded": "Number of jobs that succeeded.",
    "failed": "Number of jobs that failed.",
    "invalid": "Number of jobs with an invalid spec.",
    "restarted": "Number of restarts after failures.",
    "disrupted": "Number of replacements after disruptions.",
    "spot_disrupted": "Number of replacements of spot replicas after disruptions.",
    "scaled_up": "Number of replicas added by the autoscaler.",
    "scaled_down": "Number of replicas removed by the autoscaler.",
}
_OBJECT_COUNTERS = {
    "created": "Number of child objects created.",
    "deleted": "Number of child objects deleted.",
    "rejected": "Number of child objects rejected by the API server.",
}


class ControllerMetrics(Collector):
    def __init__(self, *, workers: int, dropped_events: Callable[[], int]) -> None:
        self._workers = workers
        self._dropped_events = dropped_events
        self.active = 0
        """Number of running passes."""
        self._results: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, Histogram] = {}
        self._jobs: Counter[tuple[str, str, str]] = Counter()
        self._objects: Counter[tuple[str, str]] = Counter()
        self._first_running: dict[str, Histogram] = {}
        self._all_running: dict[str, Histogram] = {}

    def observe_pass(self, resource: Resource, result: str, *, seconds: float) -> None:
        name = resource.qualified_name
        self._results[name, result] += 1
        _get_histogram(self._times, name, _PASS_BUCKETS).observe(seconds)

    def count_job(self, counter: str, resource: Resource, namespace: str, *, times: int = 1) -> None:
        """Increment one of `_JOB_COUNTERS`."""
        self._jobs[counter, resource.qualified_name, namespace] += times

    def job_counts(self, counter: str) -> Iterator[tuple[str, str, int]]:
        """Kind, namespace and value of one of `_JOB_COUNTERS`."""
        # Copy, because a scrape may run in another thread than the workers.
        return ((kind, namespace, count) for (name, kind, namespace), count in list(self._jobs.items()) if name == counter)

    def count_objects(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Add counts by name in `_OBJECT_COUNTERS` and by resource."""
        self._objects.update(counts)

    def observe_first_pod_running(self, resource: Resource, *, seconds: float) -> None:
        _get_histogram(self._first_running, resource.qualified_name, _START_BUCKETS).observe(seconds)

    def observe_all_pods_running(self, resource: Resource, *, seconds: float) -> None:
        _get_histogram(self._all_running, resource.qualified_name, _START_BUCKETS).observe(seconds)

    def first_pod_running(self) -> dict[str, Histogram]:
        """Seconds until the first pod of a job was running, by qualified resource name."""
        return dict(self._first_running)

    def all_pods_running(self) -> dict[str, Histogram]:
        """Seconds until all pods of a job were running, by qualified resource name."""
        return dict(self._all_running)

    def collect(self) -> Iterator[Metric]:
        yield from self._passes()
        yield from self._job_counters()
        yield from self._object_counters()
        yield _histogram(
            "dlop_job_first_pod_running_seconds",
            "Seconds from the creation of a job until its first pod was running.",
            self._first_running,
            "kind",
        )
        yield _histogram(
            "dlop_job_all_pods_running_seconds",
            "Seconds from the creation of a job until all its pods were running.",
            self._all_running,
            "kind",
        )
        dropped = CounterMetricFamily("dlop_events_dropped", "Number of events that were dropped.")
        dropped.add_metric([], self._dropped_events())
        yield dropped

    def _passes(self) -> Iterator[Metric]:
        total = CounterMetricFamily(
            "controller_runtime_reconcile", "Total number of reconciliations per controller.", labels=["controller", "result"]
        )
        errors = CounterMetricFamily(
            "controller_runtime_reconcile_errors", "Total number of reconciliation errors per controller.", labels=["controller"]
        )
        for name in list(self._times):
            for result in _RESULTS:
                total.add_metric([name, result], self._results[name, result])
            errors.add_metric([name], self._results[name, "error"])
        yield total
        yield errors
        yield _histogram(
            "controller_runtime_reconcile_time_seconds", "Length of time per reconciliation per controller.", self._times, "controller"
        )
        maximum = GaugeMetricFamily(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of concurrent reconciles, including those that only wait to write a status.",
            labels=["controller"],
        )
        active = GaugeMetricFamily(
            "controller_runtime_active_workers", "Number of currently used workers per controller.", labels=["controller"]
        )
        maximum.add_metric(["dlop"], self._workers)
        active.add_metric(["dlop"], self.active)
        yield maximum
        yield active

    def _job_counters(self) -> Iterator[Metric]:
        for counter, description in _JOB_COUNTERS.items():
            family = CounterMetricFamily(f"dlop_jobs_{counter}", description, labels=["kind", "namespace"])
            for kind, namespace, count in self.job_counts(counter):
                family.add_metric([kind, namespace], count)
            yield family

    def _object_counters(self) -> Iterator[Metric]:
        for counter, description in _OBJECT_COUNTERS.items():
            family = CounterMetricFamily(f"dlop_objects_{counter}", description, labels=["resource"])
            for (name, resource), count in list(self._objects.items()):
                if name == counter:
                    family.add_metric([resource], count)
            yield family


def _get_histogram(histograms: dict[str, Histogram], name: str, buckets: tuple[float, ...]) -> Histogram:
    histogram = histograms.get(name)
    if histogram is None:
        histogram = histograms[name] = Histogram(buckets)
    return histogram


def _histogram(name: str, description: str, histograms: dict[str, Histogram], label: str) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, description, labels=[label])
    for value, histogram in list(histograms.items()):
        histogram.add_to(family, [value])
    return family


# --- transitions of jobs ---------------------------------------------------------------------------------------------

_FINAL_COUNTERS = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.INVALID: "invalid"}
_RECORD_COUNTERS = {"restarts": "restarted", "disruptions": "disrupted", "spotDisruptions": "spot_disrupted"}


def count_transitions(
    metrics: ControllerMetrics, job_states: JobStates, *, key: JobKey, job: DLJob, snapshot: Snapshot, plan: Plan, now: float
) -> None:
    """Count what changed between the last counted status and the status after this pass.

    Call it after the status write. Changes of a write whose response was lost are counted here as well, exactly once.
    """
    counted, current = _pop_last_counted(job_states, job), plan.status if plan.status is not None else job.stored_status
    if counted is current:
        return
    before, after = job.status.read_phase(counted), job.status.read_phase(current)
    if before is None and after is not None:
        metrics.count_job("created", key.resource, key.namespace)
    if after is not None and after is not before and after in _FINAL_COUNTERS:
        metrics.count_job(_FINAL_COUNTERS[after], key.resource, key.namespace)
    if after is Phase.FAILED:  # the last failure was not followed by a restart, except by a kubelet
        _count_increase(metrics, key, "restarted", _in_place_restarts(counted, current))
    else:
        for name, counter in _RECORD_COUNTERS.items():
            _count_increase(metrics, key, counter, _total(current, name) - _total(counted, name))
    for change in _scale_changes(counted, current):
        _count_increase(metrics, key, "scaled_up" if change > 0 else "scaled_down", abs(change))
    started = after is Phase.RUNNING and before is not after
    _observe_start(metrics, job_states, key=key, job=job, snapshot=snapshot, started=started, now=now)


def _count_increase(metrics: ControllerMetrics, key: JobKey, counter: str, increase: int) -> None:
    if increase > 0:
        metrics.count_job(counter, key.resource, key.namespace, times=increase)


def _scale_changes(before: JsonObject, after: JsonObject) -> Iterator[int]:
    """Changes by the autoscaler between two statuses."""
    if "scaleRecords" not in (after.get("dlop") or {}):
        return
    known, current = parse_record(before) or Record(), parse_record(after) or Record()
    yield from (record.change for record in current.scale_records if record not in known.scale_records)


def _in_place_restarts(before: JsonObject, after: JsonObject) -> int:
    """Number of container restarts by kubelets between two statuses."""
    known, current = parse_record(before) or Record(), parse_record(after) or Record()
    return sum(
        max(0, count - parse_counts(known.counted_restarts.get(role, {})).get(index, 0))
        for role, counts in current.counted_restarts.items()
        for index, count in parse_counts(counts).items()
    )


def count_deletion(metrics: ControllerMetrics, resource: Resource, job: DLJob) -> None:
    """Count a deleted job, if its creation was counted."""
    if not job.managed_by_other and job.status.read_phase(job.stored_status) is not None:
        metrics.count_job("deleted", resource, job.metadata.namespace)


def _pop_last_counted(job_states: JobStates, job: DLJob) -> JsonObject:
    state = job_states.get(job.metadata.uid)
    if state is None or state.last_counted_status is None:
        return job.stored_status
    counted, state.last_counted_status = state.last_counted_status, None
    return counted


def _observe_start(
    metrics: ControllerMetrics, job_states: JobStates, *, key: JobKey, job: DLJob, snapshot: Snapshot, started: bool, now: float
) -> None:
    """Observe start times. Jobs that were running before this process started are not measured."""
    created = job.metadata.creation_timestamp
    state = job_states.get(job.metadata.uid)
    if created is None or state is None:
        return
    seconds = max(0.0, now - created.timestamp())
    if started and not state.first_pod_ran:
        state.first_pod_ran = state.awaits_all_running = True
        metrics.observe_first_pod_running(key.resource, seconds=seconds)
    if state.awaits_all_running and _all_running(job, snapshot):
        state.awaits_all_running = False
        metrics.observe_all_pods_running(key.resource, seconds=seconds)


def _all_running(job: DLJob, snapshot: Snapshot) -> bool:
    try:
        desired = sum(role.replicas for role in job.spec.roles)
    except SpecError:
        return False
    return sum(1 for pod in snapshot.pods if pod.status.phase == "Running") >= desired


def _total(status: JsonObject, name: str) -> int:
    return sum(_counts(status, name).values())


def _counts(status: JsonObject, name: str) -> dict[str, int]:
    """Integer values by key of a field of `status.dlop`."""
    counts = (status.get("dlop") or {}).get(name) or {}
    return {key: count for key, count in counts.items() if isinstance(count, int)}
