from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dlop.embedded.scheduler.predicates import failed_scheduling_message, fits_empty_node, pod_requests, unschedulable_reasons
from dlop.kube.types import JsonObject


def _container(**requests: str) -> JsonObject:
    return {"name": "c", "resources": {"requests": requests}}


def _reasons(spec: JsonObject, **requested: int) -> list[str]:
    allocatable = {"cpu": Fraction(4), "memory": Fraction(1000), "pods": Fraction(2), "nvidia.com/gpu": Fraction(1)}
    return unschedulable_reasons(
        spec, labels={"disk": "fast", "size": "3"}, allocatable=allocatable, requested={name: Fraction(n) for name, n in requested.items()}
    )


def test_a_pod_requests_the_sum_of_its_containers() -> None:
    requests = pod_requests({"containers": [_container(cpu="500m"), _container(cpu="1", memory="1Ki")]})
    assert requests == {"cpu": Fraction(3, 2), "memory": 1024, "pods": 1}


def test_an_init_container_that_requests_more_counts() -> None:
    assert pod_requests({"containers": [_container(cpu="1")], "initContainers": [_container(cpu="3"), _container(cpu="2")]})["cpu"] == 3


def test_sidecars_are_added_to_the_main_containers() -> None:
    sidecar = {**_container(cpu="1"), "restartPolicy": "Always"}
    assert pod_requests({"containers": [_container(cpu="1")], "initContainers": [sidecar, _container(cpu="3")]})["cpu"] == 4


def test_a_limit_is_the_default_of_the_request() -> None:
    assert pod_requests({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]})["nvidia.com/gpu"] == 1


def test_every_insufficient_resource_is_reported() -> None:
    assert _reasons({"containers": [_container(cpu="5", memory="2000")]}) == ["Insufficient cpu", "Insufficient memory"]


def test_requests_of_other_pods_are_subtracted() -> None:
    spec = {"containers": [_container(cpu="3")]}
    assert _reasons(spec, cpu=1) == []
    assert _reasons(spec, cpu=2) == ["Insufficient cpu"]


def test_the_number_of_pods_is_limited() -> None:
    assert _reasons({"containers": [_container()]}, pods=2) == ["Too many pods"]


def test_a_resource_that_the_node_does_not_have_is_insufficient() -> None:
    assert _reasons({"containers": [_container(**{"amd.com/gpu": "1"})]}) == ["Insufficient amd.com/gpu"]


@pytest.mark.parametrize(
    ("expression", "fits"),
    [
        ({"key": "disk", "operator": "In", "values": ["slow", "fast"]}, True),
        ({"key": "disk", "operator": "NotIn", "values": ["fast"]}, False),
        ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "disk", "operator": "DoesNotExist"}, False),
        ({"key": "size", "operator": "Gt", "values": ["2"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["2"]}, False),
    ],
)
def test_node_affinity_applies(expression: dict[str, Any], fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (_reasons({"containers": [_container()], "affinity": affinity}) == []) is fits


def test_the_message_is_that_of_kube_scheduler() -> None:
    assert failed_scheduling_message(["Insufficient nvidia.com/gpu", "Insufficient cpu"], can_fit=False) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert failed_scheduling_message(["Insufficient cpu"], can_fit=True).endswith("1 No preemption victims found for incoming pod.")


def test_a_pod_may_be_too_big_for_the_empty_node() -> None:
    spec = {"containers": [_container(cpu="3")]}
    assert fits_empty_node(spec, labels={}, allocatable={"cpu": Fraction(3), "pods": Fraction(1)})
    assert not fits_empty_node(spec, labels={}, allocatable={"cpu": Fraction(2), "pods": Fraction(1)})
