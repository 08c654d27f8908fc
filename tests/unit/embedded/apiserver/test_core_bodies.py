"""Decoding of built-in objects: unknown fields, empty values, quantities and merge schemas."""

from __future__ import annotations

import base64

import pytest

from dlop.embedded.apiserver.core.go_decoder import decode
from dlop.embedded.apiserver.core.go_scalars import GoTypeError
from dlop.embedded.apiserver.core.go_types import merge_schema, openapi_schema
from dlop.embedded.apiserver.core.pod_defaults import qos_class
from dlop.embedded.apiserver.resource_type import MergeList
from dlop.kube.quantity import canonical_quantity, nano_value
from dlop.kube.types import JsonObject


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024Mi", "1Gi"),
        ("1000m", "1"),
        ("1.5Gi", "1536Mi"),
        ("1.5", "1500m"),
        ("0.5Ki", "512"),
        ("1025Ki", "1025Ki"),
        ("1e3", "1e3"),
        ("12000k", "12M"),
        ("5000000000", "5G"),
        ("0.0000000001", "1n"),
        ("-500m", "-500m"),
        ("0", "0"),
    ],
)
def test_a_quantity_is_stored_in_canonical_form(text: str, canonical: str) -> None:
    assert canonical_quantity(text) == canonical
    assert nano_value(text) == nano_value(canonical)


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "--1", "1KiB"])
def test_text_that_is_not_a_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        canonical_quantity(text)


def test_unknown_fields_are_dropped_and_reported_with_their_path() -> None:
    body = {"metadata": {"name": "a", "foo": 1}, "spec": {"bar": 1, "containers": [{"name": "c", "baz": {}}]}}
    decoded, unknown = decode("core.v1.Pod", body)
    assert unknown == ["metadata.foo", "spec.bar", "spec.containers[0].baz"]
    assert decoded["spec"] == {"containers": [{"name": "c", "resources": {}}]}


def test_decoding_does_not_modify_the_body() -> None:
    body = {"metadata": {"name": "a", "labels": {}}, "data": {"k": None}}
    decode("core.v1.ConfigMap", body)
    assert body == {"metadata": {"name": "a", "labels": {}}, "data": {"k": None}}


def test_empty_values_are_omitted_unless_the_field_is_a_pointer() -> None:
    spec = {"hostNetwork": False, "tolerations": [], "nodeSelector": {}, "enableServiceLinks": False, "activeDeadlineSeconds": 0}
    decoded, _ = decode("core.v1.Pod", {"metadata": {}, "spec": {**spec, "containers": [{"name": "c"}]}})
    assert decoded["spec"] == {"enableServiceLinks": False, "activeDeadlineSeconds": 0, "containers": [{"name": "c", "resources": {}}]}


def test_zero_values_that_go_does_not_omit_are_added() -> None:
    decoded, _ = decode(
        "core.v1.Pod", {"metadata": {}, "status": {"containerStatuses": [{"name": "c"}], "conditions": [{"type": "Ready"}]}}
    )
    assert decoded["spec"] == {"containers": None}
    expected = {"name": "c", "state": {}, "lastState": {}, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    assert decoded["status"]["containerStatuses"] == [expected]
    assert decoded["status"]["conditions"] == [{"type": "Ready", "status": "", "lastProbeTime": None, "lastTransitionTime": None}]


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        ("ConfigMap", {"data": {"a": 1}}, "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"),
        ("ConfigMap", {"data": []}, "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"),
        ("ConfigMap", {"binaryData": {"a": "*"}}, "illegal base64 data at input byte 0"),
        ("ConfigMap", {"immutable": "no"}, "json: cannot unmarshal string into Go struct field ConfigMap.immutable of type bool"),
        (
            "Pod",
            {"spec": {"activeDeadlineSeconds": 2**63}},
            f"json: cannot unmarshal number {2**63} into Go struct field PodSpec.spec.activeDeadlineSeconds of type int64",
        ),
        ("Pod", {"status": {"phase": 1}}, "json: cannot unmarshal number into Go struct field PodStatus.status.phase of type v1.PodPhase"),
    ],
)
def test_a_value_of_the_wrong_type_is_rejected_with_the_message_of_go(kind: str, body: JsonObject, message: str) -> None:
    with pytest.raises(GoTypeError) as caught:
        decode(f"core.v1.{kind}", {"metadata": {}, **body})
    assert str(caught.value) == message


def test_bytes_are_stored_as_base64_without_line_breaks() -> None:
    encoded = base64.b64encode(b"x" * 90).decode()
    decoded, _ = decode("core.v1.Secret", {"metadata": {}, "data": {"k": encoded[:60] + "\n" + encoded[60:]}})
    assert decoded["data"] == {"k": encoded}


def test_the_lists_of_a_pod_have_the_merge_keys_of_kubernetes() -> None:
    spec = merge_schema("core.v1.Pod")["spec"]
    assert isinstance(spec, dict)
    keys = {name: field.key for name, field in spec.items() if isinstance(field, MergeList)}
    expected = {"containers": "name", "initContainers": "name", "volumes": "name", "imagePullSecrets": "name", "hostAliases": "ip"}
    assert keys.items() >= expected.items()
    assert "tolerations" not in spec
    containers = spec["containers"]
    assert isinstance(containers, MergeList)
    assert {name: field.key for name, field in containers.items.items() if isinstance(field, MergeList)} == {
        "ports": "containerPort",
        "env": "name",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
    }


def test_metadata_merges_owners_by_uid_and_finalizers_as_a_set() -> None:
    for go_type in ("core.v1.Pod", "core.v1.ConfigMap", "rbac.v1.Role"):
        assert merge_schema(go_type)["metadata"] == {"ownerReferences": MergeList(key="uid"), "finalizers": MergeList()}


def test_lists_that_are_replaced_are_not_in_the_merge_schema() -> None:
    status = merge_schema("core.v1.Pod")["status"]
    assert isinstance(status, dict)
    assert "containerStatuses" not in status
    assert merge_schema("core.v1.Node")["spec"] == {"podCIDRs": MergeList()}


def test_the_openapi_schema_has_types_and_merge_keys() -> None:
    ports = openapi_schema("core.v1.Service")["properties"]["spec"]["properties"]["ports"]
    assert ports["x-kubernetes-patch-merge-key"] == "port"
    assert ports["items"]["properties"]["targetPort"]["format"] == "int-or-string"


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}], "BestEffort"),
    ],
)
def test_the_qos_class_depends_on_cpu_and_memory(resources: list[JsonObject], expected: str) -> None:
    assert qos_class({"containers": [{"name": "c", "resources": item} for item in resources]}) == expected
