"""Why a job does not get on: what is in the way, told at once and not only when a deadline has passed.

Objects on their way out that have a name which the job needs: those of a deleted job of the same name, and its own last group.

Most are gone in a moment. Of one that is not, it is told what holds it, and what to do about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dlop.api.constants import GANG_RIGHTS, Reason, rbac_hint
from dlop.api.progress import Progress, ReplicaState
from dlop.api.record import Blocked
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.kube.timestamps import earliest, format_time
from dlop.reconcile.context import ReconcileContext
from dlop.reconcile.snapshot import RejectedWrite, TerminatingConflict

_RIGHTS = re.compile(r"cannot \w+ resource|attempting to grant")
"""How the server says that the operator itself may not do something. A quota is told in other words, and mended elsewhere."""

_FAMILIES = {
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "ImageInspectError": "ImagePullBackOff",
    "ErrImageNeverPull": "ErrImageNeverPull",
    "InvalidImageName": "InvalidImageName",
    "RegistryUnavailable": "ImagePullBackOff",
    "CreateContainerConfigError": "CreateContainerConfigError",
    "CreateContainerError": "CreateContainerError",
    "RunContainerError": "RunContainerError",
}
"""Reasons why a container does not start without help. Those that take turns with each other have one name."""


def find_blocked(case: ReconcileContext, progress: Progress) -> Blocked | None:
    """What is in the way, if something is: the first thing found. Told once, it stays as it was told, until the spec is edited."""
    found = next(_obstacles(case, progress), None)
    before = None if case.is_edited else case.stored.record.blocked
    is_the_same = found is not None and before is not None and (found.object, found.reason) == (before.object, before.reason)
    return before if is_the_same else found


def nothing_to_run(case: ReconcileContext) -> Blocked | None:
    """Why a job that asks for no replicas neither runs nor ends."""
    if not case.is_idle:
        return None
    roles = case.job.deciding_roles()
    message = f"no replica is asked for that decides: raise the replicas of {' or '.join(roles)} above 0"
    before = case.stored.record.blocked
    if before is not None and before.message == message:
        return before
    return Blocked(object=f"role {roles[0]}", reason=Reason.NO_REPLICAS, message=message, since=format_time(case.now))


def _obstacles(case: ReconcileContext, progress: Progress) -> Iterator[Blocked]:
    if case.unreadable:
        yield _out_of_reach(case)
    for foreign in case.snapshot.foreign:
        if (foreign.resource, foreign.name) in case.taken:
            owner = f" by {foreign.owner}" if foreign.owner else ""
            text = f"is taken{owner}: delete that object, or give the job another name"
            yield _block(case, foreign.resource, foreign.name, Reason.NAME_CONFLICT, f"the name {text}")
    yield from left_over(case)
    for refusal in _in_order(case, case.snapshot.refusals):
        yield _refused(case, refusal)
    for pod in waiting_pods(progress):
        reason, text = why_waiting(pod)
        if reason:
            yield _block(case, PODS, pod.metadata.name, reason, f"it cannot start: {reason}{f': {text}' if text else ''}")


def _out_of_reach(case: ReconcileContext) -> Blocked:
    """What the job needs and the operator cannot read: first what the cluster does not have, for rights do not mend that."""
    unserved = [resource for resource in case.unreadable if resource in case.snapshot.unserved]
    listed = ", ".join(resource.qualified_name for resource in unserved or case.unreadable)
    if unserved:
        message = f"the cluster does not serve {listed}, which this job needs: {_way_to_have(case, unserved)}"
        return Blocked(object="cluster", reason=Reason.CRD_NOT_INSTALLED, message=message, since=format_time(case.now))
    message = f"the operator may not read {listed}, which this job needs: {_way_to_rights(case, case.unreadable)}"
    return Blocked(object="operator", reason=Reason.FORBIDDEN, message=message, since=format_time(case.now))


def _way_to_have(case: ReconcileContext, resources: Iterable[Resource]) -> str:
    if case.job.gang is None or case.job.gang.resource not in resources:
        return "install the definitions of these"
    return f"install the scheduler {case.job.gang.scheduler}, or start the operator without --gang-scheduler-name"


def _way_to_rights(case: ReconcileContext, resources: Iterable[Resource]) -> str:
    is_of_gang = case.job.gang is not None and case.job.gang.resource in resources
    return rbac_hint(GANG_RIGHTS) if is_of_gang else case.job.rbac_hint


def _refused(case: ReconcileContext, refusal: RejectedWrite) -> Blocked:
    is_there = case.is_there(refusal.resource, refusal.name)
    text = f"it could not be {'changed' if is_there else 'created'}: {refusal.message}"
    if refusal.resource in (PODS, SERVICES) or not _RIGHTS.search(refusal.message):
        reason = Reason.FAILED_UPDATE if is_there else Reason.FAILED_CREATE
        return _block(case, refusal.resource, refusal.name, reason, text)
    return _block(case, refusal.resource, refusal.name, Reason.FORBIDDEN, f"{text}; {_way_to_rights(case, (refusal.resource,))}")


def _in_order(case: ReconcileContext, refusals: tuple[RejectedWrite, ...]) -> list[RejectedWrite]:
    """In the order in which the objects are asked for, and not in that of the answers: the first is also the first to be tried again."""
    order = {name: number for number, name in enumerate(case.names)} if len(refusals) > 1 else {}
    return sorted(refusals, key=lambda refusal: (refusal.resource == PODS, order.get(refusal.name, -1)))


def _block(case: ReconcileContext, resource: Resource, name: str, reason: str, text: str) -> Blocked:
    what = f"{resource.kind.lower()} {name}"
    return Blocked(object=what, reason=reason, message=f"{what}: {text}", since=format_time(case.now))


def waiting_pods(progress: Progress) -> Iterator[Pod]:
    """The pods that do not run yet. One of which nobody knows whether it runs has been on a node, which may be lost."""
    for role in progress.roles:
        for replica in role.replicas:
            if replica.state is ReplicaState.PENDING and replica.pod is not None and replica.pod.status.phase != "Unknown":
                yield replica.pod


def why_waiting(pod: Pod) -> tuple[str, str]:
    """Why a pod does not run yet, as a reason and a text; both empty when it is only slow."""
    for container in pod.status.init_container_statuses + pod.status.container_statuses:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason in _FAMILIES:
            return _FAMILIES[waiting.reason], waiting.message
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.reason, condition.message
    return "", ""


PATIENCE_SECONDS = 30
"""How long something is waited for before anybody is told. Most things take a moment only, and nobody wants to hear of that."""


def left_over(case: ReconcileContext) -> Iterator[Blocked]:
    """What a deleted job of the same name has left behind, and should be gone by now."""
    for each in _in_the_way(case):
        if case.now >= _told_at(each):
            what = f"{each.resource.kind.lower()} {each.name}"
            message = f"{what} of the deleted {each.owner} {why_still_there(each.resource, each.finalizers, is_leaving=each.is_leaving)}"
            yield Blocked(object=what, reason=Reason.TERMINATING, message=message, since=format_time(case.now))


def next_terminating_conflict(case: ReconcileContext) -> float | None:
    """When that is to be told."""
    return earliest(*(_told_at(each) for each in _in_the_way(case) if case.now < _told_at(each)))


def why_still_there(resource: Resource, finalizers: Sequence[str], *, is_leaving: bool = True) -> str:
    """What holds an object, and what to do about it, as the rest of a sentence that begins with its name."""
    if not is_leaving:
        return "is still there: delete it, or wait for the garbage collector"
    if finalizers:
        return f"is still being deleted: finalizers {', '.join(finalizers)}; remove them, or wait"
    if resource == PODS:
        return "is still being deleted: its node has not let go of it; delete it by force, or wait"
    return "is still being deleted: wait"


def _in_the_way(case: ReconcileContext) -> Iterator[TerminatingConflict]:
    return (each for each in case.snapshot.leftovers if case.is_asked_for(each.resource, each.name))


def _told_at(leftover: TerminatingConflict) -> float:
    return leftover.since + PATIENCE_SECONDS
