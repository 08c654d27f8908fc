"""The parts of OpenAPI that `kubectl` uses for explain, field validation and patches.

OpenAPI v3 has one document per group and version. The v2 document is empty; `kubectl` then uses its built-in types.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import msgspec

from dlop.embedded.apiserver.core.go_types import openapi_schema
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# Protobuf encoding of a Document with `swagger: "2.0"` and an Info with a title and a version.
_V2_PROTOBUF_BODY = b"\n\x032.0\x12\x12\n\nKubernetes\x12\x041.36"
_V2 = {"swagger": "2.0", "info": {"title": "Kubernetes", "version": "1.36"}, "paths": {}, "definitions": {}}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_PATCHES = ("application/json-patch+json", "application/merge-patch+json")
_STRATEGIC = "application/strategic-merge-patch+json"
_API_VERSION = (
    "APIVersion defines the versioned schema of this representation of an object. Servers should convert recognized schemas to the latest "
    f"internal value, and may reject unrecognized values. More info: {_CONVENTIONS}#resources"
)
_KIND = (
    "Kind is a string value representing the REST resource this object represents. Servers may infer this from the endpoint the client "
    f"submits requests to. Cannot be updated. In CamelCase. More info: {_CONVENTIONS}#types-kinds"
)
_METADATA = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"

_documents: WeakKeyDictionary[ResourceRegistry, tuple[int, dict[str, bytes]]] = WeakKeyDictionary()


def respond(path: str, accept: str, registry: ResourceRegistry) -> Response | None:
    """The document at a path; None for other paths."""
    if path == "/openapi/v2":
        return _version_2(accept)
    if path == "/openapi/v3":
        return _json(msgspec.json.encode({"paths": {name: _link(name, body) for name, body in _all_documents(registry).items()}}))
    document = _all_documents(registry).get(path.removeprefix("/openapi/v3/")) if path.startswith("/openapi/v3/") else None
    return None if document is None else _json(document)


def _json(body: bytes) -> Response:
    return Response(200, {"content-type": JSON, "cache-control": "no-cache, private"}, body)


def _version_2(accept: str) -> Response:
    if JSON not in accept and _V2_PROTOBUF in accept:
        return Response(200, {"content-type": "application/octet-stream"}, _V2_PROTOBUF_BODY)
    return _json(msgspec.json.encode(_V2))


def _link(name: str, body: bytes) -> JsonObject:
    # Clients cache a document until its URL changes.
    return {"serverRelativeURL": f"/openapi/v3/{name}?hash={hashlib.sha512(body).hexdigest().upper()}"}


def _all_documents(registry: ResourceRegistry) -> dict[str, bytes]:
    """All documents, cached per revision of the registry."""
    cached = _documents.get(registry)
    if cached is None or cached[0] != registry.revision:
        cached = _documents[registry] = (registry.revision, _build_documents(registry))
    return cached[1]


def _build_documents(registry: ResourceRegistry) -> dict[str, bytes]:
    types: dict[str, list[ResourceType]] = {}
    for resource_type in registry.all():
        prefix = "apis" if resource_type.resource.group else "api"
        types.setdefault(f"{prefix}/{resource_type.resource.api_version}", []).append(resource_type)
    return {name: msgspec.json.encode(_document(group_types)) for name, group_types in types.items()}


def _document(types: list[ResourceType]) -> JsonObject:
    schemas = {f"{_META}.ObjectMeta": {"description": _METADATA, **openapi_schema("meta.v1.ObjectMeta")}}
    paths: JsonObject = {}
    for resource_type in types:
        schemas[_schema_name(resource_type)] = _schema(resource_type)
        paths.update(_paths(resource_type))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _kind(resource_type: ResourceType) -> JsonObject:
    return {"group": resource_type.resource.group, "version": resource_type.resource.version, "kind": resource_type.resource.kind}


def _schema_name(resource_type: ResourceType) -> str:
    group = (
        ".".join(reversed(resource_type.resource.group.split(".")))
        if resource_type.is_custom
        else f"io.k8s.api.{resource_type.resource.group or 'core'}"
    )
    return f"{group}.{resource_type.resource.version}.{resource_type.resource.kind}"


def _schema(resource_type: ResourceType) -> JsonObject:
    schema = resource_type.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {
        **schema.get("properties", {}),
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": {"description": _METADATA, "allOf": [{"$ref": f"#/components/schemas/{_META}.ObjectMeta"}]},
    }
    return {**schema, "properties": dict(sorted(properties.items())), "x-kubernetes-group-version-kind": [_kind(resource_type)]}


def _paths(resource_type: ResourceType) -> Iterator[tuple[str, JsonObject]]:
    resource = resource_type.resource
    if resource.namespaced:
        yield resource.path(), {"get": _operation(resource_type, "list")}
    collection = resource.path(namespace="{namespace}" if resource.namespaced else None).replace("%7B", "{").replace("%7D", "}")
    item: JsonObject = {
        "get": _operation(resource_type, "get"),
        "put": _operation(resource_type, "put"),
        "patch": _patch(resource_type),
        "delete": _operation(resource_type, "delete"),
    }
    yield collection, {"get": _operation(resource_type, "list"), "post": _operation(resource_type, "post")}
    yield f"{collection}/{{name}}", item
    if resource_type.has_status:
        yield f"{collection}/{{name}}/status", {name: item[name] for name in ("get", "put", "patch")}


def _operation(resource_type: ResourceType, action: str) -> JsonObject:
    parameters = ("dryRun", "fieldManager", "fieldValidation") if action in ("post", "put", "patch") else ()
    reference = {"$ref": f"#/components/schemas/{_schema_name(resource_type)}"}
    return {
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in parameters],
        "responses": {"200": {"description": "OK", "content": {JSON: {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(resource_type),
    }


def _patch(resource_type: ResourceType) -> JsonObject:
    # `kubectl` needs the schema for strategic merge patches and uses merge patches for types without one.
    has_schema = not resource_type.is_custom and bool((resource_type.schema or {}).get("properties"))
    kinds = (*_PATCHES, _STRATEGIC) if has_schema else _PATCHES
    return {**_operation(resource_type, "patch"), "requestBody": {"content": {kind: {"schema": {"type": "object"}} for kind in kinds}}}
