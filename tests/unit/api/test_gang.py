"""PodGroups: the number of members, their resource requests, and the metadata of the pods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dlop.api.gang import (
    DEFAULT_PRIORITY_CLASS,
    Gang,
    GangMember,
    pod_group_metadata,
    pod_group_of,
    pod_group_patch,
    pod_group_spec,
    scheduler_mismatches,
    with_default_scheduler,
    with_pod_group,
)
from dlop.api.pod_resources import pod_requests
from dlop.api.spec import RoleSpec, SchedulingPolicy, SpotReplicas
from dlop.kube.objects import Pod
from dlop.kube.types import JsonObject

BY_VOLCANO = Gang("volcano", "demo")
BY_PLUGINS = Gang("scheduler-plugins-scheduler", "demo")
BY_KUBE_BATCH = Gang("kube-batch", "demo")
BY_COSCHEDULER = Gang("kube-coscheduler", "demo")


def container(**resources: JsonObject) -> JsonObject:
    return {"name": "main", "resources": resources}


def requests(spec: JsonObject) -> dict[str, str]:
    return {name: str(quantity) for name, quantity in pod_requests(spec).items()}


def role(name: str, replicas: int, *, cpu: str = "1", **spec: Any) -> RoleSpec:
    containers = [container(requests={"cpu": cpu})]
    return RoleSpec(name=name, replicas=replicas, template={"spec": {"containers": containers, **spec}})


def group_spec(
    gang: Gang, *roles: RoleSpec | GangMember, current_queue: str = "", priorities: dict[str, int] | None = None, **policy: Any
) -> JsonObject:
    members = [role if isinstance(role, GangMember) else GangMember(role, role.replicas) for role in roles]
    return pod_group_spec(
        gang, SchedulingPolicy(**policy), members, queue=current_queue, priorities=priorities or {}, make_pod=lambda role: role.template
    )


# --- requests of one pod -------------------------------------------------------------------------------------------------


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
            id="a request overrides a limit",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1})], "initContainers": [container(requests={"cpu": 3, "memory": "1Mi"})]},
            {"cpu": "3", "memory": "1Mi"},
            id="an init container may request more",
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
            id="a sidecar runs next to later containers",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1})], "overhead": {"cpu": "250m", "memory": "64Mi"}},
            {"cpu": "1250m", "memory": "64Mi"},
            id="the overhead is added",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1, "memory": "1Gi"})], "resources": {"requests": {"cpu": 3}}},
            {"cpu": "3", "memory": "1Gi"},
            id="pod-level requests override",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": 1})], "resources": {"limits": {"cpu": 8, "memory": "4Gi"}}},
            {"cpu": "1", "memory": "4Gi"},
            id="a pod-level limit applies if no container requests the resource",
        ),
    ],
)
def test_the_requests_of_a_pod_are_those_of_the_scheduler(spec: JsonObject, expected: dict[str, str]) -> None:
    assert requests(spec) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container(requests={"cpu": "much", "memory": "1Gi"})]},
        {"containers": [container(requests={"cpu": None, "memory": "1Gi", "x": True, "y": [1], "z": "1e999999999"})]},
        {"containers": ["x", container(requests={"memory": "1Gi"})], "initContainers": {"a": 1}, "overhead": "all", "resources": 3},
        {"containers": [{"resources": "x"}, {"resources": {"requests": "x", "limits": {"memory": "1Gi"}}}]},
    ],
)
def test_invalid_quantities_are_ignored_because_the_server_rejects_them(spec: JsonObject) -> None:
    assert requests(spec) == {"memory": "1Gi"}


def test_sums_are_exact_and_keep_the_suffix_family_of_the_first() -> None:
    thirds = [container(requests={"cpu": "0.1", "memory": "1Gi"})] * 3
    assert requests({"containers": thirds}) == {"cpu": "300m", "memory": "3Gi"}
    mixed = [container(requests={"memory": "1Gi"}), container(requests={"memory": "1k"})]
    assert requests({"containers": mixed}) == {"memory": str(1024**3 + 1000)}


# --- spec of the PodGroup ------------------------------------------------------------------------------------------------


def test_a_group_has_all_pods_and_the_sum_of_their_requests() -> None:
    assert group_spec(BY_VOLCANO, role("Master", 1, cpu="2"), role("Worker", 3, cpu="500m")) == {
        "minMember": 4,
        "minResources": {"cpu": "3500m"},
        "queue": "default",
    }
    assert group_spec(BY_PLUGINS, role("Worker", 3)) == {"minMember": 3, "minResources": {"cpu": "3"}}
    assert group_spec(BY_COSCHEDULER, role("Worker", 3)) == {"minMember": 3, "minResources": {"cpu": "3"}}


def test_a_group_of_kube_batch_has_no_resources_and_the_scheduler_chooses_its_default_queue() -> None:
    assert group_spec(BY_KUBE_BATCH, role("Worker", 3)) == {"minMember": 3}


def test_a_group_has_the_values_of_the_policy() -> None:
    policy: dict[str, Any] = {
        "min_available": 1,
        "min_resources": {"cpu": 7},
        "queue": "night",
        "priority_class": "high",
        "schedule_timeout_seconds": 60,
    }
    common = {"minMember": 1, "minResources": {"cpu": 7}}
    assert group_spec(BY_VOLCANO, role("Worker", 3), **policy) == {**common, "queue": "night", "priorityClassName": "high"}
    assert group_spec(BY_PLUGINS, role("Worker", 3), **policy) == {**common, "scheduleTimeoutSeconds": 60}
    assert group_spec(BY_COSCHEDULER, role("Worker", 3), **policy) == {**common, "scheduleTimeoutSeconds": 60}
    assert group_spec(BY_KUBE_BATCH, role("Worker", 3), **policy) == {"minMember": 1, "queue": "night", "priorityClassName": "high"}


def test_the_queue_of_an_existing_group_is_kept() -> None:
    assert group_spec(BY_VOLCANO, role("Worker", 1), current_queue="moved", queue="night")["queue"] == "moved"


def test_min_available_counts_the_pods_with_the_highest_priority() -> None:
    roles = (role("Master", 1, cpu="1"), role("Worker", 3, cpu="10", priorityClassName="high"), role("Evaluator", 1, cpu="100"))
    assert group_spec(BY_PLUGINS, *roles, min_available=2, priorities={"high": 5})["minResources"] == {"cpu": "20"}
    assert group_spec(BY_PLUGINS, *roles, min_available=4, priorities={"high": 5})["minResources"] == {"cpu": "31"}
    assert group_spec(BY_PLUGINS, *roles, min_available=4, priorities={"high": 5, DEFAULT_PRIORITY_CLASS: 9})["minResources"] == {
        "cpu": "121"
    }


def test_spot_pods_are_counted_with_the_priority_of_their_own_class() -> None:
    worker = role("Worker", 3, cpu="10", priorityClassName="high")
    members = (
        role("Master", 1, cpu="1"),
        GangMember(replace(worker, spot=SpotReplicas(count=2, priority_class="cheap", path="")), 3, spot=2),
    )
    priorities = {"high": 5, "cheap": -5}
    assert group_spec(BY_PLUGINS, *members, min_available=2, priorities=priorities)["minResources"] == {"cpu": "11"}
    assert group_spec(BY_PLUGINS, *members, min_available=3, priorities=priorities)["minResources"] == {"cpu": "21"}
    assert group_spec(BY_PLUGINS, *members, priorities=priorities) == {"minMember": 4, "minResources": {"cpu": "31"}}


def test_equal_priorities_keep_the_order_of_the_roles_and_a_missing_class_has_none() -> None:
    roles = (role("Master", 1, cpu="1"), role("Worker", 3, cpu="10", priorityClassName="missing"))
    for _ in range(3):
        assert group_spec(BY_PLUGINS, *roles, min_available=2)["minResources"] == {"cpu": "11"}


def test_more_members_than_pods_request_the_resources_of_the_pods() -> None:
    assert group_spec(BY_PLUGINS, role("Worker", 2), min_available=9) == {"minMember": 9, "minResources": {"cpu": "2"}}


def test_the_group_does_not_wait_for_pods_that_start_later_or_have_finished() -> None:
    workers, launcher = role("Worker", 3, cpu="10"), GangMember(role("Launcher", 1), 1, waits=True)
    assert group_spec(BY_PLUGINS, workers, launcher) == {"minMember": 3, "minResources": {"cpu": "31"}}
    assert group_spec(BY_PLUGINS, workers, launcher, min_available=4) == {"minMember": 3, "minResources": {"cpu": "30"}}
    assert group_spec(BY_PLUGINS, GangMember(workers, 2)) == {"minMember": 2, "minResources": {"cpu": "20"}}
    assert group_spec(BY_PLUGINS, GangMember(workers, 2), min_available=3) == {"minMember": 2, "minResources": {"cpu": "20"}}
    assert group_spec(BY_PLUGINS, workers, role("Evaluator", 0, cpu="7")) == {"minMember": 3, "minResources": {"cpu": "30"}}


def test_the_annotations_of_the_job_are_passed_on_except_last_applied() -> None:
    annotations = {"topology": "rack", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    assert pod_group_metadata({"name": "demo"}, annotations=annotations) == {"name": "demo", "annotations": {"topology": "rack"}}


# --- patches of the PodGroup ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "desired", "patch"),
    [
        ({"minMember": 2, "queue": "a"}, {"minMember": 2, "queue": "a"}, {}),
        ({"minMember": 2, "other": "field"}, {"minMember": 3}, {"minMember": 3}),
        ({"minResources": {"cpu": "1000m", "memory": "1024Mi"}}, {"minResources": {"cpu": 1, "memory": "1Gi"}}, {}),
        ({"minResources": {"cpu": "1", "gpu": 1}}, {"minResources": {"cpu": "2"}}, {"minResources": {"cpu": "2", "gpu": None}}),
        ({"minResources": {"cpu": "1"}}, {}, {"minResources": None}),
        ({}, {"minResources": {"cpu": "1"}}, {"minResources": {"cpu": "1"}}),
        ({"minResources": {}, "priorityClassName": "", "minMember": 0}, {}, {}),
        ({"priorityClassName": "high"}, {}, {"priorityClassName": None}),
    ],
)
def test_only_changed_fields_of_a_group_are_patched(current: JsonObject, desired: JsonObject, patch: JsonObject) -> None:
    assert pod_group_patch(current, desired) == patch


# --- the pods ------------------------------------------------------------------------------------------------------------


POD: JsonObject = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {}}


@pytest.mark.parametrize(
    ("gang", "labels", "annotations", "scheduler"),
    [
        pytest.param(BY_VOLCANO, {}, {"scheduling.k8s.io/group-name": "demo", "volcano.sh/task-spec": "worker"}, "volcano", id="volcano"),
        pytest.param(BY_KUBE_BATCH, {}, {"scheduling.k8s.io/group-name": "demo"}, "kube-batch", id="kube-batch"),
        *(
            pytest.param(
                Gang(name, "demo"),
                {
                    "pod-group.scheduling.sigs.k8s.io": "demo",
                    "pod-group.scheduling.sigs.k8s.io/name": "demo",
                    "pod-group.scheduling.sigs.k8s.io/min-available": "3",
                },
                {},
                "default-scheduler",
                id=name,
            )
            for name in ("kube-coscheduler", "coscheduler")
        ),
        pytest.param(BY_PLUGINS, {"scheduling.x-k8s.io/pod-group": "demo"}, {}, "scheduler-plugins-scheduler", id="scheduler-plugins"),
    ],
)
def test_a_pod_has_the_metadata_by_which_the_scheduler_finds_its_group(
    gang: Gang, labels: JsonObject, annotations: JsonObject, scheduler: str
) -> None:
    assert with_pod_group(POD, gang, role="Worker", min_member=3) == {
        "metadata": {"labels": {"a": "b", **labels}, "annotations": {"c": "d", **annotations}},
        "spec": {"schedulerName": scheduler},
    }


@pytest.mark.parametrize("scheduler", ["volcano", "kube-batch", "kube-coscheduler", "scheduler-plugins-scheduler"])
def test_the_group_of_a_pod_is_found_by_its_metadata(scheduler: str) -> None:
    gang = Gang(scheduler, "demo")
    pod = with_pod_group(POD, gang, role="Worker", min_member=3)
    assert pod_group_of(msgspec.convert(pod, Pod)) == gang.ref
    assert pod_group_of(msgspec.convert(POD, Pod)) is None


def test_a_scheduler_name_of_the_user_is_kept_and_reported() -> None:
    mine = role("Worker", 1, schedulerName="mine")
    pod = {"metadata": {}, "spec": mine.template["spec"]}
    assert with_pod_group(pod, BY_VOLCANO, role="Worker", min_member=3)["spec"]["schedulerName"] == "mine"
    roles = (role("Master", 1), role("Chief", 1, schedulerName="volcano"), mine)
    assert list(scheduler_mismatches(BY_VOLCANO, roles)) == [("Worker", "mine")]


def test_a_pod_of_kube_coscheduler_may_name_the_default_scheduler() -> None:
    roles = [role("Master", 1, schedulerName="default-scheduler"), role("Worker", 1, schedulerName="kube-coscheduler")]
    assert list(scheduler_mismatches(BY_COSCHEDULER, roles)) == [("Worker", "kube-coscheduler")]


def test_the_default_scheduler_replaces_another_one() -> None:
    assert with_default_scheduler({"spec": {"schedulerName": "volcano"}}) == {"spec": {"schedulerName": "default-scheduler"}}


@pytest.mark.parametrize(("phase", "waits"), [("", True), ("Pending", True), ("Inqueue", False), ("Running", False), ("Unknown", False)])
def test_only_volcano_delays_pods_until_the_group_is_admitted(phase: str, *, waits: bool) -> None:
    assert BY_VOLCANO.is_admitted(phase) is not waits
    for gang in (BY_PLUGINS, BY_KUBE_BATCH, BY_COSCHEDULER):
        assert gang.is_admitted(phase)
