"""Discovery and OpenAPI documents."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType, ScaleFieldPaths
from dlop.embedded.apiserver.views import discovery, openapi
from dlop.embedded.apiserver.views.discovery import version_priority
from dlop.kube.resources import CONFIG_MAPS, Resource
from dlop.kube.transport import Response
from dlop.kube.types import JsonObject

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.9"


def make_type(resource: Resource, **more: Any) -> ResourceType:
    return ResourceType(resource=resource, storage=resource.qualified_name, singular=resource.kind.lower(), **more)


@pytest.fixture
def registry() -> ResourceRegistry:
    scale = ScaleFieldPaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"))
    registry = ResourceRegistry()
    registry.add(make_type(CONFIG_MAPS, short_names=("cm",), merge_schema={}, schema={"type": "object", "properties": {"data": {}}}))
    registry.add(make_type(Resource("example.org", "v1beta1", "widgets", "Widget")))
    registry.add(make_type(Resource("example.org", "v1", "widgets", "Widget"), has_status=True, scale=scale, categories=("all",)))
    return registry


def decode(response: Response | None) -> JsonObject:
    assert response is not None
    document: JsonObject = msgspec.json.decode(response.body)
    return document


def test_versions_are_in_kubernetes_order() -> None:
    versions = ["v1alpha1", "v2", "foo", "v1", "v1beta2", "v1beta10", "v10"]
    assert sorted(versions, key=version_priority, reverse=True) == ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]


def test_unaggregated_documents_list_versions_groups_and_resources(registry: ResourceRegistry) -> None:
    assert decode(discovery.respond("/api", "application/json", registry))["versions"] == ["v1"]
    group = decode(discovery.respond("/apis/example.org", "", registry))
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    assert [entry["name"] for entry in decode(discovery.respond("/apis", "", registry))["groups"]] == ["example.org"]
    resources = decode(discovery.respond("/apis/example.org/v1", "", registry))["resources"]
    assert [(entry["name"], entry["kind"]) for entry in resources] == [
        ("widgets", "Widget"),
        ("widgets/status", "Widget"),
        ("widgets/scale", "Scale"),
    ]


def test_clients_that_accept_it_get_the_aggregated_document(registry: ResourceRegistry) -> None:
    response = discovery.respond("/apis", _AGGREGATED, registry)
    assert response is not None
    assert response.headers["content-type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    (group,) = decode(response)["items"]
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    (widgets,) = group["versions"][0]["resources"]
    assert widgets["responseKind"] == {"group": "example.org", "version": "v1", "kind": "Widget"}
    assert [entry["subresource"] for entry in widgets["subresources"]] == ["status", "scale"]
    assert widgets["categories"] == ["all"]
    (core,) = decode(discovery.respond("/api", _AGGREGATED, registry))["items"]
    assert core["metadata"] == {}
    assert core["versions"][0]["resources"][0]["shortNames"] == ["cm"]


@pytest.mark.parametrize("path", ["/apis/nowhere.org", "/apis/example.org/v9", "/api/v2", "/nothing"])
def test_an_unknown_path_has_no_document(registry: ResourceRegistry, path: str) -> None:
    assert discovery.respond(path, "application/json", registry) is None


def test_the_url_of_a_schema_changes_only_with_the_schema(registry: ResourceRegistry) -> None:
    def links() -> JsonObject:
        paths: JsonObject = decode(openapi.respond("/openapi/v3", "", registry))["paths"]
        return paths

    before = links()
    assert set(before) == {"api/v1", "apis/example.org/v1", "apis/example.org/v1beta1"}
    registry.add(make_type(Resource("example.org", "v1", "widgets", "Widget"), schema={"type": "object", "description": "new"}))
    changed = {name for name, link in links().items() if link != before[name]}
    assert changed == {"apis/example.org/v1"}


def test_a_patch_operation_has_field_validation_and_the_supported_media_types(registry: ResourceRegistry) -> None:
    document = decode(openapi.respond("/openapi/v3/api/v1", "", registry))
    patch = document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    custom = decode(openapi.respond("/openapi/v3/apis/example.org/v1", "", registry))
    patch = custom["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_openapi_v2_is_empty_in_json_and_protobuf(registry: ResourceRegistry) -> None:
    protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    response = openapi.respond("/openapi/v2", protobuf, registry)
    assert response is not None
    assert response.body.startswith(b"\n\x032.0")
    assert decode(openapi.respond("/openapi/v2", "application/json", registry))["swagger"] == "2.0"
