"""The plan for a job with an invalid spec. The error is reported, and the children are left alone until the spec is fixed.

state of the job    effect
not started         phase Invalid; it is not started
started             keeps its phase and its pods; the error is its Blocked condition
finished            nothing is reported; cleanup uses the fields that can be parsed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlop.api.constants import Reason
from dlop.api.phase import Phase
from dlop.api.record import Blocked
from dlop.api.spec import SpecError
from dlop.kube.timestamps import format_time
from dlop.reconcile import events
from dlop.reconcile.cleanup import plan_finished
from dlop.reconcile.context import PersistedState, ReconcileContext
from dlop.reconcile.plan import Event, EventType, Plan
from dlop.reconcile.snapshot import Snapshot
from dlop.reconcile.status import blocked_status, changed_status, invalid_outcome

if TYPE_CHECKING:
    from dlop.job import DLJob


def plan_invalid(job: DLJob, snapshot: Snapshot, stored: PersistedState, error: SpecError, *, now: float) -> Plan:
    """Plan a pass over a job with an invalid spec."""
    if stored.phase is None or stored.phase is Phase.INVALID:
        return _reject(job, snapshot, stored, error, now=now)
    if stored.phase.is_finished:
        job = job.ignoring_problems()
        return plan_finished(ReconcileContext(job, job.spec, snapshot, stored, now))
    return _block(job, stored, error, phase=stored.phase, now=now)


def _reject(job: DLJob, snapshot: Snapshot, stored: PersistedState, error: SpecError, *, now: float) -> Plan:
    outcome = invalid_outcome(job, stored, message=str(error), now=now)
    status = changed_status(job, outcome, snapshot)
    return Plan() if status is None else Plan(status=status, events=tuple(events.phase_events(stored.phase, outcome)))


def _block(job: DLJob, stored: PersistedState, error: SpecError, *, phase: Phase, now: float) -> Plan:
    """The message is compared, too: after the user has fixed one error and made another, the new one must be reported."""
    previous, message = stored.record.blocked, str(error)
    if previous is not None and (previous.reason, previous.message) == (Reason.INVALID_SPEC, message):
        return Plan(status=blocked_status(job, stored, previous, phase=phase, now=now))
    blocked = Blocked(object="spec", reason=Reason.INVALID_SPEC, message=message, since=format_time(now))
    event = Event(EventType.WARNING, blocked.reason, blocked.message)
    return Plan(status=blocked_status(job, stored, blocked, phase=phase, now=now), events=(event,))
