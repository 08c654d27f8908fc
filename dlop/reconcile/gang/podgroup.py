"""The group of a job whose pods are placed together, as it is to be now: made before anything else, and kept up with the job."""

from __future__ import annotations

from dataclasses import replace

from dlop.api.child_objects import Create
from dlop.api.gang import Gang, GangMember, difference, group_body, group_metadata, group_spec
from dlop.api.progress import Progress, ReplicaState, RoleProgress
from dlop.kube.types import JsonObject
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.plan import Patch

_ENDED = (ReplicaState.SUCCEEDED, ReplicaState.FAILED)


def group_to_create(case: ReconcileContext, progress: Progress) -> tuple[Create, ...]:
    """The group, if it is asked for and not there."""
    gang = case.job.gang
    if gang is None or gang.place not in case.other_places or case.is_there(*gang.place) or gang.place in case.taken:
        return ()
    metadata = group_metadata(case.job.owned(gang.name), annotations=case.job.metadata.annotations)
    return (Create(gang.resource, group_body(gang, metadata, _wanted(case, gang, progress))),)


def group_to_change(case: ReconcileContext, progress: Progress) -> tuple[Patch, ...]:
    """The group that is there, if it says something else than it should: only what differs is written, and so only once."""
    gang, group = case.job.gang, case.group
    if gang is None or group is None or group.metadata.deletion_timestamp is not None or gang.place not in case.other_places:
        return ()
    patch = difference(group.spec, _wanted(case, gang, progress))
    return (Patch(gang.resource, group.metadata.uid, {"metadata": {"name": gang.name}, "spec": patch}),) if patch else ()


def _wanted(case: ReconcileContext, gang: Gang, progress: Progress) -> JsonObject:
    blank = Progress(roles=tuple(_without_anything(role) for role in progress.roles))
    return group_spec(
        gang,
        case.policy.scheduling,
        [GangMember(role.spec, _coming(role), waits=not case.job.may_start(role.spec, blank)) for role in progress.roles],
        queue="" if case.group is None else str(case.group.spec.get("queue") or ""),
        priorities=case.snapshot.priorities,
        make_pod=lambda role: case.job.make_pod(role, 0, attempt=0),
    )


def _coming(role: RoleProgress) -> int:
    """How many pods of a role there are, or are still to come."""
    return sum(1 for replica in role.replicas if replica.pod is not None or replica.state not in _ENDED)


def _without_anything(role: RoleProgress) -> RoleProgress:
    """A role none of which has begun."""
    replicas = (replace(each, state=ReplicaState.MISSING, pod=None, failure=None) for each in role.replicas)
    return replace(role, replicas=tuple(replicas))
