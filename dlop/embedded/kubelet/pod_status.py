"""Computes the status of a pod from the observed state of its containers. Pure.

Phase, conditions and container states follow the rules of the kubelet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlop.embedded.kubelet.conditions import pod_conditions
from dlop.embedded.kubelet.crash_loop_backoff import ContainerRole, container_role, should_restart
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class WaitingState:
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class RunningState:
    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminatedState:
    exit_code: int
    reason: str
    message: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    container_id: str = ""


ObservedState: TypeAlias = WaitingState | RunningState | TerminatedState


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedContainer:
    state: ObservedState
    last: TerminatedState | None = None
    """The state at the end of the previous run."""
    restarts: int = 0
    container_id: str = ""
    image_id: str = ""
    is_started: bool = False
    """Running, and the startup probe has succeeded if there is one."""
    is_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPod:
    containers: Mapping[str, ObservedContainer]
    started_at: float
    host_ip: str
    pod_ip: str = ""
    has_sandbox: bool = False
    is_finished: bool = False
    """No container runs, and none will be started."""
    failure: tuple[str, str] | None = None
    """Reason and message, if the node itself terminated the pod."""


@dataclass(frozen=True, slots=True)
class _ContainerCounts:
    """The number of main containers by state, and the progress of initialization."""

    is_initializing: bool = False
    init_failed: bool = False
    waiting: int = 0
    running: int = 0
    stopped: int = 0
    succeeded: int = 0
    finished: int = 0
    """Stopped, and not restarted."""


_UNKNOWN_TERMINATION = TerminatedState(
    exit_code=137, reason="ContainerStatusUnknown", message="The container could not be located when the pod was terminated"
)


def initial_containers(pod: JsonObject) -> dict[str, ObservedContainer]:
    """The observed state of the containers of a pod that was not started yet."""
    has_init = bool(pod["spec"].get("initContainers"))
    waiting = ObservedContainer(state=WaitingState("PodInitializing" if has_init else "ContainerCreating"))
    return {container["name"]: waiting for container in _all_containers(pod)}


def pod_status(pod: JsonObject, observed: ObservedPod, *, now: float) -> JsonObject:
    """The complete status. Transition times and conditions of other owners are taken from `pod`'s current status."""
    if observed.is_finished:
        observed = _finish(pod, observed)
    phase = _phase(pod, observed)
    status: JsonObject = {
        "observedGeneration": pod["metadata"].get("generation") or 1,
        "phase": phase,
        "hostIP": observed.host_ip,
        "hostIPs": [{"ip": observed.host_ip}],
        "startTime": format_time(observed.started_at),
        "containerStatuses": _container_statuses(pod["spec"]["containers"], observed, is_init=False),
    }
    if init := pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = _container_statuses(init, observed, is_init=True)
    if observed.pod_ip:
        status |= {"podIP": observed.pod_ip, "podIPs": [{"ip": observed.pod_ip}]}
    if observed.failure is not None:
        status["reason"], status["message"] = observed.failure
    if qos_class := (pod.get("status") or {}).get("qosClass"):
        status["qosClass"] = qos_class
    status["conditions"] = pod_conditions(pod, status, has_sandbox=observed.has_sandbox, now=now)
    return status


def _all_containers(pod: JsonObject) -> Iterable[JsonObject]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]


def _finish(pod: JsonObject, observed: ObservedPod) -> ObservedPod:
    """The observed state of a finished pod. A container that did not report its exit gets an unknown one."""
    initialized = all(
        _is_initialized(container, observed.containers[container["name"]]) for container in pod["spec"].get("initContainers") or ()
    )
    mains = {container["name"] for container in pod["spec"]["containers"]} if initialized else set()
    containers = {name: _finish_container(current, should_have_run=name in mains) for name, current in observed.containers.items()}
    return replace(observed, containers=containers, has_sandbox=False)


def _finish_container(observed: ObservedContainer, *, should_have_run: bool) -> ObservedContainer:
    if isinstance(observed.state, WaitingState) and observed.last is not None:
        return _with_state(observed, observed.last)
    if isinstance(observed.state, RunningState) or (isinstance(observed.state, WaitingState) and should_have_run):
        return _with_state(observed, _UNKNOWN_TERMINATION)
    return observed


def _with_state(observed: ObservedContainer, state: ObservedState) -> ObservedContainer:
    return ObservedContainer(state=state, restarts=observed.restarts, container_id=observed.container_id, image_id=observed.image_id)


def _is_initialized(container: JsonObject, observed: ObservedContainer) -> bool:
    if container_role(container, is_init=True) is ContainerRole.SIDECAR:
        return observed.is_started or isinstance(observed.state, TerminatedState)
    return isinstance(observed.state, TerminatedState) and observed.state.exit_code == 0


# --- phase ----------------------------------------------------------------------------------------------------------------


def _phase(pod: JsonObject, observed: ObservedPod) -> str:
    if observed.failure is not None:
        return "Failed"
    counts = _count_containers(pod, observed)
    if counts.init_failed:
        return "Failed"
    if observed.is_finished:
        return "Succeeded" if counts.stopped and counts.stopped == counts.succeeded and not counts.waiting else "Failed"
    if counts.is_initializing or counts.waiting:
        return "Pending"
    if counts.running or counts.stopped != counts.finished:
        return "Running"
    return "Succeeded" if counts.stopped == counts.succeeded else "Failed"


def _count_containers(pod: JsonObject, observed: ObservedPod) -> _ContainerCounts:
    main_started = any(
        not isinstance(observed.containers[container["name"]].state, WaitingState) for container in pod["spec"]["containers"]
    )
    is_initializing = init_failed = False
    running = 0
    for container in pod["spec"].get("initContainers") or ():
        current = observed.containers[container["name"]]
        if container_role(container, is_init=True) is ContainerRole.SIDECAR:
            running += isinstance(current.state, RunningState)
            is_initializing = is_initializing or (not main_started and not current.is_started and current.last is None)
            continue
        last = _last_termination(current)
        if last is None:
            is_initializing = True
        elif last.exit_code != 0:
            is_initializing = True
            init_failed = init_failed or not should_restart(pod, container, role=ContainerRole.INIT, exit_code=last.exit_code)
    return _count_main_containers(pod, observed, running=running, is_initializing=is_initializing, init_failed=init_failed)


def _count_main_containers(
    pod: JsonObject, observed: ObservedPod, *, running: int, is_initializing: bool, init_failed: bool
) -> _ContainerCounts:
    waiting = stopped = succeeded = finished = 0
    for container in pod["spec"]["containers"]:
        current = observed.containers[container["name"]]
        last = _last_termination(current)
        if isinstance(current.state, RunningState):
            running += 1
        elif last is None:
            waiting += 1
        else:
            stopped += 1
            succeeded += isinstance(current.state, TerminatedState) and last.exit_code == 0
            finished += not should_restart(pod, container, role=ContainerRole.MAIN, exit_code=last.exit_code)
    return _ContainerCounts(
        is_initializing=is_initializing,
        init_failed=init_failed,
        waiting=waiting,
        running=running,
        stopped=stopped,
        succeeded=succeeded,
        finished=finished,
    )


def _last_termination(observed: ObservedContainer) -> TerminatedState | None:
    """The last termination of a container that does not run. None if it never ran."""
    if isinstance(observed.state, TerminatedState):
        return observed.state
    return observed.last if isinstance(observed.state, WaitingState) else None


# --- containers -----------------------------------------------------------------------------------------------------------


def _container_statuses(containers: list[JsonObject], observed: ObservedPod, *, is_init: bool) -> list[JsonObject]:
    statuses = [_container_status(container, observed.containers[container["name"]], is_init=is_init) for container in containers]
    return statuses if is_init else sorted(statuses, key=lambda status: str(status["name"]))


def _container_status(container: JsonObject, observed: ObservedContainer, *, is_init: bool) -> JsonObject:
    completed = isinstance(observed.state, TerminatedState) and observed.state.exit_code == 0
    is_plain_init = container_role(container, is_init=is_init) is ContainerRole.INIT
    status: JsonObject = {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": observed.image_id,
        "restartCount": observed.restarts,
        "ready": completed if is_plain_init else observed.is_ready,
        "started": observed.is_started,
        "state": container_state(observed.state),
        "lastState": container_state(observed.last),
    }
    if observed.container_id:
        status["containerID"] = observed.container_id
        if resources := container.get("resources"):
            status["resources"] = resources
            status["allocatedResources"] = resources.get("requests") or None
    if mounts := container.get("volumeMounts"):
        status["volumeMounts"] = [_volume_mount(mount) for mount in mounts]
    return {name: value for name, value in status.items() if value is not None}


def _volume_mount(mount: JsonObject) -> JsonObject:
    result: JsonObject = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        result |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return result


def container_state(state: ObservedState | None) -> JsonObject:
    """The state in the format of the API."""
    match state:
        case WaitingState():
            return {"waiting": _without_empty({"reason": state.reason, "message": state.message})}
        case RunningState():
            return {"running": {"startedAt": format_time(state.started_at)}}
        case TerminatedState():
            return {"terminated": _terminated(state)}
        case None:
            return {}


def _terminated(terminated: TerminatedState) -> JsonObject:
    fields = {
        "exitCode": terminated.exit_code,
        "reason": terminated.reason,
        "message": terminated.message,
        "startedAt": format_time(terminated.started_at),
        "finishedAt": format_time(terminated.finished_at),
        "containerID": terminated.container_id,
    }
    return _without_empty(fields)


def _without_empty(fields: JsonObject) -> JsonObject:
    return {name: value for name, value in fields.items() if value != ""}
