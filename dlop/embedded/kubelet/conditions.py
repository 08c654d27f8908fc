"""The conditions of a pod that its node is answerable for. Pure.

A condition keeps the time of its last transition while its status stays the same, and the conditions of others are left
alone.
"""

from __future__ import annotations

from collections.abc import Callable

from dlop.embedded.kubelet.restart_backoff import Role, role_of
from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject

_OWN = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def pod_conditions(pod: JsonObject, status: JsonObject, *, has_sandbox: bool, now: float) -> list[JsonObject]:
    """All conditions, for a status that is complete but for them."""
    present: list[JsonObject] = (pod.get("status") or {}).get("conditions") or []
    foreign = [each for each in present if each["type"] not in _OWN]
    containers_ready = _containers_ready(pod, status)
    told = [
        _condition("PodReadyToStartContainers", holds=has_sandbox),
        _initialized(pod, status),
        _ready(pod, foreign, containers_ready),
        containers_ready,
        _condition("PodScheduled", holds=True),
    ]
    generation = pod["metadata"].get("generation") or 1
    return foreign + [_stamped(each, present, generation=generation, now=now) for each in told]


def without_foreign(status: JsonObject) -> JsonObject:
    """A status without the conditions of others: they are not for the node to write."""
    return {**status, "conditions": [each for each in status.get("conditions") or () if each["type"] in _OWN]}


def _condition(type: str, *, holds: bool, reason: str = "", message: str = "") -> JsonObject:
    condition: JsonObject = {"type": type, "status": "True" if holds else "False"}
    if reason:
        condition["reason"] = reason
    if message:
        condition["message"] = message
    return condition


def _stamped(condition: JsonObject, present: list[JsonObject], *, generation: int, now: float) -> JsonObject:
    before = next((each for each in present if each["type"] == condition["type"]), None)
    since = before.get("lastTransitionTime") if before and before["status"] == condition["status"] else None
    return {
        **condition,
        "observedGeneration": generation,
        "lastProbeTime": None,
        "lastTransitionTime": since or to_the_second(now),
    }


def _containers_ready(pod: JsonObject, status: JsonObject) -> JsonObject:
    if status["phase"] == "Succeeded":
        return _condition("ContainersReady", holds=False, reason="PodCompleted")
    if status["phase"] == "Failed":
        return _condition("ContainersReady", holds=False, reason="PodFailed")
    ready = _which(status, lambda each: bool(each["ready"]))
    sidecars = [each["name"] for each in _init_containers(pod) if role_of(each, is_init=True) is Role.SIDECAR]
    names = sidecars + [each["name"] for each in pod["spec"]["containers"]]
    unready = [name for name in names if not ready[name]]
    if not unready:
        return _condition("ContainersReady", holds=True)
    message = f"containers with unready status: [{' '.join(unready)}]"
    return _condition("ContainersReady", holds=False, reason="ContainersNotReady", message=message)


def _ready(pod: JsonObject, foreign: list[JsonObject], containers_ready: JsonObject) -> JsonObject:
    if containers_ready["status"] != "True":
        return {**containers_ready, "type": "Ready"}
    known = {each["type"]: each["status"] for each in foreign}
    problems = [_gate_problem(gate["conditionType"], known) for gate in pod["spec"].get("readinessGates") or ()]
    message = ", ".join(problem for problem in problems if problem)
    if message:
        return _condition("Ready", holds=False, reason="ReadinessGatesNotReady", message=message)
    return _condition("Ready", holds=True)


def _gate_problem(gate: str, known: dict[str, str]) -> str:
    if gate not in known:
        return f'corresponding condition of pod readiness gate "{gate}" does not exist.'
    return "" if known[gate] == "True" else f'the status of pod readiness gate "{gate}" is not "True", but {known[gate]}'


def _initialized(pod: JsonObject, status: JsonObject) -> JsonObject:
    if status["phase"] == "Succeeded":
        return _condition("Initialized", holds=True, reason="PodCompleted")
    if any("waiting" not in each["state"] or each["lastState"] for each in status["containerStatuses"]):
        # Once a regular container has run, a sidecar that restarts takes nothing of that back.
        return _condition("Initialized", holds=True)
    ready = _which(status, lambda each: bool(each["ready"]))
    started = _which(status, lambda each: bool(each["started"]))
    incomplete = [
        each["name"]
        for each in _init_containers(pod)
        if not (started if role_of(each, is_init=True) is Role.SIDECAR else ready)[each["name"]]
    ]
    if not incomplete:
        return _condition("Initialized", holds=True)
    message = f"containers with incomplete status: [{' '.join(incomplete)}]"
    return _condition("Initialized", holds=False, reason="ContainersNotInitialized", message=message)


def _init_containers(pod: JsonObject) -> list[JsonObject]:
    return pod["spec"].get("initContainers") or []


def _which(status: JsonObject, told: Callable[[JsonObject], bool]) -> dict[str, bool]:
    every = [*(status.get("initContainerStatuses") or ()), *status["containerStatuses"]]
    return {each["name"]: told(each) for each in every}
