"""What one pod tells of its replica, before any policy is asked: whether it waits, runs, has ended, and how.

Which pod is which replica's: by its name, or by its labels where somebody else has named it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from dlop.api.constants import ATTEMPT_LABEL
from dlop.api.record import LastFailure
from dlop.api.spec import RoleSpec
from dlop.kube.objects import ContainerStatus, Pod, Terminated
from dlop.kube.timestamps import format_time

_TAKEN_AWAY = frozenset(
    {"Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost", "NodeAffinity", "UnexpectedAdmissionError"}
)
"""Reasons of failed pods with which a node, and not the program, ended or refused the pod."""

_MOST_DIGITS = 9
"""Of an attempt: a label that somebody has written by hand must not become a number that no record can hold."""


class PodState(Enum):
    """What a look at a pod shows."""

    WAITS = auto()
    """It does not run yet, or nobody knows whether it still does."""
    RUNS = auto()
    LEAVES = auto()
    """It is being deleted, and has not come to an end by itself before that."""
    SUCCEEDED = auto()
    FAILED = auto()
    TAKEN_AWAY = auto()
    """It has failed, and not by its own fault."""


@dataclass(frozen=True, slots=True)
class _End:
    succeeded: bool
    at: float | None


def classify_pod(pod: Pod, role: RoleSpec) -> PodState:
    """What this pod shows."""
    end = _end_of(pod, role)
    if end is not None and end.succeeded and not _is_after(end.at, _told_to_leave_at(pod)):
        return PodState.SUCCEEDED
    if pod.metadata.deletion_timestamp is not None:
        return PodState.LEAVES
    if end is not None:
        return PodState.TAKEN_AWAY if _was_taken_away(pod) else PodState.FAILED
    return PodState.RUNS if pod.status.phase == "Running" else PodState.WAITS


def has_begun(pod: Pod, role: RoleSpec) -> bool:
    """Whether anything of the main container has run: a pod also waits while only another container does not start."""
    if pod.status.phase not in ("", "Pending"):
        return True
    main = main_container(pod, role)
    return main is not None and (main.restart_count > 0 or bool(main.state.running or main.state.terminated))


def attempt_of(pod: Pod) -> int:
    """The attempt that a pod belongs to. A pod that does not say so was there before there were attempts."""
    label = pod.metadata.labels.get(ATTEMPT_LABEL, "")
    return int(label) if label.isdecimal() and len(label) <= _MOST_DIGITS else 0


def restarts_of(pod: Pod) -> int:
    """How often the node has restarted containers of a pod."""
    return sum([container.restart_count for container in _all_containers(pod)])


def failure_of(pod: Pod, role: RoleSpec, index: int, *, now: float) -> LastFailure:
    """How a pod failed, or went, as far as anything of it can tell."""
    return _failure(pod, role, index, _worst_end(pod, role), now=now)


def own_failure_of(pod: Pod, role: RoleSpec, index: int, *, now: float) -> LastFailure:
    """The same as far as its main container tells: what became of the others says nothing about the program."""
    main = main_container(pod, role)
    return _failure(pod, role, index, main.state.terminated if main else None, now=now)


def _failure(pod: Pod, role: RoleSpec, index: int, ended: Terminated | None, *, now: float) -> LastFailure:
    finished_at = ended.finished_at.timestamp() if ended and ended.finished_at else now
    return LastFailure(
        pod=pod.metadata.name,
        role=role.name,
        index=index,
        node=pod.spec.node_name,
        exit_code=ended.exit_code if ended else None,
        signal=_signal_of(ended),
        reason=pod.status.reason or _disruption_reason(pod) or (ended.reason if ended else ""),
        message=(pod.status.message or (ended.message if ended else "")).strip(),
        time=format_time(finished_at),
    )


def main_container(pod: Pod, role: RoleSpec) -> ContainerStatus | None:
    """What has become of the container whose end is the end of the replica."""
    statuses = pod.status.container_statuses
    if not statuses:
        return None
    # Nodes list containers in the order of their names, not of the spec.
    first = pod.spec.containers[0].name if pod.spec.containers else statuses[0].name
    return _status_of(role.container, statuses) or _status_of(first, statuses)


def _status_of(name: str, statuses: tuple[ContainerStatus, ...]) -> ContainerStatus | None:
    for status in statuses:
        if status.name == name:
            return status
    return None


def _end_of(pod: Pod, role: RoleSpec) -> _End | None:
    """A pod ends with its main container: a side-car that goes on running does not keep the replica from ending."""
    main = main_container(pod, role)
    ended = main.state.terminated if main else None
    at = ended.finished_at.timestamp() if ended and ended.finished_at else None
    if pod.status.phase in ("Succeeded", "Failed"):
        return _End(pod.status.phase == "Succeeded" or _only_others_failed(pod, ended), at)
    if ended is None or _comes_back(pod, ended):
        return None
    return _End(ended.exit_code == 0, at)


def _only_others_failed(pod: Pod, ended: Terminated | None) -> bool:
    """A failed pod whose main container did well: a side-car was torn down. A reason on the pod means more than that."""
    return ended is not None and ended.exit_code == 0 and not pod.status.reason


def _comes_back(pod: Pod, ended: Terminated) -> bool:
    """Whether the node restarts the container by itself."""
    return pod.spec.restart_policy in ("", "Always") or (pod.spec.restart_policy == "OnFailure" and ended.exit_code != 0)


def _told_to_leave_at(pod: Pod) -> float | None:
    """When the pod was asked to go: an end after that is not one of its own will, whatever its exit code."""
    if pod.metadata.deletion_timestamp is None:
        return None
    return pod.metadata.deletion_timestamp.timestamp() - (pod.metadata.deletion_grace_period_seconds or 0)


def _is_after(moment: float | None, limit: float | None) -> bool:
    """In the same second counts as after: most likely the one is the cause of the other."""
    return moment is not None and limit is not None and moment >= limit


def _was_taken_away(pod: Pod) -> bool:
    reason = pod.status.reason
    return reason in _TAKEN_AWAY or reason.startswith("OutOf") or bool(_disruption_reason(pod))


def _disruption_reason(pod: Pod) -> str:
    found = (condition for condition in pod.status.conditions if condition.type == "DisruptionTarget" and condition.status == "True")
    return next((condition.reason or condition.type for condition in found), "")


def _worst_end(pod: Pod, role: RoleSpec) -> Terminated | None:
    """The end that tells most: of the main container, else of another one that failed; ended now, else before its restart."""
    main = main_container(pod, role)
    ends = list(_ends(pod, first=main))
    return next((end for end in ends if end.exit_code != 0), ends[0] if ends else None)


def _ends(pod: Pod, *, first: ContainerStatus | None) -> Iterator[Terminated]:
    for container in (*((first,) if first else ()), *_all_containers(pod)):
        for state in (container.state, container.last_state):
            if state.terminated is not None:
                yield state.terminated


def _all_containers(pod: Pod) -> tuple[ContainerStatus, ...]:
    return pod.status.container_statuses + pod.status.init_container_statuses


def _signal_of(ended: Terminated | None) -> int | None:
    """Programs killed by signal N end with 128 + N."""
    if ended is None:
        return None
    return ended.signal or (ended.exit_code - 128 if 128 < ended.exit_code < 160 else None)


Replica = TypeVar("Replica")


def by_replica(pods: Iterable[Pod], names: Mapping[str, Replica], labels: Callable[[Replica], Mapping[str, str]]) -> dict[str, Pod]:
    """Pods by the names that the pods of their replicas are to have; one that is nobody's keeps its own.

    `names` are the replicas by these names, `labels` tells one of them from all others. A pod of another name that bears them is
    that replica's too, unless there is one of the right name.
    """
    found = {pod.metadata.name: pod for pod in pods}
    if found.keys() <= names.keys():
        return found  # as nearly always
    vacant = {frozenset(labels(replica).items()): name for name, replica in names.items() if name not in found}
    kinds = {frozenset(label for label, _ in marks) for marks in vacant}
    return {name if name in names else _claimed(pod, vacant, kinds): pod for name, pod in found.items()}


def _claimed(pod: Pod, vacant: dict[frozenset[tuple[str, str]], str], kinds: Iterable[frozenset[str]]) -> str:
    """The name of the replica that a pod is by its labels. No other pod is that one then."""
    return next((vacant.pop(marks) for marks in _marks(pod, kinds) if marks in vacant), pod.metadata.name)


def _marks(pod: Pod, kinds: Iterable[frozenset[str]]) -> Iterator[frozenset[tuple[str, str]]]:
    labels = pod.metadata.labels
    for kind in kinds:
        yield frozenset((label, labels[label]) for label in kind if label in labels)
