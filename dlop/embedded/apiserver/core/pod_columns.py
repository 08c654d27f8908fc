"""The row that `kubectl get pods` shows, with the same words for every state of a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.core.base import AGE, NAME, column, dig
from dlop.embedded.apiserver.resource_type import Column, Moment
from dlop.kube.types import JsonObject

_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class PodSummary:
    """What is to be said about the containers of a pod, taken together."""

    ready: int
    total: int
    status: str
    restarts: int
    last_restart: str | None
    """When a container last ended that was started again."""


def summary(pod: JsonObject) -> PodSummary:
    """The summary that fills the columns Ready, Status and Restarts."""
    status = pod.get("status") or {}
    sidecars = {name for name, container in _init_containers(pod).items() if container.get("restartPolicy") == "Always"}
    total = len(dig(pod, "spec", "containers") or ()) + len(sidecars)
    start = PodSummary(0, total, _phase_or_reason(status), 0, None)
    begun, initializing = _after_init(start, pod, sidecars)
    done = begun if initializing and not _condition_is_true(status, "Initialized") else _after_containers(begun, pod, sidecars)
    return PodSummary(done.ready, done.total, _final_word(pod, done.status), done.restarts, done.last_restart)


def _init_containers(pod: JsonObject) -> dict[str, JsonObject]:
    return {container["name"]: container for container in dig(pod, "spec", "initContainers") or ()}


def _phase_or_reason(status: JsonObject) -> str:
    word = status.get("reason") or status.get("phase", "")
    gated = any(
        condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated"
        for condition in status.get("conditions") or ()
    )
    return "SchedulingGated" if gated else word


def _after_init(start: PodSummary, pod: JsonObject, sidecars: set[str]) -> tuple[PodSummary, bool]:
    """What the init containers say, and whether one of them is still in the way."""
    seen: list[JsonObject] = []
    ready = 0
    for index, container in enumerate(dig(pod, "status", "initContainerStatuses") or ()):
        seen.append(container)
        ended = dig(container, "state", "terminated")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        word = f"Init:{_init_word(container, index, len(_init_containers(pod)))}"
        return PodSummary(ready, start.total, word, _restarts(seen), _last_restart(seen)), True
    return PodSummary(ready, start.total, start.status, _restarts(seen), _last_restart(seen)), False


def _init_word(container: JsonObject, index: int, count: int) -> str:
    if (ended := dig(container, "state", "terminated")) is not None:
        return _end_word(ended)
    waiting = dig(container, "state", "waiting", "reason")
    return waiting if waiting and waiting != "PodInitializing" else f"{index}/{count}"


def _end_word(ended: JsonObject) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    return f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"


def _after_containers(begun: PodSummary, pod: JsonObject, sidecars: set[str]) -> PodSummary:
    init_statuses = dig(pod, "status", "initContainerStatuses") or ()
    counted = [container for container in init_statuses if container.get("name") in sidecars]
    statuses: list[JsonObject] = dig(pod, "status", "containerStatuses") or []
    word, failure, running = begun.status, "", 0
    # The first container has the last word.
    for container in reversed(statuses):
        ended = dig(container, "state", "terminated")
        if waiting := dig(container, "state", "waiting", "reason"):
            word = waiting
        elif ended is not None:
            word = _end_word(ended)
            failure = word if ended.get("exitCode", 0) != 0 else failure
        elif container.get("ready") and dig(container, "state", "running") is not None:
            running += 1
    if word == "Completed":
        word = _partly_done(pod, running=running > 0, failure=failure)
    restarted = [*counted, *statuses]
    return PodSummary(begun.ready + running, begun.total, word, _restarts(restarted), _last_restart(restarted))


def _partly_done(pod: JsonObject, *, running: bool, failure: str) -> str:
    """What to say when the first container has completed: the others may still run, or have failed."""
    if running and _condition_is_true(pod.get("status") or {}, "Ready"):
        return "Running"
    if failure:
        return failure
    return "NotReady" if running else "Completed"


def _final_word(pod: JsonObject, word: str) -> str:
    if not pod["metadata"].get("deletionTimestamp"):
        return word
    if dig(pod, "status", "reason") == "NodeLost":
        return "Unknown"
    return word if dig(pod, "status", "phase") in ("Succeeded", "Failed") else "Terminating"


def _condition_is_true(status: JsonObject, kind: str) -> bool:
    return any(condition.get("type") == kind and condition.get("status") == "True" for condition in status.get("conditions") or ())


def _restarts(containers: Sequence[JsonObject]) -> int:
    return sum(container.get("restartCount", 0) for container in containers)


def _last_restart(containers: Sequence[JsonObject]) -> str | None:
    ends = (dig(container, "lastState", "terminated", "finishedAt") for container in containers)
    return max((end for end in ends if end), default=None)


def _restarts_text(pod: JsonObject, moment: Moment) -> str:
    found = summary(pod)
    if not found.restarts or not found.last_restart:
        return str(found.restarts)
    return f"{found.restarts} ({age(found.last_restart, moment)} ago)"


def _ready_text(pod: JsonObject) -> str:
    found = summary(pod)
    return f"{found.ready}/{found.total}"


def _readiness_gates(pod: JsonObject) -> str:
    gates = [gate.get("conditionType", "") for gate in dig(pod, "spec", "readinessGates") or ()]
    if not gates:
        return _NONE
    return f"{sum(_condition_is_true(pod.get('status') or {}, gate) for gate in gates)}/{len(gates)}"


POD_COLUMNS: tuple[Column, ...] = (
    NAME,
    column("Ready", _ready_text),
    column("Status", lambda pod: summary(pod).status),
    Column(name="Restarts", cell=_restarts_text),
    AGE,
    column("IP", lambda pod: (dig(pod, "status", "podIPs") or [{}])[0].get("ip") or _NONE, priority=1),
    column("Node", lambda pod: dig(pod, "spec", "nodeName") or _NONE, priority=1),
    column("Nominated Node", lambda pod: dig(pod, "status", "nominatedNodeName") or _NONE, priority=1),
    column("Readiness Gates", _readiness_gates, priority=1),
)
