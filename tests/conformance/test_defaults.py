"""All defaults that the server sets on minimal objects."""

from __future__ import annotations

import pytest

from dlop.kube.resources import (
    CONFIG_MAPS,
    CORE_EVENTS,
    ENDPOINT_SLICES,
    EVENTS,
    HORIZONTAL_POD_AUTOSCALERS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    Resource,
)
from dlop.kube.types import JsonObject
from tests.conformance.bodies import object_of
from tests.conformance.support import Api, without_server_fields
from tests.kubernetes_versions import POD_GENERATIONS, is_at_least

TOLERATIONS = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for taint in ("not-ready", "unreachable")
]
POD_METADATA: JsonObject = {"metadata": {"generation": 1}} if is_at_least(POD_GENERATIONS) else {}
POD_SPEC: JsonObject = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "tolerations": TOLERATIONS,
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
CONTAINER: JsonObject = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "imagePullPolicy": "Always",
}
SERVICE_SPEC: JsonObject = {
    "type": "ClusterIP",
    "sessionAffinity": "None",
    "ipFamilies": ["IPv4"],
    "ipFamilyPolicy": "SingleStack",
    "internalTrafficPolicy": "Cluster",
}
HEADLESS: JsonObject = {**SERVICE_SPEC, "clusterIP": "None", "clusterIPs": ["None"]}
PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
CPU_AT_80 = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
TARGET = {"apiVersion": "example.org/v1", "kind": "Widget", "name": "w"}
NODE_INFO = (
    "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion kubeProxyVersion operatingSystem architecture"
)

CASES: dict[str, tuple[Resource, JsonObject, JsonObject]] = {
    "pod": (
        PODS,
        {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        {
            **POD_METADATA,
            "spec": {**POD_SPEC, "containers": [{**CONTAINER, "name": "c", "image": "i"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        },
    ),
    "pod with empty values": (
        PODS,
        {
            "metadata": {"name": "a", "labels": {}, "annotations": None},
            "spec": {
                "hostNetwork": False,
                "nodeSelector": {},
                "tolerations": None,
                "containers": [{"name": "c", "image": "i", "args": []}],
            },
        },
        {
            **POD_METADATA,
            "spec": {**POD_SPEC, "containers": [{**CONTAINER, "name": "c", "image": "i"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        },
    ),
    "pod with limits and no requests": (
        PODS,
        {"spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}]}},
        {
            **POD_METADATA,
            "spec": {
                **POD_SPEC,
                "containers": [
                    {
                        **CONTAINER,
                        "name": "c",
                        "image": "i:1",
                        "imagePullPolicy": "IfNotPresent",
                        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
                    }
                ],
            },
            "status": {"phase": "Pending", "qosClass": "Guaranteed"},
        },
    ),
    "pod in the host network": (
        PODS,
        {
            "spec": {
                "hostNetwork": True,
                "containers": [
                    {
                        "name": "c",
                        "image": "i",
                        "ports": [{"containerPort": 80}],
                        "livenessProbe": {"httpGet": {"port": 80}},
                        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                    }
                ],
            }
        },
        {
            **POD_METADATA,
            "spec": {
                **POD_SPEC,
                "hostNetwork": True,
                "containers": [
                    {
                        **CONTAINER,
                        "name": "c",
                        "image": "i",
                        "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
                        "livenessProbe": {**PROBE, "httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}},
                        "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                    }
                ],
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        },
    ),
    "pod with volumes": (
        PODS,
        {
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "volumes": [
                    {"name": "a"},
                    {"name": "b", "configMap": {"name": "x"}},
                    {"name": "c", "secret": {"secretName": "x"}},
                    {"name": "d", "hostPath": {"path": "/x"}},
                    {"name": "e", "emptyDir": {"sizeLimit": "1024Mi"}},
                ],
            }
        },
        {
            **POD_METADATA,
            "spec": {
                **POD_SPEC,
                "containers": [{**CONTAINER, "name": "c", "image": "i"}],
                "volumes": [
                    {"name": "a", "emptyDir": {}},
                    {"name": "b", "configMap": {"name": "x", "defaultMode": 420}},
                    {"name": "c", "secret": {"secretName": "x", "defaultMode": 420}},
                    {"name": "d", "hostPath": {"path": "/x", "type": ""}},
                    {"name": "e", "emptyDir": {"sizeLimit": "1Gi"}},
                ],
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        },
    ),
    "headless service": (
        SERVICES,
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}},
        {
            "spec": {**HEADLESS, "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
            "status": {"loadBalancer": {}},
        },
    ),
    "headless service without a selector": (
        SERVICES,
        {"spec": {"clusterIP": "None"}},
        {
            "spec": {**HEADLESS, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"},
            "status": {"loadBalancer": {}},
        },
    ),
    "external name service": (
        SERVICES,
        {"spec": {"type": "ExternalName", "externalName": "x.example"}},
        {"spec": {"type": "ExternalName", "externalName": "x.example", "sessionAffinity": "None"}, "status": {"loadBalancer": {}}},
    ),
    "config map": (CONFIG_MAPS, {}, {}),
    "secret": (SECRETS, {"stringData": {"a": "b"}}, {"data": {"a": "Yg=="}, "type": "Opaque"}),
    "service account": (SERVICE_ACCOUNTS, {}, {}),
    "lease": (LEASES, {}, {"spec": {}}),
    "role without rules": (ROLES, {"rules": []}, {"rules": None}),
    "role binding": (
        ROLE_BINDINGS,
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"}],
        },
    ),
    "autoscaler": (
        HORIZONTAL_POD_AUTOSCALERS,
        {"spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}},
        {
            "spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": TARGET, "metrics": [CPU_AT_80]},
            "status": {"desiredReplicas": 0, "currentMetrics": None},
        },
    ),
    "endpoint slice": (
        ENDPOINT_SLICES,
        {"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]},
        {
            "metadata": {"generation": 1},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.1.1"], "conditions": {}}],
            "ports": [{"name": "", "protocol": "TCP", "port": 80}],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_a_minimal_object_gets_exactly_the_expected_defaults(api: Api, case: str) -> None:
    resource, body, expected = CASES[case]
    created = await api.create(resource, object_of(resource, "a", **body))
    assert without_server_fields(created) == expected
    assert without_server_fields(await api.get(resource, "a")) == expected


async def test_a_namespace_gets_exactly_the_expected_defaults(api: Api) -> None:
    name = f"{api.namespace}-more"
    created = await api.create(NAMESPACES, object_of(NAMESPACES, name))
    assert without_server_fields(created) == {
        "metadata": {"labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


async def test_a_new_node_is_tainted_and_has_empty_node_info(api: Api) -> None:
    created = await api.create(NODES, object_of(NODES, f"node-{api.namespace}"))
    assert without_server_fields(created) == {
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": dict.fromkeys(NODE_INFO.split(), "")},
    }


async def test_a_minimal_core_event_has_null_timestamps(api: Api) -> None:
    involved_object = {"kind": "Pod", "name": "p", "namespace": api.namespace}
    created = await api.create(CORE_EVENTS, object_of(CORE_EVENTS, "a", involvedObject=involved_object, reason="r"))
    assert without_server_fields(created) == {
        "involvedObject": involved_object,
        "reason": "r",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    assert without_server_fields(await api.get(EVENTS, "a")) == {
        "regarding": involved_object,
        "reason": "r",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
        "eventTime": None,
    }
