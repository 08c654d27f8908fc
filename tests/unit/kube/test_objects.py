"""Slim objects: which fields are decoded, and how invalid objects are handled."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from dlop.kube.objects import CustomObject, ObjectMeta, PartialObject, Pod, Service, object_decoder

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
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
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


def decode_pod(body: Any) -> Pod:
    return object_decoder(Pod)(msgspec.json.encode(body))


def test_the_fields_of_a_pod_that_a_job_needs_are_decoded() -> None:
    pod = decode_pod(POD)
    assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.resource_version) == ("job-worker-0", "team", "42")
    assert pod.metadata.creation_timestamp == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert (pod.spec.node_name, pod.spec.restart_policy, pod.spec.containers[0].name) == ("node-1", "Never", "main")
    assert (pod.status.phase, pod.status.pod_ip) == ("Failed", "10.0.0.1")
    terminated = pod.status.container_statuses[0].state.terminated
    assert terminated is not None
    assert (terminated.exit_code, terminated.signal, terminated.reason) == (137, 9, "OOMKilled")


def test_the_controller_is_the_owner_with_the_controller_flag() -> None:
    owner = decode_pod(POD).metadata.controller
    assert owner is not None
    assert owner.uid == "o-1"
    assert ObjectMeta().controller is None


def test_only_selected_annotations_are_kept() -> None:
    annotated = msgspec.json.encode({"metadata": {"name": "job-worker-0", "annotations": {"one": "1", "two": "2"}}})
    assert object_decoder(Pod)(annotated).metadata.annotations == {"one": "1", "two": "2"}
    assert object_decoder(Pod, keep_annotation=lambda name: name == "two")(annotated).metadata.annotations == {"two": "2"}


def test_other_fields_are_skipped() -> None:
    encoded = msgspec.json.encode(decode_pod(POD))
    assert b"managedFields" not in encoded
    assert b"busybox" not in encoded


def test_objects_are_not_tracked_by_the_garbage_collector() -> None:
    pod = decode_pod(POD)
    parts = [pod, pod.metadata, pod.status, pod.status.container_statuses[0], pod.metadata.labels]
    assert not any(gc.is_tracked(part) for part in parts)


def test_objects_are_read_only() -> None:
    with pytest.raises(AttributeError):
        decode_pod(POD).metadata.name = "other"  # type: ignore[misc]


@pytest.mark.parametrize("field", ["labels", "ownerReferences", "creationTimestamp", "finalizers", "annotations"])
def test_null_is_read_as_absent(field: str) -> None:
    pod = decode_pod({**POD, "metadata": {**POD["metadata"], field: None}})  # type: ignore[dict-item]
    assert pod.metadata.name == "job-worker-0"
    assert pod.status.phase == "Failed", "the rest of the object is decoded"


@pytest.mark.parametrize("status", [{"phase": 5}, "broken", {"startTime": "yesterday"}, {"containerStatuses": {"a": 1}}])
def test_the_metadata_of_a_partly_invalid_object_is_decoded(status: Any) -> None:
    pod = decode_pod({**POD, "status": status})
    assert pod.metadata == decode_pod(POD).metadata
    assert pod.status.phase == ""


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b'{"metadata":7}', b'{"metadata":{"name":7}}', b'{"metadata":', b"\xff"])
def test_data_that_is_not_an_object_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        object_decoder(Pod)(data)


def test_the_body_of_a_custom_object_has_no_managed_fields() -> None:
    body = {
        "apiVersion": "example.org/v1",
        "kind": "Widget",
        "metadata": {"name": "w", "uid": "u", "annotations": {"a": "b"}, "generation": 3},
        "spec": {"replicas": 2, "nested": [None, {"x": "ü"}]},
        "status": {"ready": True},
    }
    managed = {**body, "metadata": {**body["metadata"], "managedFields": [{}]}}  # type: ignore[dict-item]
    widget = object_decoder(CustomObject)(msgspec.json.encode(managed))
    assert widget.body() == body
    assert widget.metadata.generation == 3


def test_a_custom_object_does_not_keep_its_list_page_alive() -> None:
    page = msgspec.json.encode([{"metadata": {"name": "w"}, "spec": {"a": 1}}, {"padding": "x" * 100_000}])
    item = msgspec.json.decode(page, type=list[msgspec.Raw])[0]
    widget = object_decoder(CustomObject)(item)
    assert len(memoryview(widget.spec).obj) < 100  # type: ignore[arg-type]


def test_a_custom_object_without_spec_and_status_has_empty_ones() -> None:
    widget = object_decoder(CustomObject)(b'{"metadata":{"name":"w"}}')
    assert (bytes(widget.spec), bytes(widget.status)) == (b"{}", b"{}")
    assert object_decoder(CustomObject)(b'{"metadata":{"name":"w"},"spec":null}').metadata.name == "w"


def test_a_service_and_a_partial_object_are_decoded() -> None:
    service = object_decoder(Service)(
        b'{"metadata":{"name":"s"},"spec":{"clusterIP":"None","ports":[{"name":"web","port":80,"targetPort":"http"}],"selector":{"a":"b"}}}'
    )
    assert [(port.name, port.port) for port in service.spec.ports] == [("web", 80)]
    assert object_decoder(PartialObject)(b'{"metadata":{"name":"s"}}').metadata.name == "s"
