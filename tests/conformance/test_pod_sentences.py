"""What a server says to pods that are wrong, word for word: users search the web for these sentences."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.kube.errors import BadRequestError, ForbiddenError, InvalidError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.conformance.support import Api, refused

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric "
    "character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
PORTS = "must be between 1 and 65535, inclusive"
ENVIRONMENT = "a valid environment variable name must consist only of printable ASCII characters other than '='"
CONTAINER = "spec.containers[0]"
FINE = {"name": "c", "image": "i"}
VOLUME = {"name": "v", "emptyDir": {}}


def container(**fields: Any) -> JsonObject:
    return {"containers": [{**FINE, **fields}]}


def mounted(*mounts: JsonObject) -> JsonObject:
    return {"volumes": [VOLUME], **container(volumeMounts=list(mounts))}


CASES: list[tuple[JsonObject, str]] = [
    ({}, "spec.containers: Required value"),
    ({"containers": [{}]}, f"[{CONTAINER}.name: Required value, {CONTAINER}.image: Required value]"),
    ({"containers": [{**FINE, "name": "A_b"}]}, f'{CONTAINER}.name: Invalid value: "A_b": {LABEL}'),
    ({"containers": [{**FINE, "image": " i"}]}, f'{CONTAINER}.image: Invalid value: " i": must not have leading or trailing whitespace'),
    (
        {"containers": [FINE], "volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]},
        "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
    ),
    ({"containers": [FINE, FINE]}, 'spec.containers[1].name: Duplicate value: "c"'),
    ({"containers": [FINE], "initContainers": [FINE]}, 'spec.initContainers[0].name: Duplicate value: "c"'),
    (
        {"containers": [FINE], "restartPolicy": "Sometimes"},
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ),
    (
        container(imagePullPolicy="x"),
        f'{CONTAINER}.imagePullPolicy: Unsupported value: "x": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (
        {"containers": [FINE], "activeDeadlineSeconds": 0},
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    (container(ports=[{}]), f"{CONTAINER}.ports[0].containerPort: Required value"),
    (container(ports=[{"containerPort": 70000}]), f"{CONTAINER}.ports[0].containerPort: Invalid value: 70000: {PORTS}"),
    (
        container(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        f'{CONTAINER}.ports[1].name: Duplicate value: "a"',
    ),
    (container(env=[{"name": ""}]), f"{CONTAINER}.env[0].name: Required value"),
    (container(env=[{"name": "a=b"}]), f'{CONTAINER}.env[0].name: Invalid value: "a=b": {ENVIRONMENT}'),
    (
        container(env=[{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        f'{CONTAINER}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        container(env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.foo"}}}]),
        (
            f'{CONTAINER}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.foo": '
            "error converting fieldPath: field label not supported: metadata.foo"
        ),
    ),
    (
        container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        f'{CONTAINER}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        container(resources={"requests": {"example.com/gpu": "2"}}),
        f"{CONTAINER}.resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    (
        container(resources={"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
        f'{CONTAINER}.resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2',
    ),
    (
        container(resources={"limits": {"example.com/gpu": "1.5"}}),
        (
            f'[{CONTAINER}.resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer, '
            f'{CONTAINER}.resources.requests[example.com/gpu]: Invalid value: "1500m": must be an integer]'
        ),
    ),
    (container(volumeMounts=[{"name": "v", "mountPath": "/x"}]), f'{CONTAINER}.volumeMounts[0].name: Not found: "v"'),
    (
        mounted({"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}),
        f'{CONTAINER}.volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
    ),
    ({"containers": [FINE], "volumes": [VOLUME, VOLUME]}, 'spec.volumes[1].name: Duplicate value: "v"'),
    ({"containers": [FINE], "volumes": [{"name": "v", "configMap": {}}]}, "spec.volumes[0].configMap.name: Required value"),
    (
        {"containers": [FINE], "volumes": [{**VOLUME, "secret": {"secretName": "a"}}]},
        "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
    ),
    ({"containers": [FINE], "hostname": "A.b"}, f'spec.hostname: Invalid value: "A.b": {LABEL}'),
    ({"containers": [FINE], "subdomain": "A_"}, f'spec.subdomain: Invalid value: "A_": {LABEL}'),
    (
        {"containers": [FINE], "tolerations": [{"key": "a", "effect": "x"}]},
        'spec.tolerations[0].effect: Unsupported value: "x": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
    ),
    (container(livenessProbe={}), f"{CONTAINER}.livenessProbe: Required value: must specify a handler type"),
    (
        {"containers": [FINE], "schedulingGates": [{"name": "a"}], "nodeName": "n"},
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    ({"containers": [FINE], "dnsPolicy": "None"}, "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"),
]
UNREADABLE: list[tuple[JsonObject, str]] = [
    (
        container(ports=[{"containerPort": "x"}]),
        "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
    ),
    ({"containers": "x"}, "string into Go struct field PodSpec.spec.containers of type []v1.Container"),
    (container(env=[{"name": "a", "value": 1}]), "number into Go struct field EnvVar.spec.containers.env.value of type string"),
    ({"containers": [FINE], "nodeSelector": {"a": 1}}, "number into Go struct field PodSpec.spec.nodeSelector of type string"),
    (
        {"containers": [FINE], "terminationGracePeriodSeconds": 1.5},
        "number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
    ),
]
ADMISSION = "priority admission controller computed"
FORBIDDEN: list[tuple[JsonObject, str]] = [
    ({"containers": [FINE], "priorityClassName": "nope"}, "no PriorityClass with name nope was found"),
    (
        {"containers": [FINE], "priority": 5},
        f"the integer value of priority (5) must not be provided in pod spec; {ADMISSION} 0 from the given PriorityClass name",
    ),
]


def pod(spec: JsonObject) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "q"}, "spec": spec}


@pytest.mark.parametrize(("spec", "sentence"), CASES)
async def test_an_invalid_pod_is_told_why(api: Api, spec: JsonObject, sentence: str) -> None:
    error = await refused(api.create(PODS, pod(spec)), InvalidError)
    assert str(error) == f'Pod "q" is invalid: {sentence}'


@pytest.mark.parametrize(("spec", "sentence"), UNREADABLE)
async def test_a_pod_with_values_of_another_type_is_told_which(api: Api, spec: JsonObject, sentence: str) -> None:
    error = await refused(api.create(PODS, pod(spec)), BadRequestError)
    assert str(error) == f'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal {sentence}'


@pytest.mark.parametrize(("spec", "sentence"), FORBIDDEN)
async def test_a_pod_gets_its_priority_from_its_class_alone(api: Api, spec: JsonObject, sentence: str) -> None:
    error = await refused(api.create(PODS, pod(spec)), ForbiddenError)
    assert str(error) == f'pods "q" is forbidden: {sentence}'
