"""What a scheduler is told that places the pods of a job together: how many, what they need, and which pods they are."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.api.gang import DEFAULT_CLASS, Gang, GangMember, difference, group_metadata, group_spec, other_schedulers, with_pod_group
from dlop.api.pod_resources import requests_of
from dlop.api.spec import JobSpec, RoleSpec, SchedulingPolicy
from dlop.kube.types import JsonObject

BY_VOLCANO = Gang("volcano", "demo")
BY_PLUGINS = Gang("scheduler-plugins-scheduler", "demo")


def container(**resources: JsonObject) -> JsonObject:
    return {"name": "main", "resources": resources}


def needs(spec: JsonObject) -> dict[str, str]:
    return {name: str(amount) for name, amount in requests_of(spec).items()}


def role(name: str, replicas: int, *, cpu: str = "1", **spec: Any) -> RoleSpec:
    containers = [container(requests={"cpu": cpu})]
    return RoleSpec(name=name, replicas=replicas, template={"spec": {"containers": containers, **spec}})


def told(
    gang: Gang, *given: RoleSpec | GangMember, found_queue: str = "", priorities: dict[str, int] | None = None, **policy: Any
) -> JsonObject:
    parts = [each if isinstance(each, GangMember) else GangMember(each, each.replicas) for each in given]
    return group_spec(
        gang, SchedulingPolicy(**policy), parts, queue=found_queue, priorities=priorities or {}, make_pod=lambda role: role.template
    )


# --- what one pod needs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"containers": [container(requests={"cpu": "500m", "memory": "1Gi"}), container(requests={"cpu": "1500m"})]},
            {"cpu": "2", "memory": "1Gi"},
            id="the sum of the containers",
        ),
        pytest.param({"containers": [container(limits={"nvidia.com/gpu": 2})]}, {"nvidia.com/gpu": "2"}, id="a limit is a request"),
        pytest.param(
            {"containers": [container(limits={"cpu": 4, "memory": "2Gi"}, requests={"cpu": 1})]},
            {"cpu": "1", "memory": "2Gi"},
            id="where there is no other",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1})], "initContainers": [container(requests={"cpu": 3, "memory": "1Mi"})]},
            {"cpu": "3", "memory": "1Mi"},
            id="an init container may need more",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": 2})],
                "initContainers": [
                    container(requests={"cpu": 2}),
                    {**container(requests={"cpu": 1}), "restartPolicy": "Always"},
                    container(requests={"cpu": 3}),
                ],
            },
            {"cpu": "4"},
            id="and a sidecar runs beside those after it",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1})], "overhead": {"cpu": "250m", "memory": "64Mi"}},
            {"cpu": "1250m", "memory": "64Mi"},
            id="with the overhead of the sandbox",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1, "memory": "1Gi"})], "resources": {"requests": {"cpu": 3}}},
            {"cpu": "3", "memory": "1Gi"},
            id="what the pod asks for as a whole counts",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1})], "resources": {"limits": {"cpu": 8, "memory": "4Gi"}}},
            {"cpu": "1", "memory": "4Gi"},
            id="its limit counts where no container asks for anything",
        ),
    ],
)
def test_a_pod_needs_what_its_node_has_to_give(spec: JsonObject, expected: dict[str, str]) -> None:
    assert needs(spec) == expected


@pytest.mark.parametrize(
    "nonsense",
    [
        {"containers": [container(requests={"cpu": "much", "memory": "1Gi"})]},
        {"containers": [container(requests={"cpu": None, "memory": "1Gi", "x": True, "y": [1], "z": "1e999999999"})]},
        {"containers": ["x", container(requests={"memory": "1Gi"})], "initContainers": {"a": 1}, "overhead": "all", "resources": 3},
        {"containers": [{"resources": "x"}, {"resources": {"requests": "x", "limits": {"memory": "1Gi"}}}]},
    ],
)
def test_what_is_no_quantity_is_left_to_the_server_to_refuse(nonsense: JsonObject) -> None:
    assert needs(nonsense) == {"memory": "1Gi"}


def test_sums_are_exact_and_stay_in_the_family_of_the_first() -> None:
    thirds = [container(requests={"cpu": "0.1", "memory": "1Gi"})] * 3
    assert needs({"containers": thirds}) == {"cpu": "300m", "memory": "3Gi"}
    mixed = [container(requests={"memory": "1Gi"}), container(requests={"memory": "1k"})]
    assert needs({"containers": mixed}) == {"memory": str(1024**3 + 1000)}


# --- what the group says -------------------------------------------------------------------------------------------------


def test_a_group_has_all_pods_and_what_they_need_together() -> None:
    assert told(BY_VOLCANO, role("Master", 1, cpu="2"), role("Worker", 3, cpu="500m")) == {
        "minMember": 4,
        "minResources": {"cpu": "3500m"},
        "queue": "default",
    }
    assert told(BY_PLUGINS, role("Worker", 3)) == {"minMember": 3, "minResources": {"cpu": "3"}}


def test_a_group_says_what_the_policy_says() -> None:
    policy: dict[str, Any] = {
        "min_available": 1,
        "min_resources": {"cpu": 7},
        "queue": "night",
        "priority_class": "high",
        "schedule_timeout_seconds": 60,
    }
    common = {"minMember": 1, "minResources": {"cpu": 7}}
    assert told(BY_VOLCANO, role("Worker", 3), **policy) == {**common, "queue": "night", "priorityClassName": "high"}
    assert told(BY_PLUGINS, role("Worker", 3), **policy) == {**common, "scheduleTimeoutSeconds": 60}


def test_the_queue_that_a_group_is_in_stays() -> None:
    assert told(BY_VOLCANO, role("Worker", 1), found_queue="moved", queue="night")["queue"] == "moved"


def test_of_a_part_of_the_pods_those_of_the_most_important_roles_are_counted() -> None:
    roles = (role("Master", 1, cpu="1"), role("Worker", 3, cpu="10", priorityClassName="high"), role("Evaluator", 1, cpu="100"))
    assert told(BY_PLUGINS, *roles, min_available=2, priorities={"high": 5})["minResources"] == {"cpu": "20"}
    assert told(BY_PLUGINS, *roles, min_available=4, priorities={"high": 5})["minResources"] == {"cpu": "31"}
    assert told(BY_PLUGINS, *roles, min_available=4, priorities={"high": 5, DEFAULT_CLASS: 9})["minResources"] == {"cpu": "121"}


def test_among_equals_the_order_of_the_roles_counts_and_a_class_that_is_not_there_counts_for_nothing() -> None:
    roles = (role("Master", 1, cpu="1"), role("Worker", 3, cpu="10", priorityClassName="gone"))
    for _ in range(3):
        assert told(BY_PLUGINS, *roles, min_available=2)["minResources"] == {"cpu": "11"}


def test_more_members_than_there_are_pods_need_what_there_is() -> None:
    assert told(BY_PLUGINS, role("Worker", 2), min_available=9) == {"minMember": 9, "minResources": {"cpu": "2"}}


def test_nobody_waits_for_pods_that_wait_for_others_or_that_do_not_come_again() -> None:
    workers, launcher = role("Worker", 3, cpu="10"), GangMember(role("Launcher", 1), 1, waits=True)
    assert told(BY_PLUGINS, workers, launcher) == {"minMember": 3, "minResources": {"cpu": "31"}}
    assert told(BY_PLUGINS, workers, launcher, min_available=4) == {"minMember": 3, "minResources": {"cpu": "30"}}
    assert told(BY_PLUGINS, GangMember(workers, 2)) == {"minMember": 2, "minResources": {"cpu": "20"}}
    assert told(BY_PLUGINS, GangMember(workers, 2), min_available=3) == {"minMember": 2, "minResources": {"cpu": "20"}}
    assert told(BY_PLUGINS, workers, role("Evaluator", 0, cpu="7")) == {"minMember": 3, "minResources": {"cpu": "30"}}


def test_the_annotations_of_the_job_are_for_the_scheduler_too_but_not_what_kubectl_notes() -> None:
    given = {"topology": "rack", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert group_metadata({"name": "demo"}, annotations=given) == {"name": "demo", "annotations": {"topology": "rack"}}


# --- when a group has to be changed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "wanted", "patch"),
    [
        ({"minMember": 2, "queue": "a"}, {"minMember": 2, "queue": "a"}, {}),
        ({"minMember": 2, "somebody": "else"}, {"minMember": 3}, {"minMember": 3}),
        ({"minResources": {"cpu": "1000m", "memory": "1024Mi"}}, {"minResources": {"cpu": 1, "memory": "1Gi"}}, {}),
        ({"minResources": {"cpu": "1", "gpu": 1}}, {"minResources": {"cpu": "2"}}, {"minResources": {"cpu": "2", "gpu": None}}),
        ({"minResources": {"cpu": "1"}}, {}, {"minResources": None}),
        ({}, {"minResources": {"cpu": "1"}}, {"minResources": {"cpu": "1"}}),
        ({"minResources": {}, "priorityClassName": "", "minMember": 0}, {}, {}),
        ({"priorityClassName": "high"}, {}, {"priorityClassName": None}),
    ],
)
def test_a_group_is_changed_where_it_says_something_else_and_nowhere_else(found: JsonObject, wanted: JsonObject, patch: JsonObject) -> None:
    assert difference(found, wanted) == patch


# --- the pods ------------------------------------------------------------------------------------------------------------


def test_volcano_knows_pods_by_annotations_and_the_others_by_a_label() -> None:
    pod = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {}}
    assert with_pod_group(pod, BY_VOLCANO, role="Worker") == {
        "metadata": {
            "labels": {"a": "b"},
            "annotations": {"c": "d", "scheduling.k8s.io/group-name": "demo", "volcano.sh/task-spec": "worker"},
        },
        "spec": {"schedulerName": "volcano"},
    }
    assert with_pod_group(pod, BY_PLUGINS, role="Worker") == {
        "metadata": {"labels": {"a": "b", "scheduling.x-k8s.io/pod-group": "demo"}, "annotations": {"c": "d"}},
        "spec": {"schedulerName": "scheduler-plugins-scheduler"},
    }


def test_a_scheduler_that_the_user_has_named_stays_and_is_told() -> None:
    mine = role("Worker", 1, schedulerName="mine")
    assert with_pod_group({"metadata": {}, "spec": mine.template["spec"]}, BY_VOLCANO, role="Worker")["spec"]["schedulerName"] == "mine"
    spec = JobSpec(roles=(role("Master", 1), role("Chief", 1, schedulerName="volcano"), mine))
    assert list(other_schedulers(BY_VOLCANO, spec)) == [("Worker", "mine")]


@pytest.mark.parametrize(("phase", "waits"), [("", True), ("Pending", True), ("Inqueue", False), ("Running", False), ("Unknown", False)])
def test_only_volcano_lets_pods_wait_and_only_until_the_group_is_let_in(phase: str, *, waits: bool) -> None:
    assert BY_VOLCANO.is_let_in(phase) is not waits
    assert BY_PLUGINS.is_let_in(phase)
