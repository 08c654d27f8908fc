"""How long something waits before it is started again: the more often it was lost in a row, the longer.

What waits is whatever is started again as one: a replica, a role or the job, as the restart scope says. The record keeps
how often in a row it was lost and from when on it may start. Nothing is forgotten by a write of its own: what has gone
well for long enough counts as forgotten, and leaves the record with the next loss. An edit of the spec is a new try.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from dlop.api.constants import Reason
from dlop.api.progress import ReplicaState
from dlop.api.record import BackoffState, Blocked
from dlop.api.spec import RestartScope
from dlop.kube.timestamps import format_time, parse_time
from dlop.reconcile.context import ReconcileContext

FIRST_DELAY_SECONDS = 10
LONGEST_DELAY_SECONDS = 300
FORGIVEN_AFTER_SECONDS = 600
"""Whoever has gone on for that long begins from the start."""

WHOLE_JOB = "*"

_WITHOUT_DELAY = {ReplicaState.RESTARTING: 1, ReplicaState.DISRUPTED: 2}
"""How many losses in a row are made good at once. One disruption often comes with another: a node that is drained, then its
neighbour. A storm of them must still not become a storm of creates."""


def unit_of(scope: RestartScope, role: str, index: int) -> str:
    """What a replica is started again with, as the record calls it."""
    match scope:
        case RestartScope.REPLICA:
            return f"{role}/{index}"
        case RestartScope.ROLE:
            return role
        case RestartScope.JOB:
            return WHOLE_JOB


def delay_seconds(losses: int, state: ReplicaState) -> int:
    """How long to wait after the last of so many losses in a row, which was a failure or a disruption."""
    doublings = losses - _WITHOUT_DELAY[state] - 1
    # A record that somebody has written by hand may hold any number.
    return 0 if doublings < 0 else min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS << min(doublings, 10))


def put_off(retries: MutableMapping[str, BackoffState], unit: str, *, state: ReplicaState, now: float) -> None:
    """Note a loss, and from when on what was lost may be started again."""
    losses = 1 + retries.get(unit, BackoffState()).losses
    retries[unit] = BackoffState(losses, format_time(now + delay_seconds(losses, state)))


def forgive(retries: MutableMapping[str, BackoffState], *, now: float) -> None:
    """Forget whatever has gone on for long enough."""
    for unit, retry in list(retries.items()):
        if now >= (parse_time(retry.until) or 0.0) + FORGIVEN_AFTER_SECONDS:
            del retries[unit]


def resting(retries: Mapping[str, BackoffState], *, now: float) -> dict[str, float]:
    """What has to wait, and until when. A moment that no delay reaches was written by a clock that was wrong."""
    moments = ((unit, parse_time(retry.until) or 0.0) for unit, retry in retries.items())
    return {unit: moment for unit, moment in moments if now < moment <= now + LONGEST_DELAY_SECONDS}


def lost_last(case: ReconcileContext) -> float:
    """When what was lost last could start again: before that, what is in the way may have been in nobody's."""
    return max((parse_time(retry.until) or 0.0 for retry in case.stored.record.retries.values()), default=0.0)


def explained(case: ReconcileContext, waiting: Mapping[str, float], retries: Mapping[str, BackoffState]) -> Blocked | None:
    """Why something does not run: of all that waits, what starts first. The words are the same as long as it waits."""
    if not waiting:
        return None
    unit = min(waiting, key=lambda each: (waiting[each], each))
    retry, what = retries[unit], _described(case, unit)
    message = f"{what}: it ended {retry.losses} times in a row, and is started again at {retry.until}"
    before = case.stored.record.blocked
    if before is not None and before.message == message:
        return before
    return Blocked(object=what, reason=Reason.BACK_OFF, message=message, since=format_time(case.now))


def _described(case: ReconcileContext, unit: str) -> str:
    if unit == WHOLE_JOB:
        return f"job {case.job.metadata.name}"
    role, _, index = unit.partition("/")
    found = case.spec.role(role)
    return f"pod {case.job.replica_name(found, int(index))}" if found is not None and index.isdecimal() else f"role {role}"
