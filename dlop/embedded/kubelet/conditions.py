"""The conditions of a pod that its node owns. Pure.

A condition keeps its lastTransitionTime while its status does not change. Conditions of other owners are not changed.
"""

from __future__ import annotations

from collections.abc import Callable

from dlop.embedded.kubelet.crash_loop_backoff import ContainerRole, container_role
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

_OWNED_TYPES = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def pod_conditions(pod: JsonObject, status: JsonObject, *, has_sandbox: bool, now: float) -> list[JsonObject]:
    """All conditions, given a status that is complete except for its conditions."""
    current: list[JsonObject] = (pod.get("status") or {}).get("conditions") or []
    others = [condition for condition in current if condition["type"] not in _OWNED_TYPES]
    containers_ready = _containers_ready(pod, status)
    owned = [
        _condition("PodReadyToStartContainers", is_true=has_sandbox),
        _initialized(pod, status),
        _ready(pod, others, containers_ready),
        containers_ready,
        _condition("PodScheduled", is_true=True),
    ]
    generation = pod["metadata"].get("generation") or 1
    return others + [_with_times(condition, current, generation=generation, now=now) for condition in owned]


def with_own_conditions(status: JsonObject) -> JsonObject:
    """The status without conditions of other owners, which the node must not write."""
    return {**status, "conditions": [condition for condition in status.get("conditions") or () if condition["type"] in _OWNED_TYPES]}


def _condition(type: str, *, is_true: bool, reason: str = "", message: str = "") -> JsonObject:
    condition: JsonObject = {"type": type, "status": "True" if is_true else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _with_times(condition: JsonObject, current: list[JsonObject], *, generation: int, now: float) -> JsonObject:
    previous = next((other for other in current if other["type"] == condition["type"]), None)
    transition_time = previous.get("lastTransitionTime") if previous and previous["status"] == condition["status"] else None
    return {
        **condition,
        "observedGeneration": generation,
        "lastProbeTime": None,
        "lastTransitionTime": transition_time or format_time(now),
    }


def _containers_ready(pod: JsonObject, status: JsonObject) -> JsonObject:
    if status["phase"] == "Succeeded":
        return _condition("ContainersReady", is_true=False, reason="PodCompleted")
    if status["phase"] == "Failed":
        return _condition("ContainersReady", is_true=False, reason="PodFailed")
    ready = _by_container(status, lambda container: bool(container["ready"]))
    sidecars = [
        container["name"] for container in _init_containers(pod) if container_role(container, is_init=True) is ContainerRole.SIDECAR
    ]
    names = sidecars + [container["name"] for container in pod["spec"]["containers"]]
    unready = [name for name in names if not ready[name]]
    if not unready:
        return _condition("ContainersReady", is_true=True)
    message = f"containers with unready status: [{' '.join(unready)}]"
    return _condition("ContainersReady", is_true=False, reason="ContainersNotReady", message=message)


def _ready(pod: JsonObject, others: list[JsonObject], containers_ready: JsonObject) -> JsonObject:
    if containers_ready["status"] != "True":
        return {**containers_ready, "type": "Ready"}
    status_by_type = {condition["type"]: condition["status"] for condition in others}
    messages = [_readiness_gate_message(gate["conditionType"], status_by_type) for gate in pod["spec"].get("readinessGates") or ()]
    message = ", ".join(message for message in messages if message)
    if message:
        return _condition("Ready", is_true=False, reason="ReadinessGatesNotReady", message=message)
    return _condition("Ready", is_true=True)


def _readiness_gate_message(gate: str, status_by_type: dict[str, str]) -> str:
    if gate not in status_by_type:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    return "" if status_by_type[gate] == "True" else f'the status of pod readiness gate "{gate}" is not "True", but {status_by_type[gate]}'


def _initialized(pod: JsonObject, status: JsonObject) -> JsonObject:
    if status["phase"] == "Succeeded":
        return _condition("Initialized", is_true=True, reason="PodCompleted")
    if any("waiting" not in container["state"] or container["lastState"] for container in status["containerStatuses"]):
        # Once a main container has run, a restarting sidecar does not reset the condition.
        return _condition("Initialized", is_true=True)
    ready = _by_container(status, lambda container: bool(container["ready"]))
    started = _by_container(status, lambda container: bool(container["started"]))
    incomplete = [
        container["name"]
        for container in _init_containers(pod)
        if not (started if container_role(container, is_init=True) is ContainerRole.SIDECAR else ready)[container["name"]]
    ]
    if not incomplete:
        return _condition("Initialized", is_true=True)
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return _condition("Initialized", is_true=False, reason="ContainersNotInitialized", message=message)


def _init_containers(pod: JsonObject) -> list[JsonObject]:
    return pod["spec"].get("initContainers") or []


def _by_container(status: JsonObject, get: Callable[[JsonObject], bool]) -> dict[str, bool]:
    statuses = [*(status.get("initContainerStatuses") or ()), *status["containerStatuses"]]
    return {container["name"]: get(container) for container in statuses}
