"""The state of every replica of a job. Pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator

import msgspec

from dlop.api.progress import ReplicaState
from dlop.api.record import LastFailure, Record, parse_counts, parse_indexes
from dlop.api.spec import JobSpec, RoleSpec
from dlop.job import DLJob
from dlop.kube.objects import ContainerStateTerminated, ContainerStatus, Pod
from dlop.kube.timestamps import format_time
from dlop.reconcile.pod_state import PodState, classify_pod, container_restarts, main_container, match_pods, pod_attempt

GONE = "Gone"
"""State of a replica of a finished job whose pod was deleted and whose completion is not recorded."""
TERMINATING = "Terminating"
_STATES = {
    PodState.PENDING: ReplicaState.PENDING.value,
    PodState.RUNNING: ReplicaState.RUNNING.value,
    PodState.TERMINATING: TERMINATING,
    PodState.SUCCEEDED: ReplicaState.SUCCEEDED.value,
    PodState.FAILED: ReplicaState.FAILED.value,
    PodState.DISRUPTED: ReplicaState.DISRUPTED.value,
}
_LAST_NUMBER = re.compile(r"(\d+)(?!.*\d)")
_NO_ROLE = RoleSpec(name="", replicas=0)


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    role: str
    """Empty for a pod that matches no role."""
    index: int
    state: str
    """A `ReplicaState`, `Terminating` or `Gone`."""
    pod: str
    """The name that the pod has or will have."""
    pod_uid: str = ""
    """Empty if there is no pod."""
    container: str = ""
    """The main container."""
    restarts: int = 0
    """Container restarts in this pod, plus the pods of this attempt that it replaces."""
    attempt: int = 0
    address: str = ""
    node: str = ""
    exit_code: int | None = None
    """Of the last termination."""
    reason: str = ""
    message: str = ""
    started_at: str = ""


def replica_views(job: DLJob, spec: JobSpec, pods: Iterable[Pod], *, record: Record, is_finished: bool) -> tuple[ReplicaView, ...]:
    """All desired replicas by role, followed by surplus pods."""
    naming = job.naming
    names = {naming.pod_name(job, role, index): (role, index) for role in spec.roles for index in range(role.replicas)}
    remaining_pods = match_pods(pods, names, lambda role_index: naming.labels(job, *role_index))
    completed, failed = (
        {role.name: parse_indexes(ranges.get(role.name, "")) for role in spec.roles}
        for ranges in (record.completed_indexes, record.failed_indexes)
    )
    replaced = {role.name: parse_counts(record.replacements.get(role.name, {})) for role in spec.roles}
    view = functools.partial(_view, last_failure=record.last_failure, is_finished=is_finished)
    views: list[ReplicaView] = []
    for name, (role, index) in names.items():
        recorded = ReplicaState.SUCCEEDED if index in completed[role.name] else ReplicaState.FAILED if index in failed[role.name] else None
        replacements = replaced[role.name].get(index, 0)
        views.append(view(role, index, name, remaining_pods.pop(name, None), replacements=replacements, recorded=recorded))
    for name, pod in remaining_pods.items():
        role, index = _role_and_index(job, spec, name)
        views.append(view(role, index, name, pod, replacements=0, recorded=None))
    return tuple(views)


def _view(
    role: RoleSpec,
    index: int,
    name: str,
    pod: Pod | None,
    *,
    replacements: int,
    recorded: ReplicaState | None,
    last_failure: LastFailure | None,
    is_finished: bool,
) -> ReplicaView:
    is_last = last_failure is not None and (last_failure.role, last_failure.index) == (role.name, index)
    failure = last_failure if is_last else None
    if pod is None:
        return _without_pod(role, index, name, recorded=recorded, is_finished=is_finished, replacements=replacements, failure=failure)
    main = main_container(pod, role)
    termination = _last_termination(main)
    reason, message = _reason(pod, main)
    return ReplicaView(
        role=role.name,
        index=index,
        state=recorded or _state(pod, role, main, is_finished=is_finished),
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        container=main.name if main is not None else _first_container(pod, role),
        restarts=container_restarts(pod) + replacements,
        attempt=pod_attempt(pod),
        address=pod.status.pod_ip,
        node=pod.spec.node_name,
        exit_code=None if termination is None else termination.exit_code,
        reason=reason,
        message=message,
        started_at="" if pod.status.start_time is None else format_time(pod.status.start_time.timestamp()),
    )


def _state(pod: Pod, role: RoleSpec, main: ContainerStatus | None, *, is_finished: bool) -> str:
    state = _STATES[classify_pod(pod, role)]
    if not is_finished or state != TERMINATING or main is None or main.state.terminated is None:
        return state
    # The pod terminated after the job had finished.
    return ReplicaState.SUCCEEDED.value if main.state.terminated.exit_code == 0 else GONE


def _without_pod(
    role: RoleSpec,
    index: int,
    name: str,
    *,
    recorded: ReplicaState | None,
    is_finished: bool,
    replacements: int,
    failure: LastFailure | None,
) -> ReplicaView:
    succeeded = recorded is ReplicaState.SUCCEEDED
    return ReplicaView(
        role=role.name,
        index=index,
        state=recorded or (GONE if is_finished else ReplicaState.MISSING),
        pod=name,
        restarts=replacements,
        exit_code=0 if succeeded else failure.exit_code if failure else None,
        reason=failure.reason if failure and not succeeded else "",
        message=failure.message if failure and not succeeded else "",
    )


def _last_termination(main: ContainerStatus | None) -> ContainerStateTerminated | None:
    return None if main is None else main.state.terminated or main.last_state.terminated


def _first_container(pod: Pod, role: RoleSpec) -> str:
    names = [container.name for container in pod.spec.containers]
    return role.container if role.container in names else next(iter(names), "")


def _reason(pod: Pod, main: ContainerStatus | None) -> tuple[str, str]:
    return next((candidate for candidate in _candidate_reasons(pod, main) if candidate[0]), ("", ""))


def _candidate_reasons(pod: Pod, main: ContainerStatus | None) -> Iterator[tuple[str, str]]:
    yield pod.status.reason, pod.status.message
    if main is not None and main.state.terminated is not None:
        yield main.state.terminated.reason, main.state.terminated.message.strip()
    for container in (*pod.status.init_container_statuses, *((main,) if main else ()), *pod.status.container_statuses):
        if container.state.waiting is not None and container.state.waiting.reason != "PodInitializing":
            yield container.state.waiting.reason, container.state.waiting.message
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            yield condition.reason, condition.message
    if gates := ", ".join(gate.name for gate in pod.spec.scheduling_gates):
        yield "SchedulingGated", f"waiting for {gates}"


def _role_and_index(job: DLJob, spec: JobSpec, name: str) -> tuple[RoleSpec, int]:
    """The role and index of a surplus pod, whose name ends with the index."""
    number = _LAST_NUMBER.search(name)
    # Ignore numbers that are too large to be an index.
    index = int(number[1]) if number is not None and len(number[1]) < 10 else -1
    role = next((role for role in spec.roles if index >= 0 and job.naming.pod_name(job, role, index) == name), None)
    return (_NO_ROLE, -1) if role is None else (role, index)
