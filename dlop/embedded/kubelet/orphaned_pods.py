"""Pods that a previous process of this node has started. Their processes no longer exist. Pure."""

from __future__ import annotations

from typing import Any

from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

_MESSAGE = "The node was restarted, and the pod's processes were terminated with the previous node process"
_FINISHED = ("Succeeded", "Failed")


def is_orphaned(pod: JsonObject) -> bool:
    """Whether the previous node process had started this pod, which is assigned to the node."""
    status = pod.get("status") or {}
    return bool(status.get("startTime")) and status.get("phase") not in _FINISHED


def orphaned_status(pod: JsonObject, *, now: float) -> JsonObject:
    """The final status of an orphaned pod. Its conditions mark the failure as a disruption."""
    status = pod.get("status") or {}
    now_text = format_time(now)
    final: dict[str, Any] = {"phase": "Failed", "reason": "Terminated", "message": _MESSAGE}
    for field in ("initContainerStatuses", "containerStatuses"):
        if status.get(field):
            final[field] = [_terminate(container) for container in status[field]]
    conditions = [_condition(type, "False", "PodFailed", "", now_text) for type in ("Ready", "ContainersReady")]
    conditions.append(_condition("PodReadyToStartContainers", "False", "", "", now_text))
    conditions.append(_condition("DisruptionTarget", "True", "TerminationByKubelet", _MESSAGE, now_text))
    return {**final, "conditions": conditions}


def _terminate(container: JsonObject) -> JsonObject:
    if "running" not in (container.get("state") or {}):
        return container
    terminated: JsonObject = {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
        "startedAt": None,
        "finishedAt": None,
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": terminated}}


def _condition(type: str, status: str, reason: str, message: str, transition_time: str) -> JsonObject:
    condition: JsonObject = {"type": type, "status": status, "lastProbeTime": None, "lastTransitionTime": transition_time}
    return condition | {name: text for name, text in (("reason", reason), ("message", message)) if text}
