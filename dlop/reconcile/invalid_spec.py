"""The plan for a job with an invalid spec. The error is reported, and the children are left alone until the spec is fixed.

The same applies to a job whose status is too large for the API server: without its record, no pod can be replaced safely.

state of the job    effect
not started         phase Invalid; it is not started
started             keeps its phase and its pods; the error is its Blocked condition. If Kueue evicts the job, its pods are deleted
finished            nothing is reported; cleanup uses the fields that can be parsed
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from dlop.api.constants import Reason
from dlop.api.kueue import true_condition
from dlop.api.phase import Phase
from dlop.api.record import Blocked
from dlop.api.spec import SpecError
from dlop.kube.timestamps import format_time
from dlop.reconcile import events
from dlop.reconcile.cleanup import plan_finished
from dlop.reconcile.context import PersistedState, ReconcileContext, find_workload
from dlop.reconcile.deletion import deletes_if_unchanged
from dlop.reconcile.kueue import release_reports
from dlop.reconcile.plan import Event, EventType, Plan
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.status import blocked_status, changed_status, invalid_outcome

if TYPE_CHECKING:
    from dlop.job import DLJob

RETRY_OVERSIZED_STATUS_SECONDS = 120
_FINISHED = ("Succeeded", "Failed")


def plan_invalid(job: DLJob, snapshot: Snapshot, stored: PersistedState, error: SpecError, *, now: float) -> Plan:
    """Plan a pass over a job with an invalid spec."""
    if stored.phase is None or stored.phase is Phase.INVALID:
        return _reject(job, snapshot, stored, error, now=now)
    if stored.phase.is_finished:
        job = job.ignoring_problems()
        return plan_finished(ReconcileContext(job, job.spec, snapshot, stored, now))
    block = partial(_block, job, reason=Reason.INVALID_SPEC, subject="spec", message=str(error), phase=stored.phase, now=now)
    workload = find_workload(job, snapshot)
    if workload is None or not true_condition(workload, "Evicted"):
        return block(stored)
    running = [pod for pod in snapshot.all_pods if pod.status.phase not in _FINISHED]
    if not running:
        return replace(block(stored), quota_reports=release_reports(workload, now=now))
    if stored.record.started_indexes:  # the deletes are not disruptions
        return block(replace(stored, record=msgspec.structs.replace(stored.record, started_indexes={}, backoffs={})))
    return replace(block(stored), deletes=deletes_if_unchanged(pod for pod in running if pod.metadata.deletion_timestamp is None))


def plan_oversized_status(job: DLJob, snapshot: Snapshot, stored: PersistedState, *, now: float) -> Plan:
    """Report that the status cannot be stored. The controller decides when to try again."""
    message = f"the API server rejected the status as too large ({snapshot.rejected_status}); use fewer replicas or a smaller spec"
    phase = stored.phase or Phase.CREATED
    plan = _block(job, stored, reason=Reason.FAILED_UPDATE, subject="status", message=message, phase=phase, now=now)
    return replace(plan, requeue_at=now + RETRY_OVERSIZED_STATUS_SECONDS)


def _reject(job: DLJob, snapshot: Snapshot, stored: PersistedState, error: SpecError, *, now: float) -> Plan:
    outcome = invalid_outcome(job, stored, message=str(error), now=now)
    status = changed_status(job, outcome, snapshot)
    return Plan() if status is None else Plan(status=status, events=tuple(events.phase_events(stored.phase, outcome)))


def _block(job: DLJob, stored: PersistedState, *, reason: str, subject: str, message: str, phase: Phase, now: float) -> Plan:
    """The message is compared, too: after the user has fixed one error and made another, the new one must be reported."""
    previous = stored.record.blocked
    if previous is not None and (previous.reason, previous.message) == (reason, message):
        return Plan(status=blocked_status(job, stored, previous, phase=phase, now=now))
    blocked = Blocked(object=subject, reason=reason, message=message, since=format_time(now))
    event = Event(EventType.WARNING, blocked.reason, blocked.message)
    return Plan(status=blocked_status(job, stored, blocked, phase=phase, now=now), events=(event,))
