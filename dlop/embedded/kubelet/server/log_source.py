"""Which run of a container its log is read from, and why there may be none: in the kubelet's words."""

from __future__ import annotations

from enum import Enum

from dlop.embedded.kubelet.server.backend import NotAvailableError
from dlop.kube.types import JsonObject

_STATUS_LISTS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}


class Run(Enum):
    """A run of a container, counted from the newest that began."""

    LATEST = "latest"
    BEFORE = "before"


def log_source(pod_name: str, status: JsonObject, container: str, *, previous: bool) -> Run:
    """The run whose log is meant, judged by the status of the pod.

    Raises:
        NotAvailableError: there was no such run.
    """
    found = _container_status(status, container)
    where = f'container "{container}" in pod "{pod_name}"'
    if found is None:
        raise NotAvailableError(f"{where} is not available")
    state = found.get("state") or {}
    has_ended_before = _has_run((found.get("lastState") or {}).get("terminated"))
    if previous:
        if not has_ended_before:
            raise NotAvailableError(f"previous terminated {where} not found")
        # While a container waits to be started again, the run that ended is its latest.
        return Run.BEFORE if "running" in state or _has_run(state.get("terminated")) else Run.LATEST
    if "running" in state or _has_run(state.get("terminated")) or has_ended_before:
        return Run.LATEST
    raise NotAvailableError(_why_none(where, state))


def _why_none(where: str, state: JsonObject) -> str:
    if "terminated" in state:
        return f"{where} is terminated"
    if "waiting" in state:
        reason = (state["waiting"] or {}).get("reason", "")
        return f"{where} is waiting to start: {_WAITING.get(reason, reason)}"
    return f"{where} is waiting to start - no logs yet"


def _has_run(terminated: JsonObject | None) -> bool:
    return bool(terminated and terminated.get("containerID"))


def _container_status(status: JsonObject, container: str) -> JsonObject | None:
    for field in _STATUS_LISTS:
        for found in status.get(field) or ():
            if found.get("name") == container:
                return dict(found)
    return None
