"""What Prometheus is told of the loop: passes under controller-runtime's names, and jobs by kind and namespace.

What a pass means for the counters: which turn has a job taken, and how long did it take to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from dlop.api.phase import Phase
from dlop.api.spec import SpecError
from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey
from dlop.job import DLJob
from dlop.kube.metrics import Histogram
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot

# controller-runtime's own steps, and steps for what takes a cluster seconds to hours.
_PASS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 5.0, 10.0)
_START_BUCKETS = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_RESULTS = ("success", "error", "requeue", "requeue_after")

_JOB_COUNTERS = {
    "created": "How many jobs were seen for the first time.",
    "deleted": "How many jobs are gone, whoever has deleted them.",
    "succeeded": "How many jobs have succeeded.",
    "failed": "How many jobs have failed.",
    "invalid": "How many specs could not be run.",
    "restarted": "How many restarts after failures there were.",
    "disrupted": "How many replacements after disruptions there were.",
}
_OBJECT_COUNTERS = {
    "created": "How many objects of jobs were created.",
    "deleted": "How many objects of jobs were deleted.",
    "refused": "How many objects of jobs the API server has refused.",
}


class ControllerMetrics(Collector):
    """Everything that the loop counts."""

    def __init__(self, *, workers: int, dropped_events: Callable[[], int]) -> None:
        self._workers = workers
        self._dropped_events = dropped_events
        self.active = 0
        """How many passes are under way."""
        self._results: Counter[tuple[str, str]] = Counter()
        self._times: dict[str, Histogram] = {}
        self._jobs: Counter[tuple[str, str, str]] = Counter()
        self._objects: Counter[tuple[str, str]] = Counter()
        self._first_running: dict[str, Histogram] = {}
        self._all_running: dict[str, Histogram] = {}

    def passed(self, resource: Resource, result: str, *, seconds: float) -> None:
        """A pass has ended."""
        name = resource.qualified_name
        self._results[name, result] += 1
        _tally(self._times, name, _PASS_BUCKETS).observe(seconds)

    def job(self, what: str, resource: Resource, namespace: str, *, times: int = 1) -> None:
        """Something that is worth a counter has happened to a job: one of the names of `_JOB_COUNTERS`."""
        self._jobs[what, resource.qualified_name, namespace] += times

    def jobs(self, what: str) -> Iterator[tuple[str, str, int]]:
        """All that was counted under such a name: the kind, the namespace, how often."""
        # A copy: a scrape may run in another thread than the workers.
        return ((kind, namespace, count) for (found, kind, namespace), count in list(self._jobs.items()) if found == what)

    def objects(self, counts: Mapping[tuple[str, str], int]) -> None:
        """So many objects of a job were created, deleted or refused: by one of the names of `_OBJECT_COUNTERS` and by resource."""
        self._objects.update(counts)

    def first_pod_runs(self, resource: Resource, *, seconds: float) -> None:
        """So long after its creation the first pod of a job was seen running."""
        _tally(self._first_running, resource.qualified_name, _START_BUCKETS).observe(seconds)

    def all_pods_run(self, resource: Resource, *, seconds: float) -> None:
        """So long after its creation all pods of a job were seen running."""
        _tally(self._all_running, resource.qualified_name, _START_BUCKETS).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """The families, as of now."""
        yield from self._passes()
        yield from self._job_counters()
        yield from self._object_counters()
        yield _histogram(
            "dlop_job_first_pod_running_seconds", "From a job's creation until its first pod ran.", self._first_running, "kind"
        )
        yield _histogram("dlop_job_all_pods_running_seconds", "From a job's creation until all its pods ran.", self._all_running, "kind")
        dropped = CounterMetricFamily("dlop_events_dropped", "How many events about jobs were not sent.")
        dropped.add_metric([], self._dropped_events())
        yield dropped

    def _passes(self) -> Iterator[Metric]:
        total = CounterMetricFamily("controller_runtime_reconcile", "How many passes there were.", labels=["controller", "result"])
        errors = CounterMetricFamily("controller_runtime_reconcile_errors", "How many passes failed.", labels=["controller"])
        for name in list(self._times):
            for result in _RESULTS:
                total.add_metric([name, result], self._results[name, result])
            errors.add_metric([name], self._results[name, "error"])
        yield total
        yield errors
        yield _histogram("controller_runtime_reconcile_time_seconds", "How long passes took.", self._times, "controller")
        most = GaugeMetricFamily(
            "controller_runtime_max_concurrent_reconciles",
            "How many passes may be under way, with those that only wait to write a status.",
            labels=["controller"],
        )
        active = GaugeMetricFamily("controller_runtime_active_workers", "How many passes are under way.", labels=["controller"])
        most.add_metric(["dlop"], self._workers)
        active.add_metric(["dlop"], self.active)
        yield most
        yield active

    def _job_counters(self) -> Iterator[Metric]:
        for what, meaning in _JOB_COUNTERS.items():
            family = CounterMetricFamily(f"dlop_jobs_{what}", meaning, labels=["kind", "namespace"])
            for kind, namespace, count in self.jobs(what):
                family.add_metric([kind, namespace], count)
            yield family

    def _object_counters(self) -> Iterator[Metric]:
        for what, meaning in _OBJECT_COUNTERS.items():
            family = CounterMetricFamily(f"dlop_objects_{what}", meaning, labels=["resource"])
            for (found, resource), count in list(self._objects.items()):
                if found == what:
                    family.add_metric([resource], count)
            yield family


def _tally(tallies: dict[str, Histogram], name: str, buckets: tuple[float, ...]) -> Histogram:
    found = tallies.get(name)
    if found is None:
        found = tallies[name] = Histogram(buckets)
    return found


def _histogram(name: str, meaning: str, tallies: dict[str, Histogram], label: str) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, meaning, labels=[label])
    for value, tally in list(tallies.items()):
        tally.add_to(family, [value])
    return family


_FINAL_COUNTERS = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.INVALID: "invalid"}
_GROWING = {"restarts": "restarted", "disruptions": "disrupted"}


def note_milestones(
    metrics: ControllerMetrics, memories: JobStates, *, key: JobKey, job: DLJob, snapshot: Snapshot, plan: Plan, now: float
) -> None:
    """Count what the status tells for the first time, as it was just written, or as a write has left it whose answer was lost."""
    counted, current = _last_counted(memories, job), plan.status if plan.status is not None else job.stored_status
    if counted is current:
        return
    before, after = job.phase_in(counted), job.phase_in(current)
    if before is None and after is not None:
        metrics.job("created", key.resource, key.namespace)
    if after is not None and after is not before and after in _FINAL_COUNTERS:
        metrics.job(_FINAL_COUNTERS[after], key.resource, key.namespace)
    if after is Phase.FAILED:  # what was lost last was not started again, save by the nodes
        _note_growth(metrics, key, "restarted", _restarted_in_place(counted, current))
    else:
        for name, counter in _GROWING.items():
            _note_growth(metrics, key, counter, _total(current, name) - _total(counted, name))
    _note_start(metrics, memories, key=key, job=job, snapshot=snapshot, started=after is Phase.RUNNING and before is not after, now=now)


def _note_growth(metrics: ControllerMetrics, key: JobKey, counter: str, grown: int) -> None:
    if grown > 0:
        metrics.job(counter, key.resource, key.namespace, times=grown)


def _restarted_in_place(before: JsonObject, after: JsonObject) -> int:
    """How often nodes have restarted containers between two statuses."""
    known = _counts(before, "counted")
    return sum(max(0, count - known.get(uid, 0)) for uid, count in _counts(after, "counted").items())


def note_deletion(metrics: ControllerMetrics, resource: Resource, job: DLJob) -> None:
    """Count a job that is gone, if it was counted when it came."""
    if not job.managed_elsewhere and job.phase_in(job.stored_status) is not None:
        metrics.job("deleted", resource, job.metadata.namespace)


def _last_counted(memories: JobStates, job: DLJob) -> JsonObject:
    """The status up to which everything is counted."""
    memory = memories.find(job.metadata.uid)
    if memory is None or memory.uncounted is None:
        return job.stored_status
    counted, memory.uncounted = memory.uncounted, None
    return counted


def _note_start(
    metrics: ControllerMetrics, memories: JobStates, *, key: JobKey, job: DLJob, snapshot: Snapshot, started: bool, now: float
) -> None:
    """A job that ran before this process came is not measured: nobody saw when."""
    created = job.metadata.creation_timestamp
    memory = memories.find(job.metadata.uid)
    if created is None or memory is None:
        return
    seconds = max(0.0, now - created.timestamp())
    if started and not memory.has_run:
        memory.has_run = memory.awaits_all_running = True
        metrics.first_pod_runs(key.resource, seconds=seconds)
    if memory.awaits_all_running and _all_run(job, snapshot):
        memory.awaits_all_running = False
        metrics.all_pods_run(key.resource, seconds=seconds)


def _all_run(job: DLJob, snapshot: Snapshot) -> bool:
    try:
        wanted = sum(role.replicas for role in job.spec.roles)
    except SpecError:
        return False
    return sum(1 for pod in snapshot.pods if pod.status.phase == "Running") >= wanted


def _total(status: JsonObject, name: str) -> int:
    return sum(_counts(status, name).values())


def _counts(status: JsonObject, name: str) -> dict[str, int]:
    found = (status.get("dlop") or {}).get(name) or {}
    return {each: count for each, count in found.items() if isinstance(count, int)}
