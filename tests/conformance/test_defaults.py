"""What a server makes of a minimal object, whole: nothing missing, nothing too much."""

from __future__ import annotations

from typing import Any

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
from tests.conformance.support import Api

SERVER_SET = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "managedFields")

TOLERATIONS = [
    {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for taint in ("not-ready", "unreachable")
]
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
    "a pod": (
        PODS,
        {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        {
            "metadata": {"generation": 1},
            "spec": {**POD_SPEC, "containers": [{**CONTAINER, "name": "c", "image": "i"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        },
    ),
    "empty values, which are left out": (
        PODS,
        {
            "metadata": {"labels": {}, "annotations": None},
            "spec": {
                "hostNetwork": False,
                "nodeSelector": {},
                "tolerations": None,
                "containers": [{"name": "c", "image": "i", "args": []}],
            },
        },
        {
            "metadata": {"generation": 1},
            "spec": {**POD_SPEC, "containers": [{**CONTAINER, "name": "c", "image": "i"}]},
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        },
    ),
    "a pod with limits, whose requests are the same": (
        PODS,
        {"spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}}]}},
        {
            "metadata": {"generation": 1},
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
    "a pod in the network of its node": (
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
            "metadata": {"generation": 1},
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
    "the volumes of a pod": (
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
            "metadata": {"generation": 1},
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
    "a headless service": (
        SERVICES,
        {"spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}},
        {
            "spec": {**HEADLESS, "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
            "status": {"loadBalancer": {}},
        },
    ),
    "a headless service without a selector": (
        SERVICES,
        {"spec": {"clusterIP": "None"}},
        {
            "spec": {**HEADLESS, "ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "RequireDualStack"},
            "status": {"loadBalancer": {}},
        },
    ),
    "a service that is only another name": (
        SERVICES,
        {"spec": {"type": "ExternalName", "externalName": "x.example"}},
        {"spec": {"type": "ExternalName", "externalName": "x.example", "sessionAffinity": "None"}, "status": {"loadBalancer": {}}},
    ),
    "a config map": (CONFIG_MAPS, {}, {}),
    "a secret": (SECRETS, {"stringData": {"a": "b"}}, {"data": {"a": "Yg=="}, "type": "Opaque"}),
    "a service account": (SERVICE_ACCOUNTS, {}, {}),
    "a lease": (LEASES, {}, {"spec": {}}),
    "a role without rules": (ROLES, {"rules": []}, {"rules": None}),
    "a role binding": (
        ROLE_BINDINGS,
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"}],
        },
    ),
    "an autoscaler": (
        HORIZONTAL_POD_AUTOSCALERS,
        {"spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}},
        {
            "spec": {"maxReplicas": 3, "minReplicas": 1, "scaleTargetRef": TARGET, "metrics": [CPU_AT_80]},
            "status": {"desiredReplicas": 0, "currentMetrics": None},
        },
    ),
    "an endpoint slice": (
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


def cleaned(found: JsonObject) -> JsonObject:
    metadata = {name: value for name, value in found["metadata"].items() if name not in SERVER_SET}
    rest = {name: value for name, value in found.items() if name not in ("kind", "apiVersion", "metadata")}
    return rest | ({"metadata": metadata} if metadata else {})


def sent(resource: Resource, name: str, body: JsonObject) -> JsonObject:
    metadata: dict[str, Any] = {"name": name, **body.get("metadata", {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body, "metadata": metadata}


@pytest.mark.parametrize("case", CASES)
async def test_a_minimal_object_gets_exactly_its_defaults(api: Api, case: str) -> None:
    resource, body, expected = CASES[case]
    created = await api.create(resource, sent(resource, "a", body))
    assert cleaned(created) == expected
    assert cleaned(await api.get(resource, "a")) == expected


async def test_a_namespace_gets_exactly_its_defaults(api: Api) -> None:
    name = f"{api.namespace}-more"
    created = await api.create(NAMESPACES, sent(NAMESPACES, name, {}))
    assert cleaned(created) == {
        "metadata": {"labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


async def test_a_new_node_takes_no_pods_and_says_nothing_of_itself(api: Api) -> None:
    created = await api.create(NODES, sent(NODES, f"node-{api.namespace}", {}))
    assert cleaned(created) == {
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]},
        "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}, "nodeInfo": dict.fromkeys(NODE_INFO.split(), "")},
    }


async def test_an_event_of_the_core_api_has_all_its_times(api: Api) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": api.namespace}
    created = await api.create(CORE_EVENTS, sent(CORE_EVENTS, "a", {"involvedObject": about, "reason": "r"}))
    assert cleaned(created) == {
        "involvedObject": about,
        "reason": "r",
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    assert cleaned(await api.get(EVENTS, "a")) == {
        "regarding": about,
        "reason": "r",
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
        "eventTime": None,
    }
