"""Table columns of pods, as `kubectl get pods` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.core.base import AGE, NAME, column, get_nested
from dlop.embedded.apiserver.resource_type import TableColumn, Timestamp
from dlop.kube.types import JsonObject

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class PodSummary:
    """Values of the columns Ready, Status and Restarts."""

    ready: int
    total: int
    status: str
    restarts: int
    last_restart: str | None
    """When a container that was restarted last terminated."""


def summarize_pod(pod: JsonObject) -> PodSummary:
    status = pod.get("status") or {}
    sidecars = {name for name, container in _init_containers(pod).items() if container.get("restartPolicy") == "Always"}
    total = len(get_nested(pod, "spec", "containers") or ()) + len(sidecars)
    initial = PodSummary(0, total, _phase_or_reason(status), 0, None)
    after_init, initializing = _add_init_containers(initial, pod, sidecars)
    result = after_init if initializing and not _condition_is_true(status, "Initialized") else _add_containers(after_init, pod, sidecars)
    return PodSummary(result.ready, result.total, _final_status(pod, result.status), result.restarts, result.last_restart)


def _init_containers(pod: JsonObject) -> dict[str, JsonObject]:
    return {container["name"]: container for container in get_nested(pod, "spec", "initContainers") or ()}


def _phase_or_reason(status: JsonObject) -> str:
    phase_or_reason = status.get("reason") or status.get("phase", "")
    gated = any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or ()
    )
    return "SchedulingGated" if gated else phase_or_reason


def _add_init_containers(initial: PodSummary, pod: JsonObject, sidecars: set[str]) -> tuple[PodSummary, bool]:
    """The summary with init containers, and whether one of them still blocks the pod."""
    counted: list[JsonObject] = []
    ready = 0
    for index, container in enumerate(get_nested(pod, "status", "initContainerStatuses") or ()):
        counted.append(container)
        terminated = get_nested(container, "state", "terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        init_status = f"Init:{_init_status(container, index, len(_init_containers(pod)))}"
        return PodSummary(ready, initial.total, init_status, _restarts(counted), _last_restart(counted)), True
    return PodSummary(ready, initial.total, initial.status, _restarts(counted), _last_restart(counted)), False


def _init_status(container: JsonObject, index: int, count: int) -> str:
    if (terminated := get_nested(container, "state", "terminated")) is not None:
        return _termination_status(terminated)
    waiting = get_nested(container, "state", "waiting", "reason")
    return waiting if waiting and waiting != "PodInitializing" else f"{index}/{count}"


def _termination_status(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    return f"Signal:{terminated['signal']}" if terminated.get("signal") else f"ExitCode:{terminated.get('exitCode', 0)}"


def _add_containers(after_init: PodSummary, pod: JsonObject, sidecars: set[str]) -> PodSummary:
    init_statuses = get_nested(pod, "status", "initContainerStatuses") or ()
    sidecar_statuses = [container for container in init_statuses if container.get("name") in sidecars]
    statuses: list[JsonObject] = get_nested(pod, "status", "containerStatuses") or []
    status, failure, running = after_init.status, "", 0
    # The status of the first container wins, so iterate in reverse.
    for container in reversed(statuses):
        terminated = get_nested(container, "state", "terminated")
        if waiting := get_nested(container, "state", "waiting", "reason"):
            status = waiting
        elif terminated is not None:
            status = _termination_status(terminated)
            failure = status if terminated.get("exitCode", 0) != 0 else failure
        elif container.get("ready") and get_nested(container, "state", "running") is not None:
            running += 1
    if status == "Completed":
        status = _completed_status(pod, running=running > 0, failure=failure)
    restarted = [*sidecar_statuses, *statuses]
    return PodSummary(after_init.ready + running, after_init.total, status, _restarts(restarted), _last_restart(restarted))


def _completed_status(pod: JsonObject, *, running: bool, failure: str) -> str:
    """The status when the first container has completed but others may still run or have failed."""
    if running and _condition_is_true(pod.get("status") or {}, "Ready"):
        return "Running"
    if failure:
        return failure
    return "NotReady" if running else "Completed"


def _final_status(pod: JsonObject, status: str) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return status
    if get_nested(pod, "status", "reason") == "NodeLost":
        return "Unknown"
    return status if get_nested(pod, "status", "phase") in ("Succeeded", "Failed") else "Terminating"


def _condition_is_true(status: JsonObject, kind: str) -> bool:
    return any(condition.get("type") == kind and condition.get("status") == "True" for condition in status.get("conditions") or ())


def _restarts(containers: Sequence[JsonObject]) -> int:
    return sum(container.get("restartCount", 0) for container in containers)


def _last_restart(containers: Sequence[JsonObject]) -> str | None:
    ends = (get_nested(container, "lastState", "terminated", "finishedAt") for container in containers)
    return max((end for end in ends if end), default=None)


def _format_restarts(pod: JsonObject, now: Timestamp) -> str:
    summary = summarize_pod(pod)
    if not summary.restarts or not summary.last_restart:
        return str(summary.restarts)
    return f"{summary.restarts} ({age(summary.last_restart, now)} ago)"


def _format_ready(pod: JsonObject) -> str:
    summary = summarize_pod(pod)
    return f"{summary.ready}/{summary.total}"


def _readiness_gates(pod: JsonObject) -> str:
    gates = [gate.get("conditionType", "") for gate in get_nested(pod, "spec", "readinessGates") or ()]
    if not gates:
        return _NONE
    return f"{sum(_condition_is_true(pod.get('status') or {}, gate) for gate in gates)}/{len(gates)}"


POD_COLUMNS: tuple[TableColumn, ...] = (
    NAME,
    column("Ready", _format_ready),
    column("Status", lambda pod: summarize_pod(pod).status),
    TableColumn(name="Restarts", cell=_format_restarts),
    AGE,
    column("IP", lambda pod: (get_nested(pod, "status", "podIPs") or [{}])[0].get("ip") or _NONE, priority=1),
    column("Node", lambda pod: get_nested(pod, "spec", "nodeName") or _NONE, priority=1),
    column("Nominated Node", lambda pod: get_nested(pod, "status", "nominatedNodeName") or _NONE, priority=1),
    column("Readiness Gates", _readiness_gates, priority=1),
)
