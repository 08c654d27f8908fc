"""What a job waits for, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dlop.api.phase import Phase
from dlop.api.progress import ReplicaState
from dlop.api.record import Blocked
from dlop.jobs.lookup import JobHandle
from dlop.jobs.replicas import LEAVING, ReplicaView

_MOST_NAMES = 4
_WAITING = (ReplicaState.PENDING, ReplicaState.RUNNING)


@dataclass(frozen=True, slots=True)
class _Stuck:
    """Pods that do not go on, for the same reason."""

    pods: list[str]
    reason: str
    sentence: str


def waits_of(found: JobHandle, replicas: Iterable[ReplicaView], *, problems: str) -> Iterator[str]:
    """What is in the way of a job, the most important first; nothing when it goes on as it should, or is over."""
    phase, record = found.phase(), found.record()
    if found.metadata.deletion_timestamp is not None:
        finalizers = ", ".join(found.metadata.finalizers)
        yield f"it is being deleted{f', and waits for the finalizers {finalizers}' if finalizers else ''}"
        return
    if phase is not None and phase.is_end:
        return
    yield from _operator(found, phase)
    if problems:
        yield f"its spec cannot be run until it is mended: {problems}"
        return
    stuck = list(_pods(replicas))
    if record.blocked is not None and not _is_told(record.blocked, stuck):
        yield record.blocked.message or record.blocked.reason
    if phase is Phase.SUSPENDED:
        yield f"it is suspended; `dlop resume {found.name}` lets it go on"
    yield from (group.sentence for group in stuck)


def _is_told(blocked: Blocked, stuck: Iterable[_Stuck]) -> bool:
    """Whether the operator's word on one pod is a part of what all pods tell."""
    return any(group.reason in blocked.message and blocked.object in (f"pod {pod}" for pod in group.pods) for group in stuck)


def _operator(found: JobHandle, phase: Phase | None) -> Iterator[str]:
    job, record = found.job(), found.record()
    if job.managed_elsewhere:
        yield "spec.runPolicy.managedBy names another operator, and dlop leaves the job to it"
    elif phase is None:
        yield "no operator has looked at it yet; is one running (`dlop run`, or `dlop deploy`) that looks after this namespace and kind?"
    elif 0 < record.observed_generation < found.metadata.generation:
        yield "the operator has not seen the last change of its spec yet"


def _pods(replicas: Iterable[ReplicaView]) -> Iterator[_Stuck]:
    """Pods that do not run, together where they have the same reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    leaving: list[str] = []
    for each in replicas:
        if each.state == LEAVING:
            leaving.append(each.pod)
        elif each.state in _WAITING and _is_stuck(each):
            groups.setdefault((each.reason, each.message), []).append(each.pod)
    for (reason, message), pods in groups.items():
        yield _Stuck(pods, reason, f"{_named(pods)}: {reason}{f': {message}' if message and message != reason else ''}")
    if leaving:
        yield _Stuck(leaving, LEAVING, f"{_named(leaving)}: told to go, and not gone yet")


def _is_stuck(replica: ReplicaView) -> bool:
    """A pod that runs has a reason only while its container waits to be started again."""
    return bool(replica.reason) and (replica.state == ReplicaState.PENDING or replica.reason.endswith("BackOff"))


def _named(pods: list[str]) -> str:
    shown, more = pods[:_MOST_NAMES], len(pods) - _MOST_NAMES
    return f"pod{'s' if len(pods) > 1 else ''} {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
