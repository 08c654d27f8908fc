"""What a pass means for the counters: which turn has a job taken, and how long did it take to run."""

from __future__ import annotations

from dlop.api.phase import Phase
from dlop.api.spec import SpecError
from dlop.controller.job_state import Memories
from dlop.controller.kinds import JobKey, ManagedJob
from dlop.controller.metrics import ControlMetrics
from dlop.kube.errors import JsonObject
from dlop.kube.resources import Resource
from dlop.reconcile.plan import Plan
from dlop.reconcile.snapshot import Snapshot

_FINAL_COUNTERS = {Phase.SUCCEEDED: "succeeded", Phase.FAILED: "failed", Phase.INVALID: "invalid"}
_GROWING = {"restarts": "restarted", "disruptions": "disrupted"}


def note_milestones(
    metrics: ControlMetrics, memories: Memories, *, key: JobKey, job: ManagedJob, snapshot: Snapshot, plan: Plan, now: float
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


def _note_growth(metrics: ControlMetrics, key: JobKey, counter: str, grown: int) -> None:
    if grown > 0:
        metrics.job(counter, key.resource, key.namespace, times=grown)


def _restarted_in_place(before: JsonObject, after: JsonObject) -> int:
    """How often nodes have restarted containers between two statuses."""
    known = _counts(before, "counted")
    return sum(max(0, count - known.get(uid, 0)) for uid, count in _counts(after, "counted").items())


def note_deletion(metrics: ControlMetrics, resource: Resource, job: ManagedJob) -> None:
    """Count a job that is gone, if it was counted when it came."""
    if not job.managed_elsewhere and job.phase_in(job.stored_status) is not None:
        metrics.job("deleted", resource, job.metadata.namespace)


def _last_counted(memories: Memories, job: ManagedJob) -> JsonObject:
    """The status up to which everything is counted."""
    memory = memories.find(job.metadata.uid)
    if memory is None or memory.uncounted is None:
        return job.stored_status
    counted, memory.uncounted = memory.uncounted, None
    return counted


def _note_start(
    metrics: ControlMetrics, memories: Memories, *, key: JobKey, job: ManagedJob, snapshot: Snapshot, started: bool, now: float
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


def _all_run(job: ManagedJob, snapshot: Snapshot) -> bool:
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
