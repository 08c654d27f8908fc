from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from dlop.embedded.scheduler.predicates import can_ever_fit, explanation, problems, requests_of
from dlop.kube.types import JsonObject


def _container(**requests: str) -> JsonObject:
    return {"name": "c", "resources": {"requests": requests}}


def _problems(spec: JsonObject, **taken: int) -> list[str]:
    allocatable = {"cpu": Fraction(4), "memory": Fraction(1000), "pods": Fraction(2), "nvidia.com/gpu": Fraction(1)}
    return problems(
        spec, labels={"disk": "fast", "size": "3"}, allocatable=allocatable, taken={name: Fraction(n) for name, n in taken.items()}
    )


def test_a_pod_takes_the_sum_of_its_containers() -> None:
    asked = requests_of({"containers": [_container(cpu="500m"), _container(cpu="1", memory="1Ki")]})
    assert asked == {"cpu": Fraction(3, 2), "memory": 1024, "pods": 1}


def test_an_init_container_that_needs_more_for_a_while_counts() -> None:
    assert requests_of({"containers": [_container(cpu="1")], "initContainers": [_container(cpu="3"), _container(cpu="2")]})["cpu"] == 3


def test_sidecars_count_beside_the_containers() -> None:
    sidecar = {**_container(cpu="1"), "restartPolicy": "Always"}
    assert requests_of({"containers": [_container(cpu="1")], "initContainers": [sidecar, _container(cpu="3")]})["cpu"] == 4


def test_a_limit_is_a_request_if_there_is_none() -> None:
    assert requests_of({"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]})["nvidia.com/gpu"] == 1


def test_everything_that_is_missing_is_named() -> None:
    assert _problems({"containers": [_container(cpu="5", memory="2000")]}) == ["Insufficient cpu", "Insufficient memory"]


def test_what_is_taken_is_not_there() -> None:
    spec = {"containers": [_container(cpu="3")]}
    assert _problems(spec, cpu=1) == []
    assert _problems(spec, cpu=2) == ["Insufficient cpu"]


def test_a_node_takes_so_many_pods() -> None:
    assert _problems({"containers": [_container()]}, pods=2) == ["Too many pods"]


def test_a_resource_that_the_node_does_not_have_is_missing() -> None:
    assert _problems({"containers": [_container(**{"amd.com/gpu": "1"})]}) == ["Insufficient amd.com/gpu"]


@pytest.mark.parametrize(
    ("affinity", "fits"),
    [
        ({"key": "disk", "operator": "In", "values": ["slow", "fast"]}, True),
        ({"key": "disk", "operator": "NotIn", "values": ["fast"]}, False),
        ({"key": "disk", "operator": "Exists"}, True),
        ({"key": "disk", "operator": "DoesNotExist"}, False),
        ({"key": "size", "operator": "Gt", "values": ["2"]}, True),
        ({"key": "size", "operator": "Lt", "values": ["2"]}, False),
    ],
)
def test_a_pod_may_want_a_certain_node(affinity: dict[str, Any], fits: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [affinity]}]}
    wish = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert (_problems({"containers": [_container()], "affinity": wish}) == []) is fits


def test_the_explanation_is_the_schedulers() -> None:
    assert explanation(["Insufficient nvidia.com/gpu", "Insufficient cpu"], is_hopeless=True) == (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient nvidia.com/gpu. no new claims to deallocate, "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    assert explanation(["Insufficient cpu"], is_hopeless=False).endswith("1 No preemption victims found for incoming pod.")


def test_what_is_too_big_for_the_empty_node_never_fits() -> None:
    spec = {"containers": [_container(cpu="3")]}
    assert can_ever_fit(spec, labels={}, allocatable={"cpu": Fraction(3), "pods": Fraction(1)})
    assert not can_ever_fit(spec, labels={}, allocatable={"cpu": Fraction(2), "pods": Fraction(1)})
