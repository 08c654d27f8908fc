"""What nodes offer and what pods request, as watch events show it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.controller.cluster_capacity import ClusterCapacity
from dlop.kube.cache import CacheChange
from dlop.kube.objects import Node, SizedPod, object_decoder
from dlop.kube.types import JsonObject
from dlop.reconcile.autoscaler import Amounts

GIB = 1 << 30
_decode_pod, _decode_node = object_decoder(SizedPod), object_decoder(Node)


def node(name: str = "a", *, ready: str = "True", **spec: Any) -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2", "pods": "110", "ephemeral-storage": "5Gi"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
    return _decode_node(msgspec.json.encode({"metadata": {"name": name, "labels": {"zone": "east"}}, "spec": spec, "status": status}))


def pod(name: str = "p", *, on: str = "a", phase: str = "Running", job: str = "", leaving: bool = False, **spec: Any) -> SizedPod:
    metadata: JsonObject = {"name": name, "namespace": "default", "labels": {"dlop.dev/job-uid": job} if job else {}}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    spec = {"nodeName": on, "containers": [{"name": "main", "resources": resources}], **spec}
    return _decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"phase": phase}}))


class Recorder:
    """A capacity that counts its changes."""

    def __init__(self) -> None:
        self.changes = 0
        self.capacity = ClusterCapacity(on_change=self._count)

    def _count(self) -> None:
        self.changes += 1

    def used(self) -> Amounts:
        (only,) = self.capacity.nodes()
        return only.used


@pytest.fixture
def recorder() -> Recorder:
    recorder = Recorder()
    recorder.capacity.on_node(CacheChange(None, node()))
    return recorder


def test_a_node_offers_its_allocatable_resources(recorder: Recorder) -> None:
    (only,) = recorder.capacity.nodes()
    assert only.allocatable == Amounts(cpu=4000, memory=8 * GIB, gpu=2, pods=110)
    assert (only.used, only.leaving, only.labels) == (Amounts(), Amounts(), {"zone": "east"})


@pytest.mark.parametrize(
    "unusable",
    [
        node(unschedulable=True),
        node(taints=[{"key": "gpu", "effect": "NoSchedule"}]),
        node(taints=[{"key": "gpu", "effect": "NoExecute"}]),
        node(ready="False"),
        None,
    ],
)
def test_a_node_that_accepts_no_pods_offers_nothing_until_it_does(recorder: Recorder, unusable: Node | None) -> None:
    recorder.capacity.on_node(CacheChange(node(), unusable))
    assert list(recorder.capacity.nodes()) == []
    recorder.capacity.on_node(CacheChange(unusable, node(taints=[{"key": "soft", "effect": "PreferNoSchedule"}])))
    assert [each.name for each in recorder.capacity.nodes()] == ["a"]


def test_the_heartbeat_of_a_node_is_no_change(recorder: Recorder) -> None:
    before = recorder.changes
    recorder.capacity.on_node(CacheChange(node(), node()))
    recorder.capacity.on_node(CacheChange(None, node("b", ready="Unknown")))
    assert recorder.changes == before


def test_pods_use_what_they_request_until_they_have_finished(recorder: Recorder) -> None:
    waiting, running, finished = pod(on="", phase="Pending"), pod(), pod(phase="Succeeded")
    recorder.capacity.on_pod(CacheChange(None, waiting))
    assert (recorder.capacity.unscheduled(), recorder.used()) == (Amounts(500, GIB, 0, 1), Amounts())
    recorder.capacity.on_pod(CacheChange(waiting, running))
    assert (recorder.capacity.unscheduled(), recorder.used()) == (Amounts(), Amounts(500, GIB, 0, 1))
    recorder.capacity.on_pod(CacheChange(running, finished))
    recorder.capacity.on_pod(CacheChange(finished, None))
    assert recorder.used() == Amounts()


def test_a_status_of_a_pod_that_changes_no_amount_is_no_change(recorder: Recorder) -> None:
    recorder.capacity.on_pod(CacheChange(None, pod(phase="Pending")))
    before = recorder.changes
    recorder.capacity.on_pod(CacheChange(pod(phase="Pending"), pod()))
    recorder.capacity.on_pod(CacheChange(pod(phase="Succeeded"), None))
    assert recorder.changes == before


def test_requests_are_those_that_the_scheduler_computes(recorder: Recorder) -> None:
    sidecar = {"name": "sidecar", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    init = {"name": "init", "resources": {"requests": {"memory": "4Gi"}}}
    gpus = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "500m"}}}
    recorder.capacity.on_pod(CacheChange(None, pod(initContainers=[sidecar, init], containers=[gpus], overhead={"cpu": "100m"})))
    assert recorder.used() == Amounts(cpu=1600, memory=4 * GIB, gpu=1, pods=1)


def test_pods_that_are_being_deleted_are_known_to_leave(recorder: Recorder) -> None:
    recorder.capacity.on_pod(CacheChange(None, pod()))
    recorder.capacity.on_pod(CacheChange(pod(), pod(leaving=True)))
    (only,) = recorder.capacity.nodes()
    assert only.used == only.leaving == Amounts(500, GIB, 0, 1)
    recorder.capacity.on_pod(CacheChange(pod(leaving=True), None))
    (only,) = recorder.capacity.nodes()
    assert only.used == only.leaving == Amounts()


def test_pods_are_counted_by_job_wherever_they_are(recorder: Recorder) -> None:
    for each in (pod("one", job="uid"), pod("two", job="uid", on=""), pod("three", job="uid", on="gone"), pod("other")):
        recorder.capacity.on_pod(CacheChange(None, each))
    assert recorder.capacity.used_by_job("uid") == Amounts(1500, 3 * GIB, 0, 3)
    assert recorder.capacity.used_by_job("unknown") == Amounts()


def test_a_pod_of_no_job_that_is_too_large_for_every_node_does_not_count(recorder: Recorder) -> None:
    large = [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": "8"}}}]
    sized = {"": Amounts(), "uid": Amounts(gpu=8, pods=1)}
    for job, expected in sized.items():
        waiting = pod("large", job=job, on="", phase="Pending", containers=large)
        recorder.capacity.on_pod(CacheChange(None, waiting))
        assert recorder.capacity.unscheduled() == expected
        recorder.capacity.on_pod(CacheChange(waiting, None))
        assert recorder.capacity.unscheduled() == Amounts()
    fitting = [pod(f"fitting-{number}", on="", phase="Pending") for number in range(2)]
    for each in fitting:
        recorder.capacity.on_pod(CacheChange(None, each))
    assert recorder.capacity.unscheduled() == Amounts(1000, 2 * GIB, 0, 2)
    recorder.capacity.on_node(CacheChange(node(), None))
    assert recorder.capacity.unscheduled() == Amounts()
    recorder.capacity.on_node(CacheChange(None, node()))
    recorder.capacity.on_pod(CacheChange(fitting[0], None))
    assert recorder.capacity.unscheduled() == Amounts(500, GIB, 0, 1)
