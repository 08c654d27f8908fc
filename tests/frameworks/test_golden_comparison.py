"""What counts as a difference from a recording."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.golden_comparison import ABSENT, as_recorded, differences, status_as_recorded
from tests.frameworks.golden_differences import ALLOWED

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "demo-master-0",
        "namespace": "golden-1",
        "uid": "u",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "PyTorchJob", "name": "demo", "uid": "of the job", "controller": True}],
    },
    "spec": {
        "containers": [
            {
                "name": "pytorch",
                "env": [{"name": "EMPTY", "value": ""}, {"name": "URI", "value": "demo-master-0.golden-1.svc"}],
                "ports": [{"name": "p", "containerPort": 1, "protocol": "TCP"}],
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "volumeMounts": [{"name": "kube-api-access-x1", "mountPath": "/var/run"}],
            }
        ],
        "dnsPolicy": "ClusterFirst",
        "nodeName": "scripted-node",
        "tolerations": [{"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
        "volumes": [{"name": "kube-api-access-x1", "projected": {}}],
    },
    "status": {"phase": "Pending"},
}


def found(recorded: Any, ours: Any) -> list[tuple[str, Any, Any]]:
    return [(each.path, each.recorded, each.ours) for each in differences(recorded, ours)]


def test_an_object_of_a_server_loses_all_that_is_the_servers() -> None:
    assert as_recorded(POD, namespace="golden-1", owner_uid="of the job") == {
        "metadata": {
            "name": "demo-master-0",
            "namespace": "NS",
            "ownerReferences": [{"kind": "PyTorchJob", "name": "demo", "controller": True}],
        },
        "spec": {
            "containers": [
                {
                    "name": "pytorch",
                    "env": [{"name": "EMPTY"}, {"name": "URI", "value": "demo-master-0.NS.svc"}],
                    "ports": [{"name": "p", "containerPort": 1}],
                }
            ]
        },
    }


def test_an_owner_that_is_not_the_job_keeps_its_uid_and_so_is_a_difference() -> None:
    (owner,) = as_recorded(POD, namespace="golden-1", owner_uid="another")["metadata"]["ownerReferences"]
    assert owner["uid"] == "of the job"


def test_a_condition_without_its_times_is_a_difference() -> None:
    condition = {"type": "Created", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    made = status_as_recorded({"startTime": "2026-01-01T00:00:00Z", "conditions": [condition]}, namespace="golden-1")
    assert made == {"startTime": "TIME", "conditions": [{"type": "Created", "lastUpdateTime": "MISSING"}]}


def test_what_is_missing_and_what_is_too_much_are_both_differences() -> None:
    assert found({"a": 1, "b": {"c": 2}}, {"b": {"c": 2, "d": 3}}) == [("a", 1, ABSENT), ("b.d", ABSENT, 3)]


def test_a_difference_in_a_list_is_told_by_the_name_of_the_entry() -> None:
    recorded = {"env": [{"name": "RANK", "value": "0"}, {"name": "WORLD_SIZE", "value": "3"}]}
    ours = {"env": [{"name": "RANK", "value": "1"}]}
    assert found(recorded, ours) == [("env[RANK].value", "0", "1"), ("env[WORLD_SIZE]", {"name": "WORLD_SIZE", "value": "3"}, ABSENT)]


def test_the_order_of_conditions_counts() -> None:
    created, running = {"type": "Created"}, {"type": "Running"}
    assert found({"conditions": [created, running]}, {"conditions": [running, created]}) == [
        ("conditions (order)", ["Created", "Running"], ["Running", "Created"])
    ]


def test_the_order_of_variables_does_not_count() -> None:
    first, second = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    assert found({"pod": {"env": [first, second]}}, {"pod": {"env": [second, first]}}) == []


def test_of_a_variable_that_is_there_twice_the_last_one_counts() -> None:
    users, operators = {"name": "A", "value": "99"}, {"name": "A", "value": "2"}
    assert found({"env": [users, operators]}, {"env": [operators]}) == [("env[A, overridden]", users, ABSENT)]


def test_a_difference_can_be_read_by_people() -> None:
    (difference,) = differences({"job": {"reason": "A"}}, {"job": {}}, moment="after run *")
    assert str(difference) == 'after run *: job.reason: recorded "A", ours (nothing)'


@pytest.mark.parametrize(
    "path", ["objects.pods[demo-worker-0].spec.containers[pytorch].env[RANK].value", "view.job.conditions[Running].reason"]
)
def test_no_allowed_difference_covers_what_jobs_depend_on(path: str) -> None:
    (difference,) = differences("1", "2", path=path)
    assert not any(allowed.covers(difference, {}) for allowed in ALLOWED)


@pytest.mark.parametrize(("ours", "is_meant"), [("a=1", True), ("a=2", False), ("", False)])
def test_a_selector_that_stays_has_to_be_the_one_that_was_there_before(ours: str, is_meant: bool) -> None:
    before, after = ({"job": {"replicaStatuses": {"Worker": worker}}} for worker in ({"selector": "a=1"}, {"succeeded": 1}))
    recording = {"settled": before, "steps": [{"then": after}]}
    (difference,) = differences(ABSENT, ours, moment="after succeed *", path="view.job.replicaStatuses.Worker.selector")
    assert any(allowed.covers(difference, recording) for allowed in ALLOWED) is is_meant


def test_every_allowed_difference_has_a_name_and_a_reason_of_its_own() -> None:
    assert len({allowed.name for allowed in ALLOWED}) == len({allowed.reason for allowed in ALLOWED}) == len(ALLOWED)
