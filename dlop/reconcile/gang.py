"""Gang scheduling: the PodGroup of a job, and its admission by the scheduler.

The PodGroup is created before all other objects and kept up to date. Pods and services are created after the scheduler has admitted
it, and not while a previous group is terminating.
"""

from __future__ import annotations

from dataclasses import replace

from dlop.api.child_objects import Create
from dlop.api.constants import Reason
from dlop.api.gang import Gang, GangMember, pod_group_body, pod_group_metadata, pod_group_of, pod_group_patch, pod_group_spec
from dlop.api.phase import Phase
from dlop.api.progress import Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.api.record import Blocked
from dlop.kube.objects import PodGroup
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.reconcile.backoff import last_backoff_end
from dlop.reconcile.blocked import REPORT_AFTER_SECONDS, describe_terminating
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Patch

_FINISHED = (ReplicaState.SUCCEEDED, ReplicaState.FAILED)


def pod_group_creates(context: ReconcileContext, progress: Progress) -> tuple[Create, ...]:
    """The create of the PodGroup, if it is desired and missing."""
    gang = context.job.gang
    if gang is None or gang.ref not in context.desired_children or context.exists(*gang.ref) or gang.ref in context.name_conflicts:
        return ()
    metadata = pod_group_metadata(context.job.child_metadata(gang.name), annotations=context.job.metadata.annotations)
    return (Create(gang.resource, pod_group_body(gang, metadata, _desired_spec(context, gang, progress))),)


def pod_group_patches(context: ReconcileContext, progress: Progress) -> tuple[Patch, ...]:
    """The patch of the PodGroup, if its spec has drifted. It contains only the changed fields."""
    gang, group = context.job.gang, context.pod_group
    if gang is None or group is None or group.metadata.deletion_timestamp is not None or gang.ref not in context.desired_children:
        return ()
    patch = pod_group_patch(group.spec, _desired_spec(context, gang, progress))
    return (Patch(gang.resource, group.metadata.uid, {"metadata": {"name": gang.name}, "spec": patch}),) if patch else ()


def _desired_spec(context: ReconcileContext, gang: Gang, progress: Progress) -> JsonObject:
    job, roles = context.job, {role.spec.name: role for role in progress.roles}
    return pod_group_spec(
        gang,
        context.policy.scheduling,
        [_with_expected_pods(context, member, roles[member.role.name], gang) for member in job.gang_members],
        queue="" if context.pod_group is None else str(context.pod_group.spec.get("queue") or ""),
        priorities=context.snapshot.priorities,
        make_pod=lambda role: job.replica(role, 0).pod(),
    )


def _with_expected_pods(context: ReconcileContext, member: GangMember, role: RoleProgress, gang: Gang) -> GangMember:
    """The pods of a role that are in the gang or will be created, without those that the job does not need."""
    expected = [replica for replica in role.replicas[: role.spec.minimum] if _is_expected(replica, gang)]
    spot = 0 if role.spec.spot is None else sum(context.job.is_spot(role.spec, replica.index) for replica in expected)
    return replace(member, count=len(expected), spot=spot)


def _is_expected(replica: ReplicaProgress, gang: Gang) -> bool:
    """Pods that were created for another scheduler, or by an operator with several groups per job, stay outside of the gang."""
    return replica.state not in _FINISHED if replica.pod is None else pod_group_of(replica.pod) == gang.ref


_UNSCHEDULABLE = ("Unschedulable", "True")


def awaits_admission(context: ReconcileContext) -> bool:
    """Whether pods and services have to wait for the PodGroup."""
    gang, group = context.job.gang, context.pod_group
    if gang is None:
        return False
    if group is None:
        return gang.resource in context.unavailable or not gang.is_admitted("")
    return group.metadata.deletion_timestamp is not None or not gang.is_admitted(group.status.phase)


def is_start_pending(context: ReconcileContext) -> bool:
    """Whether a new or resumed job still waits for its PodGroup. Its start time is set when its pods are created."""
    stored = context.stored
    return (stored.started_at is None or stored.phase is Phase.SUSPENDED) and not context.pods and awaits_admission(context)


def blocked_by_gang(context: ReconcileContext, progress: Progress) -> Blocked | None:
    """Why the pods are not created, if admission takes long. The message does not change while the job waits."""
    gang, group = context.job.gang, context.pod_group
    if gang is None or group is None or not _has_waiting_replicas(context, progress):
        return None
    subject = f"podgroup {gang.name}"
    is_terminating = group.metadata.deletion_timestamp is not None
    reason = Reason.TERMINATING if is_terminating else Reason.GANG_NOT_ADMITTED
    previous = context.stored.record.blocked
    if previous is not None and (previous.object, previous.reason) == (subject, reason):
        return previous
    if context.now < _report_time(context, group):
        return None
    if is_terminating:
        message = f"{subject} {describe_terminating(gang.resource, group.metadata.finalizers)}"
    else:
        message = f"{subject}: the scheduler {gang.scheduler} has not admitted it{_unschedulable_message(group)}"
    return Blocked(object=subject, reason=reason, message=message, since=format_time(context.now))


def next_admission_report(context: ReconcileContext, progress: Progress) -> float | None:
    """When missing admission is to be reported; None if there is nothing to report later."""
    if context.pod_group is None or not _has_waiting_replicas(context, progress):
        return None
    report_time = _report_time(context, context.pod_group)
    return report_time if context.now < report_time else None


def _has_waiting_replicas(context: ReconcileContext, progress: Progress) -> bool:
    """False if all pods exist. They may be older than the group, if gang scheduling was enabled later or the group was recreated."""
    return awaits_admission(context) and any(role.count(ReplicaState.MISSING) for role in progress.roles)


def _report_time(context: ReconcileContext, group: PodGroup) -> float:
    """Counted from the creation or deletion of the group, or from the end of the back-off. Status updates do not change it."""
    timestamps = (group.metadata.creation_timestamp, group.metadata.deletion_timestamp)
    waiting_since = max((timestamp.timestamp() for timestamp in timestamps if timestamp is not None), default=0.0)
    return max(waiting_since, last_backoff_end(context)) + REPORT_AFTER_SECONDS


def _unschedulable_message(group: PodGroup) -> str:
    messages = (condition.message for condition in group.status.conditions if (condition.type, condition.status) == _UNSCHEDULABLE)
    return "".join(f": {message}" for message in messages if message)
