"""What the server tells about itself: discovery documents and OpenAPI."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import ResourceType, ScalePaths
from dlop.embedded.apiserver.views import discovery, openapi
from dlop.embedded.apiserver.views.discovery import version_priority
from dlop.kube.resources import CONFIG_MAPS, Resource
from dlop.kube.transport import Response
from dlop.kube.types import JsonObject

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;q=0.9"


def a_type(resource: Resource, **more: Any) -> ResourceType:
    return ResourceType(resource=resource, storage=resource.qualified_name, singular=resource.kind.lower(), **more)


@pytest.fixture
def registry() -> Registry:
    scale = ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas"))
    registry = Registry()
    registry.add(a_type(CONFIG_MAPS, short_names=("cm",), merge_schema={}, schema={"type": "object", "properties": {"data": {}}}))
    registry.add(a_type(Resource("example.org", "v1beta1", "widgets", "Widget")))
    registry.add(a_type(Resource("example.org", "v1", "widgets", "Widget"), has_status=True, scale=scale, categories=("all",)))
    return registry


def read(response: Response | None) -> JsonObject:
    assert response is not None
    found: JsonObject = msgspec.json.decode(response.body)
    return found


def test_versions_are_ordered_as_kubernetes_orders_them() -> None:
    versions = ["v1alpha1", "v2", "foo", "v1", "v1beta2", "v1beta10", "v10"]
    assert sorted(versions, key=version_priority, reverse=True) == ["v10", "v2", "v1", "v1beta10", "v1beta2", "v1alpha1", "foo"]


def test_the_old_documents_list_versions_groups_and_resources(registry: Registry) -> None:
    assert read(discovery.answer("/api", "application/json", registry))["versions"] == ["v1"]
    group = read(discovery.answer("/apis/example.org", "", registry))
    assert [one["version"] for one in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"]["version"] == "v1"
    assert [one["name"] for one in read(discovery.answer("/apis", "", registry))["groups"]] == ["example.org"]
    resources = read(discovery.answer("/apis/example.org/v1", "", registry))["resources"]
    assert [(one["name"], one["kind"]) for one in resources] == [
        ("widgets", "Widget"),
        ("widgets/status", "Widget"),
        ("widgets/scale", "Scale"),
    ]


def test_the_aggregated_document_is_given_to_those_who_ask_for_it(registry: Registry) -> None:
    response = discovery.answer("/apis", _AGGREGATED, registry)
    assert response is not None
    assert response.headers["content-type"] == "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    (group,) = read(response)["items"]
    assert [version["version"] for version in group["versions"]] == ["v1", "v1beta1"]
    (widgets,) = group["versions"][0]["resources"]
    assert widgets["responseKind"] == {"group": "example.org", "version": "v1", "kind": "Widget"}
    assert [one["subresource"] for one in widgets["subresources"]] == ["status", "scale"]
    assert widgets["categories"] == ["all"]
    (core,) = read(discovery.answer("/api", _AGGREGATED, registry))["items"]
    assert core["metadata"] == {}
    assert core["versions"][0]["resources"][0]["shortNames"] == ["cm"]


@pytest.mark.parametrize("path", ["/apis/nowhere.org", "/apis/example.org/v9", "/api/v2", "/nothing"])
def test_what_is_not_there_has_no_document(registry: Registry, path: str) -> None:
    assert discovery.answer(path, "application/json", registry) is None


def test_a_link_to_a_schema_changes_only_with_the_schema(registry: Registry) -> None:
    def links() -> JsonObject:
        found: JsonObject = read(openapi.answer("/openapi/v3", "", registry))["paths"]
        return found

    before = links()
    assert set(before) == {"api/v1", "apis/example.org/v1", "apis/example.org/v1beta1"}
    registry.add(a_type(Resource("example.org", "v1", "widgets", "Widget"), schema={"type": "object", "description": "new"}))
    changed = {name for name, link in links().items() if link != before[name]}
    assert changed == {"apis/example.org/v1"}


def test_a_patch_says_that_it_validates_fields_and_which_forms_it_takes(registry: Registry) -> None:
    document = read(openapi.answer("/openapi/v3/api/v1", "", registry))
    patch = document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"]
    assert "fieldValidation" in [one["name"] for one in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
    custom = read(openapi.answer("/openapi/v3/apis/example.org/v1", "", registry))
    patch = custom["paths"]["/apis/example.org/v1/namespaces/{namespace}/widgets/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" not in patch["requestBody"]["content"]


def test_version_two_is_empty_in_both_forms(registry: Registry) -> None:
    wanted = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    response = openapi.answer("/openapi/v2", wanted, registry)
    assert response is not None
    assert response.body.startswith(b"\n\x032.0")
    assert read(openapi.answer("/openapi/v2", "application/json", registry))["swagger"] == "2.0"
