"""What the server says about itself: versions, groups, resources, OpenAPI."""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject
from tests.conformance.support import Api, decoded

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def page(api: Api, path: str, *, accept: str = "application/json") -> JsonObject:
    return decoded(await api.client.call("GET", path, accept=accept))


async def resources(api: Api, path: str) -> dict[str, JsonObject]:
    return {each["name"]: each for each in (await page(api, path))["resources"]}


def chosen(found: JsonObject, *names: str) -> dict[str, Any]:
    return {name: sorted(found[name]) if isinstance(found.get(name), list) else found.get(name) for name in names}


async def test_the_version_is_that_of_a_current_kubernetes(api: Api) -> None:
    found = await page(api, "/version")
    assert (found["major"], found["minor"]) == ("1", "36")
    assert found["gitVersion"].startswith("v1.36.")


async def test_the_server_says_that_it_is_well(api: Api) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await api.raw("GET", path)
        assert (answer.status, answer.body) == (200, b"ok")


async def test_the_core_api_has_one_version(api: Api) -> None:
    found = await page(api, "/api")
    assert (found["kind"], found["versions"]) == ("APIVersions", ["v1"])


async def test_the_groups_are_named_with_their_versions(api: Api) -> None:
    found = await page(api, "/apis")
    groups = {each["name"]: each for each in found["groups"]}
    assert found["kind"] == "APIGroupList"
    for name in ("coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io", "autoscaling", "apiextensions.k8s.io"):
        assert name in groups
    await api.eventually(lambda: page(api, "/apis"), lambda found: "conformance.dlop.dev" in str(found))


async def test_a_group_names_its_preferred_version(api: Api) -> None:
    found = await page(api, "/apis/conformance.dlop.dev")
    served = {"groupVersion": "conformance.dlop.dev/v1", "version": "v1"}
    assert (found["kind"], found["name"], found["versions"], found["preferredVersion"]) == (
        "APIGroup",
        "conformance.dlop.dev",
        [served],
        served,
    )


async def test_pods_are_described_with_their_names_and_verbs(api: Api) -> None:
    found = await resources(api, "/api/v1")
    assert chosen(found["pods"], "singularName", "namespaced", "kind", "shortNames", "categories", "verbs") == {
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "shortNames": ["po"],
        "categories": ["all"],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
    assert {"pods/status", "pods/binding", "pods/eviction"} <= set(found)
    assert chosen(found["pods/eviction"], "group", "version", "kind", "verbs") == {
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }


async def test_namespaces_and_nodes_are_not_namespaced(api: Api) -> None:
    found = await resources(api, "/api/v1")
    assert [(found[name]["namespaced"], found[name]["shortNames"]) for name in ("namespaces", "nodes")] == [
        (False, ["ns"]),
        (False, ["no"]),
    ]


async def test_short_names_are_those_that_people_type(api: Api) -> None:
    found = await resources(api, "/api/v1")
    names = {name: found[name].get("shortNames") for name in ("services", "configmaps", "serviceaccounts", "events", "secrets")}
    assert names == {"services": ["svc"], "configmaps": ["cm"], "serviceaccounts": ["sa"], "events": ["ev"], "secrets": None}


async def test_a_custom_resource_is_described_with_its_subresources(api: Api) -> None:
    found = await resources(api, "/apis/conformance.dlop.dev/v1")
    assert set(found) == {"widgets", "widgets/status", "widgets/scale"}
    assert chosen(found["widgets"], "singularName", "namespaced", "kind", "verbs") == {
        "singularName": "widget",
        "namespaced": True,
        "kind": "Widget",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    }
    assert chosen(found["widgets/scale"], "group", "version", "kind", "verbs") == {
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }


async def test_the_whole_discovery_comes_in_one_page(api: Api) -> None:
    core = await page(api, "/api", accept=AGGREGATED)
    assert (core["kind"], core["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    pods = next(each for each in core["items"][0]["versions"][0]["resources"] if each["resource"] == "pods")
    assert (pods["scope"], pods["responseKind"]["kind"], pods["singularResource"], pods["shortNames"]) == (
        "Namespaced",
        "Pod",
        "pod",
        ["po"],
    )


async def test_a_custom_resource_is_in_the_one_page(api: Api) -> None:

    async def groups() -> dict[str, JsonObject]:
        return {each["metadata"]["name"]: each for each in (await page(api, "/apis", accept=AGGREGATED))["items"]}

    found = await api.eventually(groups, lambda found: "conformance.dlop.dev" in found)
    served = found["conformance.dlop.dev"]["versions"][0]
    widgets = served["resources"][0]
    assert (served["version"], widgets["resource"], widgets["scope"], widgets["singularResource"]) == (
        "v1",
        "widgets",
        "Namespaced",
        "widget",
    )
    assert {each["subresource"] for each in widgets["subresources"]} == {"status", "scale"}


async def test_openapi_has_a_page_for_every_group_and_version(api: Api) -> None:

    async def paths() -> JsonObject:
        found: JsonObject = (await page(api, "/openapi/v3"))["paths"]
        return found

    found = await api.eventually(paths, lambda found: "apis/conformance.dlop.dev/v1" in found)
    assert {"api/v1", "apis/coordination.k8s.io/v1"} <= set(found)
    assert found["apis/conformance.dlop.dev/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/conformance.dlop.dev/v1?hash=")


async def test_openapi_describes_a_custom_resource_by_its_schema(api: Api) -> None:

    async def described() -> dict[str, JsonObject]:
        answer = await api.raw("GET", "/openapi/v3/apis/conformance.dlop.dev/v1", headers={"accept": "application/json"})
        schemas: dict[str, JsonObject] = decoded(answer)["components"]["schemas"] if answer.status == 200 else {}
        return schemas

    def is_widget(found: JsonObject) -> bool:
        kind = {"group": "conformance.dlop.dev", "version": "v1", "kind": "Widget"}
        return kind in found.get("x-kubernetes-group-version-kind", [])

    schemas = await api.eventually(described, lambda found: any(map(is_widget, found.values())))
    widget = next(filter(is_widget, schemas.values()))
    assert widget["properties"]["spec"]["properties"]["replicas"]["type"] == "integer"
