"""Pod statuses as a kubelet reports them. Pure."""

from __future__ import annotations

from dlop.kube.objects import ContainerStatus, Pod
from dlop.kube.types import JsonObject

POD_ADDRESS = "10.244.0.2"
_CONDITIONS = ("Initialized", "Ready", "ContainersReady")


def condition(kind: str, *, now: str, status: str = "True", reason: str = "", message: str = "") -> JsonObject:
    result: JsonObject = {"type": kind, "status": status, "lastTransitionTime": now}
    return result | {name: value for name, value in (("reason", reason), ("message", message)) if value}


def running_status(pod: Pod, *, now: str, ready: bool = True) -> JsonObject:
    """All containers are running, and ready unless `ready` is False."""
    containers = [{**_container(pod, name, {"running": {"startedAt": now}}), "ready": ready} for name in _names(pod)]
    return _status(pod, "Running", containers, now=now, ready=str(ready))


def waiting_status(pod: Pod, *, reason: str, message: str, now: str) -> JsonObject:
    """All containers are waiting."""
    state = {"waiting": {"reason": reason, "message": message}}
    return _status(pod, "Pending", [_container(pod, name, state) for name in _names(pod)], now=now, ready="False")


def finished_status(pod: Pod, *, exit_code: int, reason: str, message: str, container: str, now: str) -> JsonObject:
    """All containers have terminated: the main one with this exit code, the others with 0."""
    main = container or _names(pod)[0]
    terminated = _terminated(exit_code, reason=reason, message=message, now=now)
    completed = _terminated(0, reason="Completed", message="", now=now)
    containers = [_container(pod, name, terminated if name == main else completed) for name in _names(pod)]
    return _status(pod, "Failed" if exit_code else "Succeeded", containers, now=now, ready="False")


def restarted_status(pod: Pod, *, exit_code: int, reason: str, message: str, container: str, now: str) -> JsonObject:
    """One container has terminated and runs again in the same pod."""
    main = container or _names(pod)[0]
    terminated = _terminated(exit_code, reason=reason, message=message, now=now)
    running = {"running": {"startedAt": now}}
    containers = [_container(pod, name, running, restarted_after=terminated if name == main else None) for name in _names(pod)]
    return _status(pod, "Running", containers, now=now, ready="True")


def init_failed_status(pod: Pod, *, exit_code: int, message: str, container: str, now: str) -> JsonObject:
    """An init container has failed. It is restarted after a back-off, unless the pod is never restarted and has failed."""
    terminated = _terminated(exit_code, reason="Error", message=message, now=now)
    is_final = pod.spec.restart_policy == "Never"
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": f"back-off 10s restarting failed container={container}"}}
    previous = next((status for status in pod.status.init_container_statuses if status.name == container), ContainerStatus())
    init_container: JsonObject = {
        "name": container,
        "image": "scripted",
        "imageID": "",
        "ready": False,
        "restartCount": previous.restart_count + (0 if is_final else 1),
        "state": terminated if is_final else waiting,
        **({} if is_final else {"lastState": terminated}),
    }
    containers = [_container(pod, name, {"waiting": {"reason": "PodInitializing"}}) for name in _names(pod)]
    status = _status(pod, "Failed" if is_final else "Pending", containers, now=now, ready="False")
    conditions = [condition(kind, now=now, status="False") for kind in _CONDITIONS]
    return {**status, "initContainerStatuses": [init_container], "conditions": conditions}


def _names(pod: Pod) -> list[str]:
    return [container.name for container in pod.spec.containers]


def _terminated(exit_code: int, *, reason: str, message: str, now: str) -> JsonObject:
    return {"terminated": {"exitCode": exit_code, "reason": reason, "message": message, "startedAt": now, "finishedAt": now}}


def _container(pod: Pod, name: str, state: JsonObject, *, restarted_after: JsonObject | None = None) -> JsonObject:
    previous = next((status for status in pod.status.container_statuses if status.name == name), ContainerStatus())
    status: JsonObject = {
        "name": name,
        "image": "scripted",
        "imageID": "",
        "ready": "running" in state,
        "restartCount": previous.restart_count + (1 if restarted_after else 0),
        "state": state,
    }
    return status | ({"lastState": restarted_after} if restarted_after else {})


def _status(pod: Pod, phase: str, containers: list[JsonObject], *, now: str, ready: str) -> JsonObject:
    status: JsonObject = {
        "phase": phase,
        "conditions": [condition(kind, now=now, status="True" if kind == "Initialized" else ready) for kind in _CONDITIONS],
        "containerStatuses": containers,
        "podIP": POD_ADDRESS,
        "podIPs": [{"ip": POD_ADDRESS}],
    }
    return status if pod.status.start_time else {**status, "startTime": now}
