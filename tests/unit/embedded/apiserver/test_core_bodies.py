"""Built-in objects as the server reads them: known fields, Go's idea of empty, and quantities in their shortest form."""

from __future__ import annotations

import base64

import pytest

from dlop.embedded.apiserver.core.go_decoder import read
from dlop.embedded.apiserver.core.go_scalars import WrongTypeError
from dlop.embedded.apiserver.core.go_types import merge_schema, openapi
from dlop.embedded.apiserver.core.pod_defaults import quality_of_service
from dlop.embedded.apiserver.resource_type import MergeList
from dlop.kube.quantity import billionths, canonical_quantity
from dlop.kube.types import JsonObject


@pytest.mark.parametrize(
    ("given", "kept"),
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
def test_a_quantity_is_kept_in_its_shortest_form(given: str, kept: str) -> None:
    assert canonical_quantity(given) == kept
    assert billionths(given) == billionths(kept)


@pytest.mark.parametrize("text", ["", "x", "1x", "1 Gi", "--1", "1KiB"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="quantit"):
        canonical_quantity(text)


def test_unknown_fields_are_named_with_their_place_and_dropped() -> None:
    body = {"metadata": {"name": "a", "foo": 1}, "spec": {"bar": 1, "containers": [{"name": "c", "baz": {}}]}}
    kept, unknown = read("core.v1.Pod", body)
    assert unknown == ["metadata.foo", "spec.bar", "spec.containers[0].baz"]
    assert kept["spec"] == {"containers": [{"name": "c", "resources": {}}]}


def test_reading_leaves_the_given_body_as_it_was() -> None:
    body = {"metadata": {"name": "a", "labels": {}}, "data": {"k": None}}
    read("core.v1.ConfigMap", body)
    assert body == {"metadata": {"name": "a", "labels": {}}, "data": {"k": None}}


def test_empty_values_are_left_out_unless_they_can_be_told_from_absent_ones() -> None:
    spec = {"hostNetwork": False, "tolerations": [], "nodeSelector": {}, "enableServiceLinks": False, "activeDeadlineSeconds": 0}
    kept, _ = read("core.v1.Pod", {"metadata": {}, "spec": {**spec, "containers": [{"name": "c"}]}})
    assert kept["spec"] == {"enableServiceLinks": False, "activeDeadlineSeconds": 0, "containers": [{"name": "c", "resources": {}}]}


def test_what_go_cannot_leave_out_is_written() -> None:
    kept, _ = read("core.v1.Pod", {"metadata": {}, "status": {"containerStatuses": [{"name": "c"}], "conditions": [{"type": "Ready"}]}})
    assert kept["spec"] == {"containers": None}
    expected = {"name": "c", "state": {}, "lastState": {}, "ready": False, "restartCount": 0, "image": "", "imageID": ""}
    assert kept["status"]["containerStatuses"] == [expected]
    assert kept["status"]["conditions"] == [{"type": "Ready", "status": "", "lastProbeTime": None, "lastTransitionTime": None}]


@pytest.mark.parametrize(
    ("shape", "body", "sentence"),
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
def test_a_value_of_another_type_is_refused_in_the_words_of_go(shape: str, body: JsonObject, sentence: str) -> None:
    with pytest.raises(WrongTypeError) as caught:
        read(f"core.v1.{shape}", {"metadata": {}, **body})
    assert str(caught.value) == sentence


def test_bytes_are_kept_in_plain_base64() -> None:
    broken_up = base64.b64encode(b"x" * 90).decode()
    kept, _ = read("core.v1.Secret", {"metadata": {}, "data": {"k": broken_up[:60] + "\n" + broken_up[60:]}})
    assert kept["data"] == {"k": broken_up}


def test_the_lists_of_a_pod_merge_by_the_keys_of_the_real_api() -> None:
    spec = merge_schema("core.v1.Pod")["spec"]
    assert isinstance(spec, dict)
    keys = {name: each.key for name, each in spec.items() if isinstance(each, MergeList)}
    expected = {"containers": "name", "initContainers": "name", "volumes": "name", "imagePullSecrets": "name", "hostAliases": "ip"}
    assert keys.items() >= expected.items()
    assert "tolerations" not in spec
    containers = spec["containers"]
    assert isinstance(containers, MergeList)
    assert {name: each.key for name, each in containers.items.items() if isinstance(each, MergeList)} == {
        "ports": "containerPort",
        "env": "name",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
    }


def test_metadata_merges_owners_by_uid_and_finalizers_as_a_set() -> None:
    for shape in ("core.v1.Pod", "core.v1.ConfigMap", "rbac.v1.Role"):
        assert merge_schema(shape)["metadata"] == {"ownerReferences": MergeList(key="uid"), "finalizers": MergeList()}


def test_lists_that_the_real_api_replaces_are_not_in_the_merge_schema() -> None:
    status = merge_schema("core.v1.Pod")["status"]
    assert isinstance(status, dict)
    assert "containerStatuses" not in status
    assert merge_schema("core.v1.Node")["spec"] == {"podCIDRs": MergeList()}


def test_the_schema_that_kubectl_sees_knows_types_and_merge_keys() -> None:
    ports = openapi("core.v1.Service")["properties"]["spec"]["properties"]["ports"]
    assert ports["x-kubernetes-patch-merge-key"] == "port"
    assert ports["items"]["properties"]["targetPort"]["format"] == "int-or-string"


@pytest.mark.parametrize(
    ("resources", "quality"),
    [
        ([{}], "BestEffort"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}], "Burstable"),
        ([{"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}}], "BestEffort"),
    ],
)
def test_the_quality_of_service_follows_from_cpu_and_memory(resources: list[JsonObject], quality: str) -> None:
    assert quality_of_service({"containers": [{"name": "c", "resources": each} for each in resources]}) == quality
