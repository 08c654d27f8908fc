"""The built-in resources that controllers use, each with what is special about it."""

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
from tests.conformance.support import Api, refused

RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


async def test_a_headless_service_gets_the_defaults_of_a_service(api: Api) -> None:
    spec = (await api.create(SERVICES, service("a")))["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"], spec["type"]) == ("None", ["None"], "ClusterIP")
    assert spec["ports"] == [{"name": "main", "port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (spec["sessionAffinity"], spec["internalTrafficPolicy"]) == ("None", "Cluster")


async def test_a_service_without_an_address_is_given_one_that_stays(api: Api) -> None:
    body = service("a")
    del body["spec"]["clusterIP"]
    created = await api.create(SERVICES, body)
    address = created["spec"]["clusterIP"]
    assert created["spec"]["clusterIPs"] == [address]
    assert len(address.split(".")) == 4
    error = await refused(api.patch(SERVICES, "a", {"spec": {"clusterIP": "None", "clusterIPs": ["None"]}}), InvalidError)
    assert any("may not change once set" in cause["message"] for cause in error.causes)


async def test_a_service_needs_good_ports(api: Api) -> None:
    body = service("a")
    body["spec"]["ports"] = [{"port": 0}]
    error = await refused(api.create(SERVICES, body), InvalidError)
    message = "Invalid value: 0: must be between 1 and 65535, inclusive"
    assert {"reason": "FieldValueInvalid", "message": message, "field": "spec.ports[0].port"} in error.causes


async def test_the_text_of_a_secret_is_stored_as_data(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"k": "text"}}
    created = await api.create(SECRETS, body)
    assert created["data"] == {"k": base64.b64encode(b"text").decode()}
    assert created["type"] == "Opaque"
    assert "stringData" not in created


async def test_an_immutable_config_map_does_not_change(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}) | {"immutable": True})
    error = await refused(api.patch(CONFIG_MAPS, "a", {"data": {"k": "w"}}), InvalidError)
    message = "Forbidden: field is immutable when `immutable` is set"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "data"}]


async def test_a_config_map_has_keys_like_file_names(api: Api) -> None:
    error = await refused(api.create(CONFIG_MAPS, config_map("a", {"bad/key": "v"})), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["data[bad/key]"]


async def test_a_node_is_stored_with_its_status_apart(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"node-{api.namespace}"}}
    await api.create(NODES, body)
    status = {"conditions": [{"type": "Ready", "status": "True", "reason": "Fine", "message": ""}]}
    patched = await api.patch(NODES, f"node-{api.namespace}", {"status": status}, subresource="status")
    assert [(each["type"], each["status"]) for each in patched["status"]["conditions"]] == [("Ready", "True")]


async def test_a_service_account_is_stored(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}
    assert (await api.create(SERVICE_ACCOUNTS, body))["kind"] == "ServiceAccount"


async def test_roles_and_their_bindings_are_stored(api: Api) -> None:
    kind = "rbac.authorization.k8s.io/v1"
    role = await api.create(ROLES, {"apiVersion": kind, "kind": "Role", "metadata": {"name": "a"}, "rules": [RULE]})
    assert role["rules"] == [RULE]
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": api.namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    body = {"apiVersion": kind, "kind": "RoleBinding", "metadata": {"name": "a"}, "subjects": [subject], "roleRef": reference}
    bound = await api.create(ROLE_BINDINGS, body)
    assert (bound["subjects"], bound["roleRef"]) == ([subject], reference)


async def test_a_cluster_role_is_stored_for_the_whole_cluster(api: Api) -> None:
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": api.namespace}, "rules": [RULE]}
    created = await api.create(CLUSTER_ROLES, body)
    assert created["rules"] == [RULE]
    assert "namespace" not in created["metadata"]


async def test_the_target_of_a_role_binding_cannot_change(api: Api) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a"}
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a"}, "roleRef": reference}
    await api.create(ROLE_BINDINGS, body)
    error = await refused(api.patch(ROLE_BINDINGS, "a", {"roleRef": {"name": "b"}}), InvalidError)
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
    assert [each["addresses"] for each in created["endpoints"]] == [["10.1.2.3"]]
