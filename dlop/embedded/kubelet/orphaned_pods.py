"""Pods of a life before this one: the node knows them from the server, but their processes are gone. Pure."""

from __future__ import annotations

from typing import Any

from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject

_MESSAGE = "The node was started anew, and the processes of the pod went with its last life"
_FINISHED = ("Succeeded", "Failed")


def is_lost(pod: JsonObject) -> bool:
    """Whether a pod that a new node finds on itself had been begun by the one before."""
    status = pod.get("status") or {}
    return bool(status.get("startTime")) and status.get("phase") not in _FINISHED


def lost_status(pod: JsonObject, *, now: float) -> JsonObject:
    """The last status of such a pod. That it failed is the node's doing, and the pod says so."""
    status = pod.get("status") or {}
    moment = to_the_second(now)
    told: dict[str, Any] = {"phase": "Failed", "reason": "Terminated", "message": _MESSAGE}
    for field in ("initContainerStatuses", "containerStatuses"):
        if status.get(field):
            told[field] = [_ended(each) for each in status[field]]
    conditions = [_condition(type, "False", "PodFailed", "", moment) for type in ("Ready", "ContainersReady")]
    conditions.append(_condition("PodReadyToStartContainers", "False", "", "", moment))
    conditions.append(_condition("DisruptionTarget", "True", "TerminationByKubelet", _MESSAGE, moment))
    return {**told, "conditions": conditions}


def _ended(container: JsonObject) -> JsonObject:
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


def _condition(type: str, status: str, reason: str, message: str, moment: str) -> JsonObject:
    condition: JsonObject = {"type": type, "status": status, "lastProbeTime": None, "lastTransitionTime": moment}
    return condition | {name: text for name, text in (("reason", reason), ("message", message)) if text}
