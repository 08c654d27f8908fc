"""A spec that makes no sense: what is wrong is said, and everything is left as it is until the spec is mended.

the job                 what is told
has not begun           Invalid: it is never run
has begun               its phase stays, for its pods go on; what is wrong is in its way
has come to its end     nothing: it is cleaned up as far as its spec can be read
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
from dlop.reconcile.status import changed_status, refusal_of, status_with_block

if TYPE_CHECKING:
    from dlop.job import DLJob


def plan_invalid(job: DLJob, snapshot: Snapshot, stored: PersistedState, error: SpecError, *, now: float) -> Plan:
    """What is to be done about a job with such a spec."""
    if stored.phase is None or stored.phase is Phase.INVALID:
        return _never_run(job, stored, error, now=now)
    if stored.phase.is_end:
        legible = job.as_far_as_legible()
        return plan_finished(ReconcileContext(legible, legible.spec, snapshot, stored, now))
    return _leave(job, stored, error, phase=stored.phase, now=now)


def _never_run(job: DLJob, stored: PersistedState, error: SpecError, *, now: float) -> Plan:
    outcome = refusal_of(job, stored, message=str(error), now=now)
    status = changed_status(job, outcome)
    return Plan() if status is None else Plan(status=status, events=tuple(events.of_phase(stored.phase, outcome)))


def _leave(job: DLJob, stored: PersistedState, error: SpecError, *, phase: Phase, now: float) -> Plan:
    """Who has mended one mistake and made another must not read of the first."""
    before, message = stored.record.blocked, str(error)
    if before is not None and (before.reason, before.message) == (Reason.INVALID_SPEC, message):
        return Plan(status=status_with_block(job, stored, before, phase=phase, now=now))
    blocked = Blocked(object="spec", reason=Reason.INVALID_SPEC, message=message, since=format_time(now))
    told = Event(EventType.WARNING, blocked.reason, blocked.message)
    return Plan(status=status_with_block(job, stored, blocked, phase=phase, now=now), events=(told,))
