"""Why a job does not get on: what is in the way, told at once and not only when a deadline has passed."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.engine.case import Case
from dlop.engine.names import Reason
from dlop.engine.progress import Progress, ReplicaState
from dlop.engine.record import Blocked
from dlop.engine.snapshot import Refusal
from dlop.engine.times import written
from dlop.kube.objects import Pod
from dlop.kube.resources import PODS, Resource

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


def find_block(case: Case, progress: Progress) -> Blocked | None:
    """What is in the way, if something is: the first thing found. Told once, it stays as it was told, until the spec is edited."""
    found = next(_obstacles(case, progress), None)
    before = None if case.is_edited else case.stored.record.blocked
    is_the_same = found is not None and before is not None and (found.object, found.reason) == (before.object, before.reason)
    return before if is_the_same else found


def nothing_to_run(case: Case) -> Blocked | None:
    """Why a job that asks for no replicas neither runs nor ends."""
    if not case.is_idle:
        return None
    roles = case.job.deciding_roles()
    message = f"no replica is asked for that decides: raise the replicas of {' or '.join(roles)} above 0"
    before = case.stored.record.blocked
    if before is not None and before.message == message:
        return before
    return Blocked(object=f"role {roles[0]}", reason=Reason.NO_REPLICAS, message=message, since=written(case.now))


def _obstacles(case: Case, progress: Progress) -> Iterator[Blocked]:
    for foreign in case.snapshot.foreign:
        if (foreign.resource, foreign.name) in case.taken:
            owner = f" by {foreign.owner}" if foreign.owner else ""
            text = f"is taken{owner}: delete that object, or give the job another name"
            yield _block(case, foreign.resource, foreign.name, Reason.NAME_TAKEN, f"the name {text}")
    for refusal in _in_order(case, case.snapshot.refusals):
        yield _block(case, refusal.resource, refusal.name, Reason.CREATE_REFUSED, f"it could not be created: {refusal.message}")
    for pod in waiting_pods(progress):
        reason, text = why_waiting(pod)
        if reason:
            yield _block(case, PODS, pod.metadata.name, reason, f"it cannot start: {reason}{f': {text}' if text else ''}")


def _in_order(case: Case, refusals: tuple[Refusal, ...]) -> list[Refusal]:
    """In the order in which the objects are asked for, and not in that of the answers: the first is also the first to be tried again."""
    order = {name: number for number, name in enumerate(case.names)} if len(refusals) > 1 else {}
    return sorted(refusals, key=lambda refusal: (refusal.resource == PODS, order.get(refusal.name, -1)))


def _block(case: Case, resource: Resource, name: str, reason: str, text: str) -> Blocked:
    what = f"{resource.kind.lower()} {name}"
    return Blocked(object=what, reason=reason, message=f"{what}: {text}", since=written(case.now))


def waiting_pods(progress: Progress) -> Iterator[Pod]:
    """The pods that do not run yet."""
    for role in progress.roles:
        for replica in role.replicas:
            if replica.state is ReplicaState.PENDING and replica.pod is not None:
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
