"""Exponential back-off between restarts.

The back-off applies to the unit that is restarted together: a replica, a role or the job, depending on the restart scope.
The record keeps the number of consecutive failures and the earliest time of the next start. A unit that has run long enough
counts as reset; its entry is removed when the next failure is recorded, not by a write of its own. A change of the spec
resets all back-offs.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from dlop.api.constants import Reason
from dlop.api.progress import ReplicaState
from dlop.api.record import BACKOFF_GRANULARITY_SECONDS, BackoffState, Blocked
from dlop.api.spec import RestartScope
from dlop.kube.timestamps import format_time, parse_time
from dlop.reconcile.context import ReconcileContext

INITIAL_DELAY_SECONDS = 10
MAX_DELAY_SECONDS = 300
RESET_AFTER_SECONDS = 600
"""The back-off of a unit is reset after this time without a failure."""

WHOLE_JOB = "*"

_RESTARTS_WITHOUT_DELAY = {ReplicaState.RESTARTING: 1, ReplicaState.DISRUPTED: 2}
"""Consecutive failures that are retried at once. Disruptions get one more, because nodes are often drained one after
another. Many disruptions must still not cause a burst of creates."""


def restart_unit(scope: RestartScope, role: str, index: int) -> str:
    """The key in `Record.backoffs` of the unit that a replica is restarted with."""
    match scope:
        case RestartScope.REPLICA:
            return f"{role}/{index}"
        case RestartScope.ROLE:
            return role
        case RestartScope.JOB:
            return WHOLE_JOB


def delay_seconds(failures: int, state: ReplicaState) -> int:
    """The delay after this number of consecutive failures. `state` is Restarting or Disrupted, depending on the last one."""
    doublings = failures - _RESTARTS_WITHOUT_DELAY[state] - 1
    # The record may have been edited by hand and contain any number.
    return 0 if doublings < 0 else min(MAX_DELAY_SECONDS, INITIAL_DELAY_SECONDS << min(doublings, 10))


def record_failure(backoffs: MutableMapping[str, BackoffState], unit: str, *, state: ReplicaState, now: float) -> None:
    """Count a failure or disruption of a unit, and set the time of its next start."""
    failures = 1 + backoffs.get(unit, BackoffState()).failures
    backoffs[unit] = BackoffState(failures, format_time(now + delay_seconds(failures, state)))


def expire(backoffs: MutableMapping[str, BackoffState], *, now: float) -> None:
    """Remove the entries of units that have run long enough."""
    for unit, backoff in list(backoffs.items()):
        if now >= (parse_time(backoff.not_before) or 0.0) + RESET_AFTER_SECONDS:
            del backoffs[unit]


def active(backoffs: Mapping[str, BackoffState], *, now: float) -> dict[str, float]:
    """Units in back-off, with the time of their next start. Times beyond the maximum delay come from a wrong clock and are ignored."""
    times = ((unit, parse_time(backoff.not_before) or 0.0) for unit, backoff in backoffs.items())
    return {unit: time for unit, time in times if now < time <= now + MAX_DELAY_SECONDS + BACKOFF_GRANULARITY_SECONDS}


def last_backoff_end(context: ReconcileContext) -> float:
    """The end of the latest back-off; 0 if there is none. Pods were not expected to start before it."""
    return max((parse_time(backoff.not_before) or 0.0 for backoff in context.stored.record.backoffs.values()), default=0.0)


def blocked_by_backoff(context: ReconcileContext, waiting: Mapping[str, float], backoffs: Mapping[str, BackoffState]) -> Blocked | None:
    """The back-off that ends first; None if there is none. The message does not change while it lasts."""
    if not waiting:
        return None
    unit = min(waiting, key=lambda unit: (waiting[unit], unit))
    backoff, subject = backoffs[unit], _describe_unit(context, unit)
    message = f"{subject}: back-off after {backoff.failures} consecutive failures, next start at {backoff.not_before}"
    previous = context.stored.record.blocked
    if previous is not None and previous.message == message:
        return previous
    return Blocked(object=subject, reason=Reason.BACK_OFF, message=message, since=format_time(context.now))


def _describe_unit(context: ReconcileContext, unit: str) -> str:
    if unit == WHOLE_JOB:
        return f"job {context.job.metadata.name}"
    name, _, index = unit.partition("/")
    role = context.spec.role(name)
    if role is None or not index.isdecimal():
        return f"role {name}"
    return f"pod {context.job.naming.pod_name(context.job, role, int(index))}"
