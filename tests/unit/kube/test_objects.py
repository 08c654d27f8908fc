"""What is kept of an object, and what becomes of one that is not as expected."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dlop.kube.objects import CustomObject, ObjectMeta, PartialObject, Pod, Service, reader

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "job-worker-0",
        "namespace": "team",
        "uid": "u-1",
        "resourceVersion": "42",
        "labels": {"job": "job"},
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "o-0"},
            {"apiVersion": "x/v1", "kind": "Job", "name": "job", "uid": "o-1", "controller": True, "blockOwnerDeletion": True},
        ],
        "managedFields": [{"manager": "someone", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {"nodeName": "node-1", "restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
    "status": {
        "phase": "Failed",
        "podIP": "10.0.0.1",
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 2,
                "state": {"terminated": {"exitCode": 137, "signal": 9, "reason": "OOMKilled", "finishedAt": "2026-01-02T03:05:00Z"}},
            }
        ],
    },
}


def read_pod(body: Any) -> Pod:
    return reader(Pod)(msgspec.json.encode(body))


def test_a_pod_keeps_what_its_job_reads() -> None:
    pod = read_pod(POD)
    assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.resource_version) == ("job-worker-0", "team", "42")
    assert pod.metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert (pod.spec.node_name, pod.spec.restart_policy, pod.spec.containers[0].name) == ("node-1", "Never", "main")
    assert (pod.status.phase, pod.status.pod_ip) == ("Failed", "10.0.0.1")
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.signal, ended.reason) == (137, 9, "OOMKilled")


def test_the_controller_is_the_owner_that_says_so() -> None:
    owner = read_pod(POD).metadata.controller
    assert owner is not None
    assert owner.uid == "o-1"
    assert ObjectMeta().controller is None


def test_what_nobody_reads_is_not_kept() -> None:
    kept = msgspec.json.encode(read_pod(POD))
    assert b"managedFields" not in kept
    assert b"busybox" not in kept


def test_a_cached_object_is_invisible_to_the_garbage_collector() -> None:
    pod = read_pod(POD)
    parts = [pod, pod.metadata, pod.status, pod.status.container_statuses[0], pod.metadata.labels]
    assert not any(gc.is_tracked(part) for part in parts)


def test_objects_are_read_only() -> None:
    with pytest.raises(AttributeError):
        read_pod(POD).metadata.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("field", ["labels", "ownerReferences", "creationTimestamp", "finalizers", "annotations"])
def test_null_is_read_as_absent(field: str) -> None:
    pod = read_pod({**POD, "metadata": {**POD["metadata"], field: None}})  # type: ignore[dict-item]
    assert pod.metadata.name == "job-worker-0"
    assert pod.status.phase == "Failed", "the rest of the object is there"


@pytest.mark.parametrize("status", [{"phase": 5}, "broken", {"startTime": "yesterday"}, {"containerStatuses": {"a": 1}}])
def test_of_an_object_that_is_partly_nonsense_the_metadata_is_kept(status: Any) -> None:
    pod = read_pod({**POD, "status": status})
    assert pod.metadata == read_pod(POD).metadata
    assert pod.status.phase == ""


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"metadata":7}', b'{"metadata":{"name":7}}', b'{"metadata":', b"\xff"])
def test_what_is_no_object_at_all_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        reader(Pod)(data)


def test_a_custom_object_gives_back_its_body_without_managed_fields() -> None:
    body = {
        "apiVersion": "example.org/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "uid": "u", "annotations": {"a": "b"}, "generation": 3},
        "spec": {"replicas": 2, "nested": [None, {"x": "ü"}]},
        "status": {"ready": True},
    }
    managed = {**body, "metadata": {**body["metadata"], "managedFields": [{}]}}  # type: ignore[dict-item]
    widget = reader(CustomObject)(msgspec.json.encode(managed))
    assert widget.body() == body
    assert widget.metadata.generation == 3


def test_a_custom_object_does_not_hold_on_to_the_page_it_came_in() -> None:
    page = msgspec.json.encode([{"metadata": {"name": "w"}, "spec": {"a": 1}}, {"padding": "x" * 100_000}])
    item = msgspec.json.decode(page, type=list[msgspec.Raw])[0]
    widget = reader(CustomObject)(item)
    assert len(memoryview(widget.spec).obj) < 100  # type: ignore[arg-type]


def test_a_custom_object_without_spec_and_status_has_empty_ones() -> None:
    widget = reader(CustomObject)(b'{"metadata":{"name":"w"}}')
    assert (bytes(widget.spec), bytes(widget.status)) == (b"{}", b"{}")
    assert reader(CustomObject)(b'{"metadata":{"name":"w"},"spec":null}').metadata.name == "w"


def test_a_service_and_a_partial_object_are_read() -> None:
    service = reader(Service)(
        b'{"metadata":{"name":"s"},"spec":{"clusterIP":"None","ports":[{"name":"web","port":80,"targetPort":"http"}],"selector":{"a":"b"}}}'
    )
    assert [(port.name, port.port) for port in service.spec.ports] == [("web", 80)]
    assert reader(PartialObject)(b'{"metadata":{"name":"s"}}').metadata.name == "s"
