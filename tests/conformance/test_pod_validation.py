"""Messages of pod validation errors. Users search for them, so they must be identical."""

from __future__ import annotations

import pytest
from _pytest.mark.structures import ParameterSet

from dlop.kube.errors import BadRequestError, ForbiddenError, InvalidError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from tests.conformance.bodies import object_of, pod_spec
from tests.conformance.support import Api, expect_error
from tests.kubernetes_versions import JSON_VALUES, since

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric "
    "character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
PORT_RANGE = "must be between 1 and 65535, inclusive"
ENV_NAME = "a valid environment variable name must consist only of printable ASCII characters other than '='"
CONTAINER_PATH = "spec.containers[0]"
VALID_CONTAINER = {"name": "c", "image": "i"}
VOLUME = {"name": "v", "emptyDir": {}}


VALIDATION_ERRORS: list[tuple[JsonObject, str] | ParameterSet] = [
    ({}, "spec.containers: Required value"),
    ({"containers": [{}]}, f"[{CONTAINER_PATH}.name: Required value, {CONTAINER_PATH}.image: Required value]"),
    ({"containers": [{**VALID_CONTAINER, "name": "A_b"}]}, f'{CONTAINER_PATH}.name: Invalid value: "A_b": {LABEL}'),
    (
        {"containers": [{**VALID_CONTAINER, "image": " i"}]},
        f'{CONTAINER_PATH}.image: Invalid value: " i": must not have leading or trailing whitespace',
    ),
    (
        {"containers": [VALID_CONTAINER], "volumes": [{"name": "v", "hostPath": {"path": "/a/../b"}}]},
        "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
    ),
    ({"containers": [VALID_CONTAINER, VALID_CONTAINER]}, 'spec.containers[1].name: Duplicate value: "c"'),
    ({"containers": [VALID_CONTAINER], "initContainers": [VALID_CONTAINER]}, 'spec.initContainers[0].name: Duplicate value: "c"'),
    (
        {"containers": [VALID_CONTAINER], "restartPolicy": "Sometimes"},
        'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
    ),
    (
        pod_spec(imagePullPolicy="x"),
        f'{CONTAINER_PATH}.imagePullPolicy: Unsupported value: "x": supported values: "Always", "IfNotPresent", "Never"',
    ),
    (
        {"containers": [VALID_CONTAINER], "activeDeadlineSeconds": 0},
        "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
    ),
    (pod_spec(ports=[{}]), f"{CONTAINER_PATH}.ports[0].containerPort: Required value"),
    (pod_spec(ports=[{"containerPort": 70000}]), f"{CONTAINER_PATH}.ports[0].containerPort: Invalid value: 70000: {PORT_RANGE}"),
    (
        pod_spec(ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        f'{CONTAINER_PATH}.ports[1].name: Duplicate value: "a"',
    ),
    (pod_spec(env=[{"name": ""}]), f"{CONTAINER_PATH}.env[0].name: Required value"),
    pytest.param(
        pod_spec(env=[{"name": "a=b"}]),
        f'{CONTAINER_PATH}.env[0].name: Invalid value: "a=b": {ENV_NAME}',
        marks=since("1.32", reason="names of environment variables can contain more characters"),
    ),
    (
        pod_spec(env=[{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]),
        f'{CONTAINER_PATH}.env[0].valueFrom: Invalid value: "": may not be specified when `value` is not empty',
    ),
    (
        pod_spec(env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.foo"}}}]),
        (
            f'{CONTAINER_PATH}.env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.foo": '
            "error converting fieldPath: field label not supported: metadata.foo"
        ),
    ),
    (
        pod_spec(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        f'{CONTAINER_PATH}.resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        pod_spec(resources={"requests": {"example.com/gpu": "2"}}),
        f"{CONTAINER_PATH}.resources.limits: Required value: Limit must be set for non overcommitable resources",
    ),
    (
        pod_spec(resources={"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "2"}}),
        f'{CONTAINER_PATH}.resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2',
    ),
    pytest.param(
        pod_spec(resources={"limits": {"example.com/gpu": "1.5"}}),
        (
            f'[{CONTAINER_PATH}.resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer, '
            f'{CONTAINER_PATH}.resources.requests[example.com/gpu]: Invalid value: "1500m": must be an integer]'
        ),
        marks=JSON_VALUES,
    ),
    (pod_spec(volumeMounts=[{"name": "v", "mountPath": "/x"}]), f'{CONTAINER_PATH}.volumeMounts[0].name: Not found: "v"'),
    (
        {"volumes": [VOLUME], **pod_spec(volumeMounts=[{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}])},
        f'{CONTAINER_PATH}.volumeMounts[1].mountPath: Invalid value: "/x": must be unique',
    ),
    ({"containers": [VALID_CONTAINER], "volumes": [VOLUME, VOLUME]}, 'spec.volumes[1].name: Duplicate value: "v"'),
    ({"containers": [VALID_CONTAINER], "volumes": [{"name": "v", "configMap": {}}]}, "spec.volumes[0].configMap.name: Required value"),
    (
        {"containers": [VALID_CONTAINER], "volumes": [{**VOLUME, "secret": {"secretName": "a"}}]},
        "spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type",
    ),
    ({"containers": [VALID_CONTAINER], "hostname": "A.b"}, f'spec.hostname: Invalid value: "A.b": {LABEL}'),
    ({"containers": [VALID_CONTAINER], "subdomain": "A_"}, f'spec.subdomain: Invalid value: "A_": {LABEL}'),
    (
        {"containers": [VALID_CONTAINER], "tolerations": [{"key": "a", "effect": "x"}]},
        'spec.tolerations[0].effect: Unsupported value: "x": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
    ),
    (pod_spec(livenessProbe={}), f"{CONTAINER_PATH}.livenessProbe: Required value: must specify a handler type"),
    (
        {"containers": [VALID_CONTAINER], "schedulingGates": [{"name": "a"}], "nodeName": "n"},
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    (
        {"containers": [VALID_CONTAINER], "dnsPolicy": "None"},
        "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    ),
]
TYPE_ERRORS: list[tuple[JsonObject, str]] = [
    (
        pod_spec(ports=[{"containerPort": "x"}]),
        "string into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
    ),
    ({"containers": "x"}, "string into Go struct field PodSpec.spec.containers of type []v1.Container"),
    (pod_spec(env=[{"name": "a", "value": 1}]), "number into Go struct field EnvVar.spec.containers.env.value of type string"),
    ({"containers": [VALID_CONTAINER], "nodeSelector": {"a": 1}}, "number into Go struct field PodSpec.spec.nodeSelector of type string"),
    (
        {"containers": [VALID_CONTAINER], "terminationGracePeriodSeconds": 1.5},
        "number 1.5 into Go struct field PodSpec.spec.terminationGracePeriodSeconds of type int64",
    ),
]
ADMISSION = "priority admission controller computed"
PRIORITY_ERRORS: list[tuple[JsonObject, str]] = [
    ({"containers": [VALID_CONTAINER], "priorityClassName": "nope"}, "no PriorityClass with name nope was found"),
    (
        {"containers": [VALID_CONTAINER], "priority": 5},
        f"the integer value of priority (5) must not be provided in pod spec; {ADMISSION} 0 from the given PriorityClass name",
    ),
]


@pytest.mark.parametrize(("spec", "message"), VALIDATION_ERRORS)
async def test_an_invalid_pod_is_rejected_with_the_message(api: Api, spec: JsonObject, message: str) -> None:
    error = await expect_error(api.create(PODS, object_of(PODS, "q", spec=spec)), InvalidError)
    assert str(error) == f'Pod "q" is invalid: {message}'


@pytest.mark.parametrize(("spec", "message"), TYPE_ERRORS)
async def test_a_pod_with_a_value_of_a_wrong_type_is_rejected_with_the_message(api: Api, spec: JsonObject, message: str) -> None:
    error = await expect_error(api.create(PODS, object_of(PODS, "q", spec=spec)), BadRequestError)
    assert str(error) == f'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal {message}'


@pytest.mark.parametrize(("spec", "message"), PRIORITY_ERRORS)
async def test_a_pod_with_a_disallowed_priority_is_forbidden_with_the_message(api: Api, spec: JsonObject, message: str) -> None:
    error = await expect_error(api.create(PODS, object_of(PODS, "q", spec=spec)), ForbiddenError)
    assert str(error) == f'pods "q" is forbidden: {message}'
