"""What a pod's status is, from what is known of its containers. Pure: facts in, the whole status out.

Phase, conditions and the states of containers are decided as the kubelet decides them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlop.embedded.kubelet.conditions import pod_conditions
from dlop.embedded.kubelet.restart_backoff import Role, is_restarted, role_of
from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject


@dataclass(frozen=True, slots=True)
class Waiting:
    """A container that does not run, and why."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """A container that runs."""

    started_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A container that has ended."""

    exit_code: int
    reason: str
    message: str = ""
    started_at: float = 0.0
    finished_at: float = 0.0
    container_id: str = ""


State: TypeAlias = Waiting | Running | Ended


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """All that the node knows of a container."""

    state: State
    last: Ended | None = None
    """The run before."""
    restarts: int = 0
    container_id: str = ""
    image_id: str = ""
    is_started: bool = False
    """It runs, and its startup probe has succeeded if it has one."""
    is_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """All that the node knows of a pod."""

    containers: Mapping[str, ContainerFacts]
    started_at: float
    host_address: str
    pod_address: str = ""
    has_sandbox: bool = False
    is_over: bool = False
    """Nothing runs any more, and nothing will."""
    failure: tuple[str, str] | None = None
    """Reason and message, when the node itself ended the pod."""


@dataclass(frozen=True, slots=True)
class _Tally:
    """How many containers are in which state."""

    is_initializing: bool = False
    has_failed_init: bool = False
    waiting: int = 0
    running: int = 0
    stopped: int = 0
    succeeded: int = 0
    final: int = 0
    """Stopped, and not started again."""


_LOST = Ended(exit_code=137, reason="ContainerStatusUnknown", message="The container could not be located when the pod was terminated")


def first_facts(pod: JsonObject) -> dict[str, ContainerFacts]:
    """What is known of the containers of a pod that has not begun."""
    has_init = bool(pod["spec"].get("initContainers"))
    waiting = ContainerFacts(state=Waiting("PodInitializing" if has_init else "ContainerCreating"))
    return {container["name"]: waiting for container in _all_containers(pod)}


def pod_status(pod: JsonObject, facts: PodFacts, *, now: float) -> JsonObject:
    """The whole status. The times and foreign conditions of `pod`'s present status are kept."""
    if facts.is_over:
        facts = _ended(pod, facts)
    phase = _phase(pod, facts)
    status: JsonObject = {
        "observedGeneration": pod["metadata"].get("generation") or 1,
        "phase": phase,
        "hostIP": facts.host_address,
        "hostIPs": [{"ip": facts.host_address}],
        "startTime": to_the_second(facts.started_at),
        "containerStatuses": _statuses(pod["spec"]["containers"], facts, is_init=False),
    }
    if init := pod["spec"].get("initContainers"):
        status["initContainerStatuses"] = _statuses(init, facts, is_init=True)
    if facts.pod_address:
        status |= {"podIP": facts.pod_address, "podIPs": [{"ip": facts.pod_address}]}
    if facts.failure is not None:
        status["reason"], status["message"] = facts.failure
    if quality := (pod.get("status") or {}).get("qosClass"):
        status["qosClass"] = quality
    status["conditions"] = pod_conditions(pod, status, has_sandbox=facts.has_sandbox, now=now)
    return status


def _all_containers(pod: JsonObject) -> Iterable[JsonObject]:
    yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"]["containers"]


def _ended(pod: JsonObject, facts: PodFacts) -> PodFacts:
    """The facts of a pod that is over. A container that should be there and is not counts as lost."""
    initialized = all(_is_initialized(each, facts.containers[each["name"]]) for each in pod["spec"].get("initContainers") or ())
    mains = {each["name"] for each in pod["spec"]["containers"]} if initialized else set()
    containers = {name: _ended_container(known, is_due=name in mains) for name, known in facts.containers.items()}
    return replace(facts, containers=containers, has_sandbox=False)


def _ended_container(known: ContainerFacts, *, is_due: bool) -> ContainerFacts:
    if isinstance(known.state, Waiting) and known.last is not None:
        return _with_state(known, known.last)
    if isinstance(known.state, Running) or (isinstance(known.state, Waiting) and is_due):
        return _with_state(known, _LOST)
    return known


def _with_state(known: ContainerFacts, state: State) -> ContainerFacts:
    return ContainerFacts(state=state, restarts=known.restarts, container_id=known.container_id, image_id=known.image_id)


def _is_initialized(container: JsonObject, known: ContainerFacts) -> bool:
    if role_of(container, is_init=True) is Role.SIDECAR:
        return known.is_started or isinstance(known.state, Ended)
    return isinstance(known.state, Ended) and known.state.exit_code == 0


# --- the phase ------------------------------------------------------------------------------------------------------------


def _phase(pod: JsonObject, facts: PodFacts) -> str:
    if facts.failure is not None:
        return "Failed"
    tally = _tally(pod, facts)
    if tally.has_failed_init:
        return "Failed"
    if facts.is_over:
        return "Succeeded" if tally.stopped and tally.stopped == tally.succeeded and not tally.waiting else "Failed"
    if tally.is_initializing or tally.waiting:
        return "Pending"
    if tally.running or tally.stopped != tally.final:
        return "Running"
    return "Succeeded" if tally.stopped == tally.succeeded else "Failed"


def _tally(pod: JsonObject, facts: PodFacts) -> _Tally:
    has_begun = any(not isinstance(facts.containers[each["name"]].state, Waiting) for each in pod["spec"]["containers"])
    initializing = failed = False
    running = 0
    for container in pod["spec"].get("initContainers") or ():
        known = facts.containers[container["name"]]
        if role_of(container, is_init=True) is Role.SIDECAR:
            running += isinstance(known.state, Running)
            initializing = initializing or (not has_begun and not known.is_started and known.last is None)
            continue
        last = _last_end(known)
        if last is None:
            initializing = True
        elif last.exit_code != 0:
            initializing = True
            failed = failed or not is_restarted(pod, container, role=Role.INIT, exit_code=last.exit_code)
    return _with_mains(pod, facts, running=running, initializing=initializing, failed=failed)


def _with_mains(pod: JsonObject, facts: PodFacts, *, running: int, initializing: bool, failed: bool) -> _Tally:
    waiting = stopped = succeeded = final = 0
    for container in pod["spec"]["containers"]:
        known = facts.containers[container["name"]]
        last = _last_end(known)
        if isinstance(known.state, Running):
            running += 1
        elif last is None:
            waiting += 1
        else:
            stopped += 1
            succeeded += isinstance(known.state, Ended) and last.exit_code == 0
            final += not is_restarted(pod, container, role=Role.MAIN, exit_code=last.exit_code)
    return _Tally(
        is_initializing=initializing,
        has_failed_init=failed,
        waiting=waiting,
        running=running,
        stopped=stopped,
        succeeded=succeeded,
        final=final,
    )


def _last_end(known: ContainerFacts) -> Ended | None:
    """How a container that does not run has ended, if it ever ran."""
    if isinstance(known.state, Ended):
        return known.state
    return known.last if isinstance(known.state, Waiting) else None


# --- containers -----------------------------------------------------------------------------------------------------------


def _statuses(containers: list[JsonObject], facts: PodFacts, *, is_init: bool) -> list[JsonObject]:
    found = [_status(container, facts.containers[container["name"]], is_init=is_init) for container in containers]
    return found if is_init else sorted(found, key=lambda each: str(each["name"]))


def _status(container: JsonObject, known: ContainerFacts, *, is_init: bool) -> JsonObject:
    completed = isinstance(known.state, Ended) and known.state.exit_code == 0
    is_plain_init = role_of(container, is_init=is_init) is Role.INIT
    status: JsonObject = {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": known.image_id,
        "restartCount": known.restarts,
        "ready": completed if is_plain_init else known.is_ready,
        "started": known.is_started,
        "state": state_text(known.state),
        "lastState": state_text(known.last),
    }
    if known.container_id:
        status["containerID"] = known.container_id
        if resources := container.get("resources"):
            status["resources"] = resources
            status["allocatedResources"] = resources.get("requests") or None
    if mounts := container.get("volumeMounts"):
        status["volumeMounts"] = [_volume_mount(mount) for mount in mounts]
    return {name: value for name, value in status.items() if value is not None}


def _volume_mount(mount: JsonObject) -> JsonObject:
    told: JsonObject = {"name": mount["name"], "mountPath": mount["mountPath"]}
    if mount.get("readOnly"):
        told |= {"readOnly": True, "recursiveReadOnly": "Disabled"}
    return told


def state_text(state: State | None) -> JsonObject:
    """A state as the API writes it."""
    match state:
        case Waiting():
            return {"waiting": _without_empty({"reason": state.reason, "message": state.message})}
        case Running():
            return {"running": {"startedAt": to_the_second(state.started_at)}}
        case Ended():
            return {"terminated": _terminated(state)}
        case None:
            return {}


def _terminated(ended: Ended) -> JsonObject:
    told = {
        "exitCode": ended.exit_code,
        "reason": ended.reason,
        "message": ended.message,
        "startedAt": to_the_second(ended.started_at),
        "finishedAt": to_the_second(ended.finished_at),
        "containerID": ended.container_id,
    }
    return _without_empty(told)


def _without_empty(told: JsonObject) -> JsonObject:
    return {name: value for name, value in told.items() if value != ""}
