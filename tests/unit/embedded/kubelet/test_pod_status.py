from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlop.embedded.kubelet.orphaned_pods import is_orphaned, orphaned_status
from dlop.embedded.kubelet.pod_status import (
    ObservedContainer,
    ObservedPod,
    ObservedState,
    RunningState,
    TerminatedState,
    WaitingState,
    initial_containers,
    pod_status,
)
from dlop.kube.types import JsonObject

_TERMINATED = TerminatedState(exit_code=0, reason="Completed", container_id="dlop://1")


def _pod(*names: str, init: tuple[JsonObject, ...] = (), policy: str = "Never", **status: Any) -> JsonObject:
    spec: JsonObject = {"restartPolicy": policy, "containers": [{"name": name} for name in names]}
    if init:
        spec["initContainers"] = list(init)
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec, "status": status}


def _status(pod: JsonObject, states: dict[str, ObservedState], *, is_finished: bool = False, now: float = 0.0, **fields: Any) -> JsonObject:
    containers = initial_containers(pod) | {name: ObservedContainer(state=state) for name, state in states.items()}
    observed = ObservedPod(containers=containers, started_at=0.0, host_ip="10.0.0.1", is_finished=is_finished, **fields)
    return pod_status(pod, observed, now=now)


def _condition(status: JsonObject, type: str) -> JsonObject:
    condition: JsonObject = next(item for item in status["conditions"] if item["type"] == type)
    return condition


def test_a_pod_is_running_while_a_failed_container_backs_off() -> None:
    pod = _pod("a", policy="Always")
    failed = replace(_TERMINATED, exit_code=1, reason="Error")
    containers = {"a": ObservedContainer(state=WaitingState("CrashLoopBackOff"), last=failed)}
    assert pod_status(pod, ObservedPod(containers=containers, started_at=0.0, host_ip="h"), now=0.0)["phase"] == "Running"


def test_a_pod_is_pending_until_all_containers_have_started() -> None:
    assert _status(_pod("a", "b"), {"a": RunningState(0.0)})["phase"] == "Pending"


def test_a_pod_that_the_node_terminated_has_failed_with_the_reason() -> None:
    status = _status(_pod("a"), {"a": _TERMINATED}, is_finished=True, failure=("DeadlineExceeded", "too long"))
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "too long")


def test_a_pod_that_was_terminated_before_its_container_started_has_failed() -> None:
    status = _status(_pod("a"), {}, is_finished=True)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_deleted_pod_with_restart_policy_always_succeeds_if_its_containers_did() -> None:
    assert _status(_pod("a", policy="Always"), {"a": _TERMINATED}, is_finished=True)["phase"] == "Succeeded"


def test_a_condition_keeps_its_transition_time_while_it_does_not_change() -> None:
    pod = _pod("a")
    first = _status(pod, {"a": RunningState(0.0)}, now=10.0)
    second = _status({**pod, "status": first}, {"a": RunningState(0.0)}, now=20.0)
    assert _condition(second, "Ready")["lastTransitionTime"] == _condition(first, "Ready")["lastTransitionTime"]
    third = _status({**pod, "status": second}, {"a": _TERMINATED}, now=30.0)
    assert _condition(third, "ContainersReady")["status"] == "False"


def test_conditions_of_other_owners_are_kept() -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert condition in _status(_pod("a", conditions=[condition]), {"a": RunningState(0.0)})["conditions"]


def test_a_restarting_sidecar_does_not_make_the_pod_pending() -> None:
    sidecar = {"name": "side", "restartPolicy": "Always"}
    pod = _pod("a", init=(sidecar,))
    containers = {
        "side": ObservedContainer(state=WaitingState("CrashLoopBackOff"), last=_TERMINATED, restarts=1),
        "a": ObservedContainer(state=RunningState(0.0), is_started=True, is_ready=True),
    }
    status = pod_status(pod, ObservedPod(containers=containers, started_at=0.0, host_ip="h"), now=0.0)
    assert status["phase"] == "Running"
    assert _condition(status, "Initialized")["status"] == "True"
    assert _condition(status, "Ready")["message"] == "containers with unready status: [side]"


def test_container_statuses_are_sorted_and_init_container_statuses_are_not() -> None:
    status = _status(_pod("b", "a", init=({"name": "z"}, {"name": "y"})), {})
    assert [container["name"] for container in status["containerStatuses"]] == ["a", "b"]
    assert [container["name"] for container in status["initContainerStatuses"]] == ["z", "y"]


def test_a_pod_is_orphaned_if_a_previous_node_process_started_it() -> None:
    assert is_orphaned(_pod("a", startTime="2026-01-01T00:00:00Z", phase="Running"))
    assert not is_orphaned(_pod("a", phase="Pending"))
    assert not is_orphaned(_pod("a", startTime="2026-01-01T00:00:00Z", phase="Succeeded"))


def test_an_orphaned_pod_fails_with_a_disruption() -> None:
    running = {"name": "a", "state": {"running": {}}, "ready": True}
    status = orphaned_status(_pod("a", phase="Running", containerStatuses=[running]), now=0.0)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert _condition(status, "DisruptionTarget")["status"] == "True"
