"""Discovery: version, health, API groups, API resources and OpenAPI."""

from __future__ import annotations

from kubernetes_build import kubernetes_version

from dlop.kube.types import JsonObject
from tests.conformance.discovery import list_api_resources, select_fields
from tests.conformance.support import Api, decode_json, over_https

pytestmark = over_https(reason="the path and the Accept header select the document")

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def test_the_server_reports_the_kubernetes_version_that_is_tested(api: Api) -> None:
    version = await api.get_json("/version")
    major, minor, _ = kubernetes_version().removeprefix("v").split(".")
    assert (version["major"], version["minor"]) == (major, minor)
    assert version["gitVersion"].startswith(f"v{major}.{minor}.")


async def test_the_health_endpoints_return_ok(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        response = await api.send("GET", path)
        assert (response.status, response.body) == (200, b"ok")


async def test_the_core_api_has_one_version(api: Api) -> None:
    document = await api.get_json("/api")
    assert (document["kind"], document["versions"]) == ("APIVersions", ["v1"])


async def test_built_in_and_custom_groups_are_listed(api: Api) -> None:
    document = await api.get_json("/apis")
    groups = {group["name"]: group for group in document["groups"]}
    assert document["kind"] == "APIGroupList"
    for name in ("coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io", "autoscaling", "apiextensions.k8s.io"):
        assert name in groups
    await api.wait_until(lambda: api.get_json("/apis"), lambda groups: "conformance.dlop.dev" in str(groups))


async def test_a_group_has_a_preferred_version(api: Api) -> None:
    group = await api.get_json("/apis/conformance.dlop.dev")
    served = {"groupVersion": "conformance.dlop.dev/v1", "version": "v1"}
    assert (group["kind"], group["name"], group["versions"], group["preferredVersion"]) == (
        "APIGroup",
        "conformance.dlop.dev",
        [served],
        served,
    )


async def test_pods_are_listed_with_their_names_and_verbs(api: Api) -> None:
    resources = await list_api_resources(api, "/api/v1")
    assert select_fields(resources["pods"], "singularName", "namespaced", "kind", "shortNames", "categories", "verbs") == {
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "shortNames": ["po"],
        "categories": ["all"],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
    assert {"pods/status", "pods/binding", "pods/eviction"} <= set(resources)
    assert select_fields(resources["pods/eviction"], "group", "version", "kind", "verbs") == {
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }


async def test_namespaces_and_nodes_are_not_namespaced(api: Api) -> None:
    resources = await list_api_resources(api, "/api/v1")
    assert [(resources[name]["namespaced"], resources[name]["shortNames"]) for name in ("namespaces", "nodes")] == [
        (False, ["ns"]),
        (False, ["no"]),
    ]


async def test_built_in_resources_have_short_names(api: Api) -> None:
    resources = await list_api_resources(api, "/api/v1")
    names = {name: resources[name].get("shortNames") for name in ("services", "configmaps", "serviceaccounts", "events", "secrets")}
    assert names == {"services": ["svc"], "configmaps": ["cm"], "serviceaccounts": ["sa"], "events": ["ev"], "secrets": None}


async def test_a_custom_resource_is_listed_with_its_subresources(api: Api) -> None:
    resources = await list_api_resources(api, "/apis/conformance.dlop.dev/v1")
    assert set(resources) == {"widgets", "widgets/status", "widgets/scale"}
    assert select_fields(resources["widgets"], "singularName", "namespaced", "kind", "verbs") == {
        "singularName": "widget",
        "namespaced": True,
        "kind": "Widget",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
    assert select_fields(resources["widgets/scale"], "group", "version", "kind", "verbs") == {
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }


async def test_aggregated_discovery_contains_the_core_resources(api: Api) -> None:
    core = await api.get_json("/api", accept=AGGREGATED)
    assert (core["kind"], core["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    pods = next(resource for resource in core["items"][0]["versions"][0]["resources"] if resource["resource"] == "pods")
    assert (pods["scope"], pods["responseKind"]["kind"], pods["singularResource"], pods["shortNames"]) == (
        "Namespaced",
        "Pod",
        "pod",
        ["po"],
    )


async def test_aggregated_discovery_contains_custom_resources(api: Api) -> None:
    async def get_groups() -> dict[str, JsonObject]:
        return {group["metadata"]["name"]: group for group in (await api.get_json("/apis", accept=AGGREGATED))["items"]}

    groups = await api.wait_until(get_groups, lambda groups: "conformance.dlop.dev" in groups)
    version = groups["conformance.dlop.dev"]["versions"][0]
    widgets = version["resources"][0]
    assert (version["version"], widgets["resource"], widgets["scope"], widgets["singularResource"]) == (
        "v1",
        "widgets",
        "Namespaced",
        "widget",
    )
    assert {subresource["subresource"] for subresource in widgets["subresources"]} == {"status", "scale"}


async def test_openapi_has_a_document_for_each_group_version(api: Api) -> None:
    index = await api.wait_until(lambda: api.get_json("/openapi/v3"), lambda index: "apis/conformance.dlop.dev/v1" in index["paths"])
    paths = index["paths"]
    assert {"api/v1", "apis/coordination.k8s.io/v1"} <= set(paths)
    assert paths["apis/conformance.dlop.dev/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/conformance.dlop.dev/v1?hash=")


async def test_openapi_contains_the_schema_of_a_custom_resource(api: Api) -> None:
    async def get_schemas() -> dict[str, JsonObject]:
        response = await api.send("GET", "/openapi/v3/apis/conformance.dlop.dev/v1", headers={"accept": "application/json"})
        schemas: dict[str, JsonObject] = decode_json(response)["components"]["schemas"] if response.status == 200 else {}
        return schemas

    def is_widget(schema: JsonObject) -> bool:
        kind = {"group": "conformance.dlop.dev", "version": "v1", "kind": "Widget"}
        return kind in schema.get("x-kubernetes-group-version-kind", [])

    schemas = await api.wait_until(get_schemas, lambda schemas: any(map(is_widget, schemas.values())))
    widget = next(filter(is_widget, schemas.values()))
    assert widget["properties"]["spec"]["properties"]["replicas"]["type"] == "integer"
