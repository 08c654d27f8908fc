"""The state of one pod, independent of any policy, and the assignment of pods to replicas by name or labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

from dlop.api.constants import ATTEMPT_LABEL, REPLACEMENT_ANNOTATION
from dlop.api.record import LastFailure
from dlop.api.spec import RoleSpec
from dlop.kube.objects import ContainerStateTerminated, ContainerStatus, Pod
from dlop.kube.timestamps import format_time

_DISRUPTION_REASONS = frozenset(
    {"Evicted", "Preempting", "NodeShutdown", "Shutdown", "Terminated", "NodeLost", "NodeAffinity", "UnexpectedAdmissionError"}
)
"""Reasons of failed pods that the node and not the program caused."""

_MAX_ATTEMPT_DIGITS = 9
"""A label that was edited by hand must not become a number that the record cannot store."""


class PodState(Enum):
    PENDING = auto()
    """Not running yet, or in phase Unknown."""
    RUNNING = auto()
    TERMINATING = auto()
    """Being deleted, and did not succeed before that."""
    SUCCEEDED = auto()
    FAILED = auto()
    DISRUPTED = auto()
    """Failed because of its node, an eviction or a preemption."""


@dataclass(frozen=True, slots=True)
class _Completion:
    succeeded: bool
    finished_at: float | None


def classify_pod(pod: Pod, role: RoleSpec) -> PodState:
    completion = _completion(pod, role)
    if completion is not None and completion.succeeded and not _is_after(completion.finished_at, _deletion_requested_at(pod)):
        return PodState.SUCCEEDED
    if pod.metadata.deletion_timestamp is not None:
        return PodState.TERMINATING
    if completion is not None:
        return PodState.DISRUPTED if _is_disrupted(pod) else PodState.FAILED
    return PodState.RUNNING if pod.status.phase == "Running" else PodState.PENDING


def has_started(pod: Pod, role: RoleSpec) -> bool:
    """Whether the main container has run. A pod stays Pending even if only a different container cannot start."""
    if pod.status.phase not in ("", "Pending"):
        return True
    main = main_container(pod, role)
    return main is not None and (main.restart_count > 0 or bool(main.state.running or main.state.terminated))


def pod_attempt(pod: Pod) -> int:
    """The attempt that created a pod; 0 if the label is missing or malformed."""
    label = pod.metadata.labels.get(ATTEMPT_LABEL, "")
    return int(label) if label.isdecimal() and len(label) <= _MAX_ATTEMPT_DIGITS else 0


def pod_replacement(pod: Pod) -> int:
    """How many pods of the same replica were lost in this attempt before; 0 if the annotation is missing or malformed."""
    number = pod.metadata.annotations.get(REPLACEMENT_ANNOTATION, "")
    return int(number) if number.isdecimal() and len(number) <= _MAX_ATTEMPT_DIGITS else 0


def container_restarts(pod: Pod) -> int:
    """The number of container restarts by the kubelet."""
    return sum([container.restart_count for container in _all_containers(pod)])


def pod_failure(pod: Pod, role: RoleSpec, index: int, *, now: float) -> LastFailure:
    """The failure or disruption of a pod, described by the most informative container."""
    return _failure(pod, role, index, _most_informative_termination(pod, role), now=now)


def main_container_failure(pod: Pod, role: RoleSpec, index: int, *, now: float) -> LastFailure:
    """The failure of the main container. Other containers say nothing about the training program."""
    main = main_container(pod, role)
    return _failure(pod, role, index, main.state.terminated if main else None, now=now)


def _failure(pod: Pod, role: RoleSpec, index: int, terminated: ContainerStateTerminated | None, *, now: float) -> LastFailure:
    finished_at = terminated.finished_at.timestamp() if terminated and terminated.finished_at else now
    return LastFailure(
        pod=pod.metadata.name,
        role=role.name,
        index=index,
        node=pod.spec.node_name,
        exit_code=terminated.exit_code if terminated else None,
        signal=_signal(terminated),
        reason=pod.status.reason or _disruption_reason(pod) or (terminated.reason if terminated else ""),
        message=(pod.status.message or (terminated.message if terminated else "")).strip(),
        time=format_time(finished_at),
    )


def main_container(pod: Pod, role: RoleSpec) -> ContainerStatus | None:
    """The status of the training container; None if the pod has no container statuses yet."""
    statuses = pod.status.container_statuses
    if not statuses:
        return None
    # The kubelet sorts container statuses by name and not by their order in the spec.
    first = pod.spec.containers[0].name if pod.spec.containers else statuses[0].name
    return _find_status(role.container, statuses) or _find_status(first, statuses)


def _find_status(name: str, statuses: tuple[ContainerStatus, ...]) -> ContainerStatus | None:
    for status in statuses:
        if status.name == name:
            return status
    return None


def _completion(pod: Pod, role: RoleSpec) -> _Completion | None:
    """A pod completes with its main container. A sidecar that is still running does not keep the replica from completing."""
    main = main_container(pod, role)
    terminated = main.state.terminated if main else None
    finished_at = terminated.finished_at.timestamp() if terminated and terminated.finished_at else None
    if pod.status.phase in ("Succeeded", "Failed"):
        return _Completion(pod.status.phase == "Succeeded" or _only_sidecars_failed(pod, terminated), finished_at)
    if terminated is None or _is_restarted_by_kubelet(pod, terminated):
        return None
    return _Completion(terminated.exit_code == 0, finished_at)


def _only_sidecars_failed(pod: Pod, main: ContainerStateTerminated | None) -> bool:
    """A failed pod whose main container exited with 0, for example because a sidecar was killed. A reason on the pod rules this out."""
    return main is not None and main.exit_code == 0 and not pod.status.reason


def _is_restarted_by_kubelet(pod: Pod, terminated: ContainerStateTerminated) -> bool:
    return pod.spec.restart_policy in ("", "Always") or (pod.spec.restart_policy == "OnFailure" and terminated.exit_code != 0)


def _deletion_requested_at(pod: Pod) -> float | None:
    """The time of the delete request. A pod that exits after this time was terminated, regardless of its exit code."""
    if pod.metadata.deletion_timestamp is None:
        return None
    return pod.metadata.deletion_timestamp.timestamp() - (pod.metadata.deletion_grace_period_seconds or 0)


def _is_after(time: float | None, limit: float | None) -> bool:
    """The same second counts as after, because one most likely caused the other."""
    return time is not None and limit is not None and time >= limit


def _is_disrupted(pod: Pod) -> bool:
    reason = pod.status.reason
    return reason in _DISRUPTION_REASONS or reason.startswith("OutOf") or bool(_disruption_reason(pod))


def _disruption_reason(pod: Pod) -> str:
    targets = (condition for condition in pod.status.conditions if condition.type == "DisruptionTarget" and condition.status == "True")
    return next((condition.reason or condition.type for condition in targets), "")


def _most_informative_termination(pod: Pod, role: RoleSpec) -> ContainerStateTerminated | None:
    """The main container before others, failures before successes, and the current state before the last one."""
    main = main_container(pod, role)
    terminations = list(_terminations(pod, first=main))
    return next((terminated for terminated in terminations if terminated.exit_code != 0), terminations[0] if terminations else None)


def _terminations(pod: Pod, *, first: ContainerStatus | None) -> Iterator[ContainerStateTerminated]:
    for container in (*((first,) if first else ()), *_all_containers(pod)):
        for state in (container.state, container.last_state):
            if state.terminated is not None:
                yield state.terminated


def _all_containers(pod: Pod) -> tuple[ContainerStatus, ...]:
    return pod.status.container_statuses + pod.status.init_container_statuses


def _signal(terminated: ContainerStateTerminated | None) -> int | None:
    """A program killed by signal N exits with 128 + N."""
    if terminated is None:
        return None
    return terminated.signal or (terminated.exit_code - 128 if 128 < terminated.exit_code < 160 else None)


# --- pods and replicas ---------------------------------------------------------------------------------------------------

ReplicaT = TypeVar("ReplicaT")


def match_pods(pods: Iterable[Pod], names: Mapping[str, ReplicaT], labels: Callable[[ReplicaT], Mapping[str, str]]) -> dict[str, Pod]:
    """Pods by the pod name of their replica. A pod without a replica is listed under its own name.

    `names` maps desired pod names to replicas, and `labels` returns the labels that identify a replica. A pod with another name
    belongs to a replica if it has these labels and no pod with the desired name exists. Other operators name pods differently.
    """
    by_name = {pod.metadata.name: pod for pod in pods}
    if by_name.keys() <= names.keys():
        return by_name  # the common case
    vacant = {frozenset(labels(replica).items()): name for name, replica in names.items() if name not in by_name}
    key_sets = {frozenset(key for key, _ in label_set) for label_set in vacant}
    return {name if name in names else _claim_by_labels(pod, vacant, key_sets): pod for name, pod in by_name.items()}


def _claim_by_labels(pod: Pod, vacant: dict[frozenset[tuple[str, str]], str], key_sets: Iterable[frozenset[str]]) -> str:
    """The desired pod name of the replica with the labels of this pod, which is then no longer vacant; otherwise the pod's own name."""
    return next((vacant.pop(label_set) for label_set in _label_sets(pod, key_sets) if label_set in vacant), pod.metadata.name)


def _label_sets(pod: Pod, key_sets: Iterable[frozenset[str]]) -> Iterator[frozenset[tuple[str, str]]]:
    labels = pod.metadata.labels
    for keys in key_sets:
        yield frozenset((key, labels[key]) for key in keys if key in labels)
