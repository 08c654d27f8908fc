"""Columns of `kubectl get pods` for all states of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.core.pod_columns import POD_COLUMNS, summarize_pod
from dlop.embedded.apiserver.resource_type import Timestamp
from dlop.kube.types import JsonObject

NOON = Timestamp(1_767_268_800.0)  # 2026-01-01T12:00:00Z
RUNNING = {"running": {"startedAt": "2026-01-01T11:00:00Z"}}


def terminated(code: int, *, reason: str = "", signal: int = 0, at: str = "2026-01-01T11:55:00Z") -> JsonObject:
    fields: JsonObject = {"exitCode": code, "reason": reason, "signal": signal, "finishedAt": at}
    return {"terminated": {name: value for name, value in fields.items() if value or name == "exitCode"}}


def waiting(reason: str) -> JsonObject:
    return {"waiting": {"reason": reason}}


def container(state: JsonObject, *, name: str = "c", restarts: int = 0, last: JsonObject | None = None, **more: Any) -> JsonObject:
    return {"name": name, "state": state, "ready": "running" in state, "restartCount": restarts, "lastState": last or {}, **more}


def pod(*statuses: JsonObject, phase: str = "Running", init: tuple[JsonObject, ...] = (), **status: Any) -> JsonObject:
    return {
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T10:00:00Z"},
        "spec": {
            "containers": [{"name": item["name"]} for item in statuses],
            "initContainers": [{"name": item["name"]} for item in init],
        },
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
    ("Completed", pod(container(terminated(0, reason="Completed")), phase="Succeeded"), "0/1"),
    ("Error", pod(container(terminated(1, reason="Error")), phase="Failed"), "0/1"),
    ("OOMKilled", pod(container(terminated(137, reason="OOMKilled")), phase="Failed"), "0/1"),
    ("ExitCode:3", pod(container(terminated(3)), phase="Failed"), "0/1"),
    ("Signal:9", pod(container(terminated(137, signal=9)), phase="Failed"), "0/1"),
    ("Running", pod(container(terminated(0, reason="Completed")), container(RUNNING, name="d"), conditions=READY), "1/2"),
    ("NotReady", pod(container(terminated(0, reason="Completed")), container(RUNNING, name="d")), "1/2"),
    ("Error", pod(container(terminated(0, reason="Completed")), container(terminated(1, reason="Error"), name="d")), "0/2"),
    ("Init:0/2", pod(container(waiting("PodInitializing")), init=(container(RUNNING, name="i"), container({}, name="j"))), "0/1"),
    ("Init:1/2", pod(init=(container(terminated(0), name="i"), container(waiting("PodInitializing"), name="j"))), "0/0"),
    ("Init:CrashLoopBackOff", pod(init=(container(waiting("CrashLoopBackOff"), name="i"),)), "0/0"),
    ("Init:Error", pod(init=(container(terminated(1, reason="Error"), name="i"),)), "0/0"),
    ("Init:ExitCode:2", pod(init=(container(terminated(2), name="i"),)), "0/0"),
    ("Init:Signal:9", pod(init=(container(terminated(137, signal=9), name="i"),)), "0/0"),
    ("Terminating", deleted(pod(container(RUNNING))), "1/1"),
    ("Completed", deleted(pod(container(terminated(0, reason="Completed")), phase="Succeeded")), "0/1"),
    ("Unknown", deleted(pod(container(RUNNING), reason="NodeLost")), "1/1"),
]


@pytest.mark.parametrize(("status", "body", "readiness"), CASES)
def test_the_status_column_shows_the_state_of_the_pod(status: str, body: JsonObject, readiness: str) -> None:
    summary = summarize_pod(body)
    assert (summary.status, f"{summary.ready}/{summary.total}") == (status, readiness)


def cells(body: JsonObject) -> dict[str, Any]:
    return {column.name: column.cell(body, NOON) for column in POD_COLUMNS}


def test_restarts_of_all_containers_are_summed_and_the_last_one_has_an_age() -> None:
    first = container(RUNNING, restarts=2, last=terminated(1, at="2026-01-01T11:50:00Z"))
    second = container(RUNNING, name="d", restarts=1, last=terminated(1, at="2026-01-01T11:58:30Z"))
    assert cells(pod(first, second))["Restarts"] == "3 (90s ago)"


def test_restarts_of_init_containers_do_not_count_once_the_pod_runs() -> None:
    init = container(terminated(0), name="i", restarts=4, last=terminated(1))
    assert cells(pod(container(RUNNING), init=(init,)))["Restarts"] == "0"
    assert cells(pod(init=(container(waiting("CrashLoopBackOff"), name="i", restarts=4, last=terminated(1)),)))["Restarts"] == "4 (5m ago)"


def test_a_sidecar_counts_as_a_container() -> None:
    body = pod(container(RUNNING), init=(container(RUNNING, name="s", restarts=1, started=True),))
    body["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    summary = summarize_pod(body)
    assert (summary.status, summary.ready, summary.total, summary.restarts) == ("Running", 2, 2, 1)


def test_the_wide_columns_show_none_for_unknown_values() -> None:
    row = cells(pod(container(RUNNING)))
    assert [row[name] for name in ("IP", "Node", "Nominated Node", "Readiness Gates")] == ["<none>"] * 4
    assert row["Age"] == "120m"


def test_the_wide_columns_show_address_node_and_gates() -> None:
    body = pod(container(RUNNING), podIPs=[{"ip": "10.0.0.7"}], conditions=ready(kind="example.org/warm"))
    body["spec"] |= {"nodeName": "one", "readinessGates": [{"conditionType": "example.org/warm"}, {"conditionType": "example.org/cold"}]}
    row = cells(body)
    assert (row["IP"], row["Node"], row["Readiness Gates"]) == ("10.0.0.7", "one", "1/2")
