"""What has to wait for the group of a job whose pods are placed together.

Pods and services come when the scheduler lets the group in, and never while the last one is still on its way out.
"""

from __future__ import annotations

from dlop.api.constants import Reason
from dlop.api.phase import Phase
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked
from dlop.kube.objects import PodGroup
from dlop.kube.timestamps import format_time
from dlop.reconcile.backoff import lost_last
from dlop.reconcile.blocked import PATIENCE_SECONDS, why_still_there
from dlop.reconcile.context import ReconcileContext

_UNSCHEDULABLE = ("Unschedulable", "True")


def is_held(case: ReconcileContext) -> bool:
    """Whether pods and services have to wait."""
    gang, group = case.job.gang, case.group
    if gang is None:
        return False
    if group is None:
        return gang.resource in case.unreadable or not gang.is_let_in("")
    return group.metadata.deletion_timestamp is not None or not gang.is_let_in(group.status.phase)


def is_yet_to_start(case: ReconcileContext) -> bool:
    """Whether a job that is new or resumed has not got beyond its group. Its clock begins to run when its pods are made."""
    stored = case.stored
    return (stored.started_at is None or stored.phase is Phase.SUSPENDED) and not case.pods and is_held(case)


def waiting_for_group(case: ReconcileContext, progress: Progress) -> Blocked | None:
    """Why the pods of a job are not made, when it takes longer than usual. The words stay the same as long as it waits."""
    gang, group = case.job.gang, case.group
    if gang is None or group is None or not _is_somebody_held(case, progress):
        return None
    what = f"podgroup {gang.name}"
    is_leaving = group.metadata.deletion_timestamp is not None
    reason = Reason.TERMINATING if is_leaving else Reason.GANG_NOT_ADMITTED
    before = case.stored.record.blocked
    if before is not None and (before.object, before.reason) == (what, reason):
        return before
    if case.now < _told_at(case, group):
        return None
    not_let_in = f"{what}: the scheduler {gang.scheduler} has not let it in{_said_of(group)}"
    message = f"{what} {why_still_there(gang.resource, group.metadata.finalizers)}" if is_leaving else not_let_in
    return Blocked(object=what, reason=reason, message=message, since=format_time(case.now))


def told_next(case: ReconcileContext, progress: Progress) -> float | None:
    """When that is to be told."""
    if case.group is None or not _is_somebody_held(case, progress):
        return None
    moment = _told_at(case, case.group)
    return moment if case.now < moment else None


def _is_somebody_held(case: ReconcileContext, progress: Progress) -> bool:
    """A job all of whose pods are there may get a group later on: the operator was told to only then, or somebody took the first away."""
    return is_held(case) and any(role.count(ReplicaState.MISSING) for role in progress.roles)


def _told_at(case: ReconcileContext, group: PodGroup) -> float:
    """Counted from when somebody began to wait for it. What the scheduler says of it meanwhile does not make that shorter."""
    moments = (group.metadata.creation_timestamp, group.metadata.deletion_timestamp)
    begun = max((moment.timestamp() for moment in moments if moment is not None), default=0.0)
    return max(begun, lost_last(case)) + PATIENCE_SECONDS


def _said_of(group: PodGroup) -> str:
    said = (condition.message for condition in group.status.conditions if (condition.type, condition.status) == _UNSCHEDULABLE)
    return "".join(f": {message}" for message in said if message)
