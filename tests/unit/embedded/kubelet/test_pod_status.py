from __future__ import annotations

from dataclasses import replace
from typing import Any

from dlop.embedded.kubelet.orphaned_pods import is_lost, lost_status
from dlop.embedded.kubelet.pod_status import ContainerFacts, Ended, PodFacts, Running, State, Waiting, first_facts, pod_status
from dlop.kube.types import JsonObject

_ENDED = Ended(exit_code=0, reason="Completed", container_id="dlop://1")


def _pod(*names: str, init: tuple[JsonObject, ...] = (), policy: str = "Never", **status: Any) -> JsonObject:
    spec: JsonObject = {"restartPolicy": policy, "containers": [{"name": name} for name in names]}
    if init:
        spec["initContainers"] = list(init)
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u", "generation": 1}, "spec": spec, "status": status}


def _status(pod: JsonObject, states: dict[str, State], *, is_over: bool = False, now: float = 0.0, **facts: Any) -> JsonObject:
    containers = first_facts(pod) | {name: ContainerFacts(state=state) for name, state in states.items()}
    known = PodFacts(containers=containers, started_at=0.0, host_address="10.0.0.1", is_over=is_over, **facts)
    return pod_status(pod, known, now=now)


def _condition(status: JsonObject, type: str) -> JsonObject:
    found: JsonObject = next(each for each in status["conditions"] if each["type"] == type)
    return found


def test_a_container_that_failed_once_and_waits_does_not_make_its_pod_pending() -> None:
    pod = _pod("a", policy="Always")
    failed = replace(_ENDED, exit_code=1, reason="Error")
    facts = {"a": ContainerFacts(state=Waiting("CrashLoopBackOff"), last=failed)}
    assert pod_status(pod, PodFacts(containers=facts, started_at=0.0, host_address="h"), now=0.0)["phase"] == "Running"


def test_a_pod_is_pending_while_one_of_its_containers_has_never_started() -> None:
    assert _status(_pod("a", "b"), {"a": Running(0.0)})["phase"] == "Pending"


def test_an_end_that_the_node_decided_is_a_failure_with_its_reason() -> None:
    status = _status(_pod("a"), {"a": _ENDED}, is_over=True, failure=("DeadlineExceeded", "too long"))
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "DeadlineExceeded", "too long")


def test_a_pod_that_was_ended_before_its_container_began_has_failed() -> None:
    status = _status(_pod("a"), {}, is_over=True)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_deleted_pod_that_restarts_always_succeeds_if_its_containers_did() -> None:
    assert _status(_pod("a", policy="Always"), {"a": _ENDED}, is_over=True)["phase"] == "Succeeded"


def test_a_condition_keeps_its_time_while_it_does_not_change() -> None:
    pod = _pod("a")
    first = _status(pod, {"a": Running(0.0)}, now=10.0)
    second = _status({**pod, "status": first}, {"a": Running(0.0)}, now=20.0)
    assert _condition(second, "Ready")["lastTransitionTime"] == _condition(first, "Ready")["lastTransitionTime"]
    third = _status({**pod, "status": second}, {"a": _ENDED}, now=30.0)
    assert _condition(third, "ContainersReady")["status"] == "False"


def test_the_conditions_of_others_are_left_alone() -> None:
    theirs = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    assert theirs in _status(_pod("a", conditions=[theirs]), {"a": Running(0.0)})["conditions"]


def test_a_sidecar_that_restarts_does_not_take_the_pod_back_to_pending() -> None:
    side = {"name": "side", "restartPolicy": "Always"}
    pod = _pod("a", init=(side,))
    containers = {
        "side": ContainerFacts(state=Waiting("CrashLoopBackOff"), last=_ENDED, restarts=1),
        "a": ContainerFacts(state=Running(0.0), is_started=True, is_ready=True),
    }
    status = pod_status(pod, PodFacts(containers=containers, started_at=0.0, host_address="h"), now=0.0)
    assert status["phase"] == "Running"
    assert _condition(status, "Initialized")["status"] == "True"
    assert _condition(status, "Ready")["message"] == "containers with unready status: [side]"


def test_the_statuses_of_containers_are_sorted_and_those_of_init_containers_are_not() -> None:
    status = _status(_pod("b", "a", init=({"name": "z"}, {"name": "y"})), {})
    assert [each["name"] for each in status["containerStatuses"]] == ["a", "b"]
    assert [each["name"] for each in status["initContainerStatuses"]] == ["z", "y"]


def test_a_pod_that_a_node_of_before_had_begun_is_lost_and_one_that_waits_is_not() -> None:
    assert is_lost(_pod("a", startTime="2026-01-01T00:00:00Z", phase="Running"))
    assert not is_lost(_pod("a", phase="Pending"))
    assert not is_lost(_pod("a", startTime="2026-01-01T00:00:00Z", phase="Succeeded"))


def test_a_lost_pod_has_failed_through_no_fault_of_its_own() -> None:
    running = {"name": "a", "state": {"running": {}}, "ready": True}
    status = lost_status(_pod("a", phase="Running", containerStatuses=[running]), now=0.0)
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert _condition(status, "DisruptionTarget")["status"] == "True"
