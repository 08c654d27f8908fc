"""What has to wait for the group of a job whose pods are placed together.

Pods and services come when the scheduler lets the group in, and never while the last one is still on its way out.
"""

from __future__ import annotations

from dlop.engine.case import Case
from dlop.engine.names import Reason
from dlop.engine.progress import Progress, ReplicaState
from dlop.engine.record import Blocked
from dlop.engine.times import written
from dlop.kube.objects import PodGroup

_UNSCHEDULABLE = ("Unschedulable", "True")
_PATIENCE_SECONDS = 30
"""How long a group waits before anybody is told. Most wait for a moment only, and nobody wants to hear of that."""


def is_held(case: Case) -> bool:
    """Whether pods and services have to wait."""
    gang, group = case.job.gang, case.group
    if gang is None:
        return False
    if group is None:
        return gang.resource in case.unreadable or not gang.is_let_in("")
    return group.metadata.deletion_timestamp is not None or not gang.is_let_in(group.status.phase)


def is_yet_to_start(case: Case) -> bool:
    """Whether a job has never got beyond its group. Its clock begins to run when its pods are made."""
    return case.stored.started_at is None and not case.pods and is_held(case)


def waiting_for_group(case: Case, progress: Progress) -> Blocked | None:
    """Why the pods of a job are not made, when it takes longer than usual. The words stay the same as long as it waits."""
    gang, group = case.job.gang, case.group
    if gang is None or group is None or not _is_somebody_held(case, progress):
        return None
    what = f"podgroup {gang.name}"
    before = case.stored.record.blocked
    if before is not None and (before.object, before.reason) == (what, Reason.NOT_LET_IN):
        return before
    if case.now < _told_at(group):
        return None
    message = f"{what}: the scheduler {gang.scheduler} has not let it in{_why(group)}"
    return Blocked(object=what, reason=Reason.NOT_LET_IN, message=message, since=written(case.now))


def told_next(case: Case, progress: Progress) -> float | None:
    """When that is to be told."""
    if case.group is None or not _is_somebody_held(case, progress):
        return None
    moment = _told_at(case.group)
    return moment if case.now < moment else None


def _is_somebody_held(case: Case, progress: Progress) -> bool:
    """A job all of whose pods are there may get a group later on: the operator was told to only then, or somebody took the first away."""
    return is_held(case) and any(role.count(ReplicaState.MISSING) for role in progress.roles)


def _told_at(group: PodGroup) -> float:
    """Counted from the last that happened to it."""
    conditions = (condition.last_transition_time for condition in group.status.conditions)
    moments = (group.metadata.creation_timestamp, group.metadata.deletion_timestamp, *conditions)
    return max((moment.timestamp() for moment in moments if moment is not None), default=0.0) + _PATIENCE_SECONDS


def _why(group: PodGroup) -> str:
    if group.metadata.deletion_timestamp is not None:
        return ": the last group of this name is still being deleted"
    said = (condition.message for condition in group.status.conditions if (condition.type, condition.status) == _UNSCHEDULABLE)
    return "".join(f": {message}" for message in said if message)
