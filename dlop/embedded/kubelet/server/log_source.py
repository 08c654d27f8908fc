"""Selects the run of a container whose log is read, with the errors of the kubelet if there is none."""

from __future__ import annotations

from enum import Enum

from dlop.embedded.kubelet.server.backend import ContainerUnavailableError
from dlop.kube.types import JsonObject

_STATUS_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_WAITING_MESSAGES = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class LogRun(Enum):
    LATEST = "latest"
    PREVIOUS = "previous"


def log_source(pod_name: str, status: JsonObject, container: str, *, previous: bool) -> LogRun:
    """The run to read, based on the status of the pod.

    Raises:
        ContainerUnavailableError: there was no such run.
    """
    container_status = _container_status(status, container)
    subject = f'container "{container}" in pod "{pod_name}"'
    if container_status is None:
        raise ContainerUnavailableError(f"{subject} is not available")
    state = container_status.get("state") or {}
    has_last_run = _has_run((container_status.get("lastState") or {}).get("terminated"))
    if previous:
        if not has_last_run:
            raise ContainerUnavailableError(f"previous terminated {subject} not found")
        # While a container waits for a restart, its latest run is the terminated one.
        return LogRun.PREVIOUS if "running" in state or _has_run(state.get("terminated")) else LogRun.LATEST
    if "running" in state or _has_run(state.get("terminated")) or has_last_run:
        return LogRun.LATEST
    raise ContainerUnavailableError(_unavailable_message(subject, state))


def _unavailable_message(subject: str, state: JsonObject) -> str:
    if "terminated" in state:
        return f"{subject} is terminated"
    if "waiting" in state:
        reason = (state["waiting"] or {}).get("reason", "")
        return f"{subject} is waiting to start: {_WAITING_MESSAGES.get(reason, reason)}"
    return f"{subject} is waiting to start - no logs yet"


def _has_run(terminated: JsonObject | None) -> bool:
    return bool(terminated and terminated.get("containerID"))


def _container_status(status: JsonObject, container: str) -> JsonObject | None:
    for field in _STATUS_LISTS:
        for container_status in status.get(field) or ():
            if container_status.get("name") == container:
                return dict(container_status)
    return None
