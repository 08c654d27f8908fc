"""Comparison of recorded and actual objects."""

from __future__ import annotations

from typing import Any

import pytest

from tests.frameworks.golden_allowed_differences import ALLOWED_DIFFERENCES
from tests.frameworks.golden_diff import ABSENT, find_differences, normalize_object, normalize_status

pytestmark = pytest.mark.selftest

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


def diff(recorded: Any, actual: Any) -> list[tuple[str, Any, Any]]:
    return [(difference.path, difference.recorded, difference.actual) for difference in find_differences(recorded, actual)]


def test_normalization_removes_all_fields_of_the_server() -> None:
    assert normalize_object(POD, namespace="golden-1", owner_uid="of the job") == {
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


def test_an_owner_other_than_the_job_is_a_difference() -> None:
    (owner,) = normalize_object(POD, namespace="golden-1", owner_uid="another")["metadata"]["ownerReferences"]
    assert owner["uid"] == "of the job"


def test_a_condition_without_its_times_is_a_difference() -> None:
    condition = {"type": "Created", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    normalized = normalize_status({"startTime": "2026-01-01T00:00:00Z", "conditions": [condition]}, namespace="golden-1")
    assert normalized == {"startTime": "TIME", "conditions": [{"type": "Created", "lastUpdateTime": "MISSING"}]}


def test_missing_and_additional_values_are_differences() -> None:
    assert diff({"a": 1, "b": {"c": 2}}, {"b": {"c": 2, "d": 3}}) == [("a", 1, ABSENT), ("b.d", ABSENT, 3)]


def test_a_difference_in_a_list_has_the_name_of_the_entry_in_its_path() -> None:
    recorded = {"env": [{"name": "RANK", "value": "0"}, {"name": "WORLD_SIZE", "value": "3"}]}
    actual = {"env": [{"name": "RANK", "value": "1"}]}
    assert diff(recorded, actual) == [("env[RANK].value", "0", "1"), ("env[WORLD_SIZE]", {"name": "WORLD_SIZE", "value": "3"}, ABSENT)]


def test_the_order_of_conditions_is_compared() -> None:
    created, running = {"type": "Created"}, {"type": "Running"}
    assert diff({"conditions": [created, running]}, {"conditions": [running, created]}) == [
        ("conditions (order)", ["Created", "Running"], ["Running", "Created"])
    ]


def test_the_order_of_variables_is_not_compared() -> None:
    first, second = {"name": "A", "value": "1"}, {"name": "B", "value": "2"}
    assert diff({"pod": {"env": [first, second]}}, {"pod": {"env": [second, first]}}) == []


def test_the_last_one_of_two_equal_variables_wins() -> None:
    user_variable, operator_variable = {"name": "A", "value": "99"}, {"name": "A", "value": "2"}
    assert diff({"env": [user_variable, operator_variable]}, {"env": [operator_variable]}) == [
        ("env[A, overridden]", user_variable, ABSENT)
    ]


def test_a_difference_is_printed_with_its_step_and_path() -> None:
    (difference,) = find_differences({"job": {"reason": "A"}}, {"job": {}}, step="after run *")
    assert str(difference) == 'after run *: job.reason: recorded "A", actual (absent)'


@pytest.mark.parametrize(
    "path", ["objects.pods[demo-worker-0].spec.containers[pytorch].env[RANK].value", "view.job.conditions[Running].reason"]
)
def test_no_allowed_difference_covers_essential_fields(path: str) -> None:
    (difference,) = find_differences("1", "2", path=path)
    assert not any(allowed.covers(difference, {}) for allowed in ALLOWED_DIFFERENCES)


@pytest.mark.parametrize(("actual", "is_allowed"), [("a=1", True), ("a=2", False), ("", False)])
def test_a_kept_selector_must_be_the_earlier_one(actual: str, is_allowed: bool) -> None:
    before, after = ({"job": {"replicaStatuses": {"Worker": worker}}} for worker in ({"selector": "a=1"}, {"succeeded": 1}))
    recording = {"settled": before, "steps": [{"then": after}]}
    (difference,) = find_differences(ABSENT, actual, step="after succeed *", path="view.job.replicaStatuses.Worker.selector")
    assert any(allowed.covers(difference, recording) for allowed in ALLOWED_DIFFERENCES) is is_allowed


def test_names_and_reasons_of_allowed_differences_are_unique() -> None:
    assert (
        len({allowed.name for allowed in ALLOWED_DIFFERENCES})
        == len({allowed.reason for allowed in ALLOWED_DIFFERENCES})
        == len(ALLOWED_DIFFERENCES)
    )
