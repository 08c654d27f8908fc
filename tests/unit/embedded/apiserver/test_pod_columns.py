"""The words of `kubectl get pods`, for every state that a pod can be in."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.core.pod_columns import POD_COLUMNS, summary
from dlop.embedded.apiserver.resource_type import Moment
from dlop.kube.types import JsonObject

NOON = Moment(1_767_268_800.0)  # 2026-01-01T12:00:00Z
RUNNING = {"running": {"startedAt": "2026-01-01T11:00:00Z"}}


def ended(code: int, *, reason: str = "", signal: int = 0, at: str = "2026-01-01T11:55:00Z") -> JsonObject:
    fields: JsonObject = {"exitCode": code, "reason": reason, "signal": signal, "finishedAt": at}
    return {"terminated": {name: value for name, value in fields.items() if value or name == "exitCode"}}


def waiting(reason: str) -> JsonObject:
    return {"waiting": {"reason": reason}}


def container(state: JsonObject, *, name: str = "c", restarts: int = 0, last: JsonObject | None = None, **more: Any) -> JsonObject:
    return {"name": name, "state": state, "ready": "running" in state, "restartCount": restarts, "lastState": last or {}, **more}


def pod(*statuses: JsonObject, phase: str = "Running", init: tuple[JsonObject, ...] = (), **status: Any) -> JsonObject:
    return {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T10:00:00Z"},
        "spec": {"containers": [{"name": each["name"]} for each in statuses], "initContainers": [{"name": each["name"]} for each in init]},
        "status": {"phase": phase, "containerStatuses": list(statuses), "initContainerStatuses": list(init), **status},
    }


def deleted(body: JsonObject) -> JsonObject:
    return {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T12:00:30Z"}}


def ready(value: str = "True", *, kind: str = "Ready", **more: str) -> list[JsonObject]:
    return [{"type": kind, "status": value, **more}]


READY = ready()
CASES: list[tuple[str, JsonObject, str]] = [
    ("Pending", pod(phase="Pending"), "0/0"),
    ("Evicted", pod(phase="Failed", reason="Evicted"), "0/0"),
    ("SchedulingGated", pod(phase="Pending", conditions=ready("False", kind="PodScheduled", reason="SchedulingGated")), "0/0"),
    ("ContainerCreating", pod(container(waiting("ContainerCreating")), phase="Pending"), "0/1"),
    ("ImagePullBackOff", pod(container(waiting("ImagePullBackOff")), phase="Pending"), "0/1"),
    ("CrashLoopBackOff", pod(container(waiting("CrashLoopBackOff"))), "0/1"),
    ("Running", pod(container(RUNNING)), "1/1"),
    ("Completed", pod(container(ended(0, reason="Completed")), phase="Succeeded"), "0/1"),
    ("Error", pod(container(ended(1, reason="Error")), phase="Failed"), "0/1"),
    ("OOMKilled", pod(container(ended(137, reason="OOMKilled")), phase="Failed"), "0/1"),
    ("ExitCode:3", pod(container(ended(3)), phase="Failed"), "0/1"),
    ("Signal:9", pod(container(ended(137, signal=9)), phase="Failed"), "0/1"),
    ("Running", pod(container(ended(0, reason="Completed")), container(RUNNING, name="d"), conditions=READY), "1/2"),
    ("NotReady", pod(container(ended(0, reason="Completed")), container(RUNNING, name="d")), "1/2"),
    ("Error", pod(container(ended(0, reason="Completed")), container(ended(1, reason="Error"), name="d")), "0/2"),
    ("Init:0/2", pod(container(waiting("PodInitializing")), init=(container(RUNNING, name="i"), container({}, name="j"))), "0/1"),
    ("Init:1/2", pod(init=(container(ended(0), name="i"), container(waiting("PodInitializing"), name="j"))), "0/0"),
    ("Init:CrashLoopBackOff", pod(init=(container(waiting("CrashLoopBackOff"), name="i"),)), "0/0"),
    ("Init:Error", pod(init=(container(ended(1, reason="Error"), name="i"),)), "0/0"),
    ("Init:ExitCode:2", pod(init=(container(ended(2), name="i"),)), "0/0"),
    ("Init:Signal:9", pod(init=(container(ended(137, signal=9), name="i"),)), "0/0"),
    ("Terminating", deleted(pod(container(RUNNING))), "1/1"),
    ("Completed", deleted(pod(container(ended(0, reason="Completed")), phase="Succeeded")), "0/1"),
    ("Unknown", deleted(pod(container(RUNNING), reason="NodeLost")), "1/1"),
]


@pytest.mark.parametrize(("word", "body", "readiness"), CASES)
def test_the_state_of_a_pod_has_a_word(word: str, body: JsonObject, readiness: str) -> None:
    found = summary(body)
    assert (found.status, f"{found.ready}/{found.total}") == (word, readiness)


def cells(body: JsonObject) -> dict[str, Any]:
    return {column.name: column.cell(body, NOON) for column in POD_COLUMNS}


def test_restarts_are_counted_over_all_containers_and_the_last_one_is_dated() -> None:
    one = container(RUNNING, restarts=2, last=ended(1, at="2026-01-01T11:50:00Z"))
    two = container(RUNNING, name="d", restarts=1, last=ended(1, at="2026-01-01T11:58:30Z"))
    assert cells(pod(one, two))["Restarts"] == "3 (90s ago)"


def test_restarts_of_init_containers_no_longer_count_when_the_pod_runs() -> None:
    init = container(ended(0), name="i", restarts=4, last=ended(1))
    assert cells(pod(container(RUNNING), init=(init,)))["Restarts"] == "0"
    assert cells(pod(init=(container(waiting("CrashLoopBackOff"), name="i", restarts=4, last=ended(1)),)))["Restarts"] == "4 (5m ago)"


def test_a_sidecar_counts_among_the_containers() -> None:
    body = pod(container(RUNNING), init=(container(RUNNING, name="s", restarts=1, started=True),))
    body["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    found = summary(body)
    assert (found.status, found.ready, found.total, found.restarts) == ("Running", 2, 2, 1)


def test_the_wide_columns_say_none_for_what_is_not_known() -> None:
    found = cells(pod(container(RUNNING)))
    assert [found[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == ["<none>"] * 4
    assert found["Age"] == "120m"


def test_the_wide_columns_show_address_node_and_gates() -> None:
    body = pod(container(RUNNING), podIPs=[{"ip": "10.0.0.7"}], conditions=ready(kind="example.org/warm"))
    body["spec"] |= {"nodeName": "one", "readinessGates": [{"conditionType": "example.org/warm"}, {"conditionType": "example.org/cold"}]}
    found = cells(body)
    assert (found["IP"], found["Node"], found["Readiness Gates"]) == ("10.0.0.7", "one", "1/2")
