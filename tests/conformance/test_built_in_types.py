"""Validation and defaults of the built-in resources that controllers use."""

from __future__ import annotations

import base64

from dlop.kube.errors import InvalidError
from dlop.kube.resources import (
    CLUSTER_ROLES,
    CONFIG_MAPS,
    ENDPOINT_SLICES,
    HORIZONTAL_POD_AUTOSCALERS,
    NODES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from tests.conformance.bodies import config_map, service
from tests.conformance.support import Api, expect_error

RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


async def test_a_headless_service_gets_the_defaults_of_a_service(api: Api) -> None:
    spec = (await api.create(SERVICES, service("a")))["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"], spec["type"]) == ("None", ["None"], "ClusterIP")
    assert spec["ports"] == [{"name": "main", "port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("None", "Cluster")


async def test_a_service_without_a_cluster_ip_gets_one_that_cannot_change(api: Api) -> None:
    body = service("a")
    del body["spec"]["clusterIP"]
    created = await api.create(SERVICES, body)
    cluster_ip = created["spec"]["clusterIP"]
    assert created["spec"]["clusterIPs"] == [cluster_ip]
    assert len(cluster_ip.split(".")) == 4
    error = await expect_error(api.patch(SERVICES, "a", {"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}), InvalidError)
    assert any("may not change once set" in cause["message"] for cause in error.causes)


async def test_a_service_port_must_be_in_range(api: Api) -> None:
    body = service("a")
    body["spec"]["ports"] = [{"port": 0}]
    error = await expect_error(api.create(SERVICES, body), InvalidError)
    message = "Invalid value: 0: must be between 1 and 65535, inclusive"
    assert {"reason": "FieldValueInvalid", "message": message, "field": "spec.ports[0].port"} in error.causes


async def test_string_data_of_a_secret_is_stored_as_data(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "text"}}
    created = await api.create(SECRETS, body)
    assert created["data"] == {"k": base64.b64encode(b"text").decode()}
    assert created["type"] == "Opaque"
    assert "stringData" not in created


async def test_an_immutable_config_map_cannot_be_changed(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}) | {"immutable": True})
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {"data": {"k": "w"}}), InvalidError)
    message = "Forbidden: field is immutable when `immutable` is set"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "data"}]


async def test_a_config_map_key_must_be_a_valid_file_name(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a", {"bad/key": "v"})), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["data[bad/key]"]


async def test_a_node_has_a_status_subresource(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{api.namespace}"}}
    await api.create(NODES, body)
    status = {"conditions": [{"type": "Ready", "status": "True", "reason": "Fine", "message": ""}]}
    patched = await api.patch(NODES, f"node-{api.namespace}", {"status": status}, subresource="status")
    assert [(condition["type"], condition["status"]) for condition in patched["status"]["conditions"]] == [("Ready", "True")]


async def test_a_service_account_is_stored(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    assert (await api.create(SERVICE_ACCOUNTS, body))["kind"] == "ServiceAccount"


async def test_roles_and_role_bindings_are_stored(api: Api) -> None:
    api_version = "rbac.authorization.k8s.io/v1"
    role = await api.create(ROLES, {"apiVersion": api_version, "kind": "Role", "metadata": {"name": "a"}, "rules": [RULE]})
    assert role["rules"] == [RULE]
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": api.namespace}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    body = {"apiVersion": api_version, "kind": "RoleBinding", "metadata": {"name": "a"}, "subjects": [subject], "roleRef": role_ref}
    role_binding = await api.create(ROLE_BINDINGS, body)
    assert (role_binding["subjects"], role_binding["roleRef"]) == ([subject], role_ref)


async def test_a_cluster_role_has_no_namespace(api: Api) -> None:
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": api.namespace}, "rules": [RULE]}
    created = await api.create(CLUSTER_ROLES, body)
    assert created["rules"] == [RULE]
    assert "namespace" not in created["metadata"]


async def test_the_role_ref_of_a_role_binding_is_immutable(api: Api) -> None:
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef": role_ref}
    await api.create(ROLE_BINDINGS, body)
    error = await expect_error(api.patch(ROLE_BINDINGS, "a", {"roleRef": {"name": "b"}}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["roleRef"]
    assert error.causes[0]["message"].endswith("cannot change roleRef")


async def test_an_autoscaler_is_stored(api: Api) -> None:
    target = {"apiVersion": "conformance.dlop.dev/v1", "kind": "Widget", "name": "a"}
    body = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "a"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 4},
    }
    spec = (await api.create(HORIZONTAL_POD_AUTOSCALERS, body))["spec"]
    assert (spec["scaleTargetRef"], spec["maxReplicas"], spec["minReplicas"]) == (target, 4, 1)


async def test_an_endpoint_slice_is_stored(api: Api) -> None:
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "a"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"]}],
        "ports": [{"name": "main", "port": 80}],
    }
    created = await api.create(ENDPOINT_SLICES, body)
    assert [endpoint["addresses"] for endpoint in created["endpoints"]] == [["10.1.2.3"]]
