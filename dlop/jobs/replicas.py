"""The replicas of a job as a person wants to see them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from dlop.api.progress import ReplicaState
from dlop.api.record import LastFailure, Record, indexes_of
from dlop.api.spec import JobSpec, RoleSpec
from dlop.job import DLJob
from dlop.kube.objects import ContainerStatus, Pod, Terminated
from dlop.kube.timestamps import format_time
from dlop.reconcile.pod_state import PodState, attempt_of, by_replica, classify_pod, main_container, restarts_of

GONE = "Gone"
"""Of a job that is over: the pod was deleted before its work was done, as far as anybody has noted."""
LEAVING = "Terminating"
_STATES = {
    PodState.WAITS: ReplicaState.PENDING.value,
    PodState.RUNS: ReplicaState.RUNNING.value,
    PodState.LEAVES: LEAVING,
    PodState.SUCCEEDED: ReplicaState.SUCCEEDED.value,
    PodState.FAILED: ReplicaState.FAILED.value,
    PodState.TAKEN_AWAY: ReplicaState.DISRUPTED.value,
}
_NUMBER = re.compile(r"(\d+)(?!.*\d)")
_NO_ROLE = RoleSpec(name="", replicas=0)


class ReplicaView(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One replica."""

    role: str
    """Empty for a pod that fits none."""
    index: int
    state: str
    """A `ReplicaState`, `Terminating`, or `Gone`."""
    pod: str
    """The name that its pod has or would have."""
    pod_uid: str = ""
    """Empty when there is no pod."""
    container: str = ""
    """The one that takes part in the job."""
    restarts: int = 0
    """Of containers in this pod, and of pods before it that were lost not long ago."""
    attempt: int = 0
    address: str = ""
    node: str = ""
    exit_code: int | None = None
    """How it ended last."""
    reason: str = ""
    message: str = ""
    started_at: str = ""


def replica_views(job: DLJob, spec: JobSpec, pods: Iterable[Pod], *, record: Record, is_over: bool) -> tuple[ReplicaView, ...]:
    """All replicas that the job asks for, role by role, and then the pods that it does not ask for any more."""
    names = {job.replica_name(role, index): (role, index) for role in spec.roles for index in range(role.replicas)}
    left = by_replica(pods, names, lambda place: job.labels(*place))
    done, lost = ({role.name: indexes_of(ranges.get(role.name, "")) for role in spec.roles} for ranges in (record.completed, record.failed))
    found: list[ReplicaView] = []
    for name, (role, index) in names.items():
        noted = ReplicaState.SUCCEEDED if index in done[role.name] else ReplicaState.FAILED if index in lost[role.name] else None
        found.append(_view(role, index, name, left.pop(name, None), record=record, noted=noted, is_over=is_over))
    for name, pod in left.items():
        role, index = _place_of(job, spec, name)
        found.append(_view(role, index, name, pod, record=record, noted=None, is_over=is_over))
    return tuple(found)


def _view(
    role: RoleSpec, index: int, name: str, pod: Pod | None, *, record: Record, noted: ReplicaState | None, is_over: bool
) -> ReplicaView:
    lost = record.retries.get(f"{role.name}/{index}")
    losses = 0 if lost is None else lost.losses
    failure = record.last_failure
    if failure is None or (failure.role, failure.index) != (role.name, index):
        failure = None
    if pod is None:
        return _without_pod(role, index, name, noted=noted, is_over=is_over, losses=losses, failure=failure)
    main = main_container(pod, role)
    ended = _last_end(main)
    reason, message = _reason(pod, main)
    return ReplicaView(
        role=role.name,
        index=index,
        state=noted or _state(pod, role, main, is_over=is_over),
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        container=main.name if main is not None else _first_container(pod, role),
        restarts=restarts_of(pod) + losses,
        attempt=attempt_of(pod),
        address=pod.status.pod_ip,
        node=pod.spec.node_name,
        exit_code=None if ended is None else ended.exit_code,
        reason=reason,
        message=message,
        started_at="" if pod.status.start_time is None else format_time(pod.status.start_time.timestamp()),
    )


def _state(pod: Pod, role: RoleSpec, main: ContainerStatus | None, *, is_over: bool) -> str:
    state = _STATES[classify_pod(pod, role)]
    if not is_over or state != LEAVING or main is None or main.state.terminated is None:
        return state
    # The job is done with it, and it has come to its end while it was told to go.
    return ReplicaState.SUCCEEDED.value if main.state.terminated.exit_code == 0 else GONE


def _without_pod(
    role: RoleSpec, index: int, name: str, *, noted: ReplicaState | None, is_over: bool, losses: int, failure: LastFailure | None
) -> ReplicaView:
    succeeded = noted is ReplicaState.SUCCEEDED
    return ReplicaView(
        role=role.name,
        index=index,
        state=noted or (GONE if is_over else ReplicaState.MISSING),
        pod=name,
        restarts=losses,
        exit_code=0 if succeeded else failure.exit_code if failure else None,
        reason=failure.reason if failure and not succeeded else "",
        message=failure.message if failure and not succeeded else "",
    )


def _last_end(main: ContainerStatus | None) -> Terminated | None:
    return None if main is None else main.state.terminated or main.last_state.terminated


def _first_container(pod: Pod, role: RoleSpec) -> str:
    names = [container.name for container in pod.spec.containers]
    return role.container if role.container in names else next(iter(names), "")


def _reason(pod: Pod, main: ContainerStatus | None) -> tuple[str, str]:
    """Why the pod is as it is: the first of those who have something to say."""
    return next((said for said in _reasons(pod, main) if said[0]), ("", ""))


def _reasons(pod: Pod, main: ContainerStatus | None) -> Iterator[tuple[str, str]]:
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
        yield "SchedulingGated", f"it waits for {gates}"


def _place_of(job: DLJob, spec: JobSpec, name: str) -> tuple[RoleSpec, int]:
    """The role and the number of a pod that the job does not ask for any more: its name ends with the number."""
    number = _NUMBER.search(name)
    # A number that was never a replica's must not become one that no memory can hold.
    index = int(number[1]) if number is not None and len(number[1]) < 10 else -1
    role = next((role for role in spec.roles if index >= 0 and job.replica_name(role, index) == name), None)
    return (_NO_ROLE, -1) if role is None else (role, index)
