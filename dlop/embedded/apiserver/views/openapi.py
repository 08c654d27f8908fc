"""As much OpenAPI as `kubectl` needs: to explain, to know that the server validates fields, and to make patches.

Version 3 has one document a group and version. Of version 2 there is only an empty document: `kubectl` asks for it in
passing and falls back on what it knows itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import msgspec

from dlop.embedded.apiserver.core.go_types import openapi as shape_schema
from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject

_V2_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# A Document with `swagger: "2.0"` and an Info with a title and a version, in the words of protobuf.
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

_documents: WeakKeyDictionary[Registry, tuple[int, dict[str, bytes]]] = WeakKeyDictionary()


def answer(path: str, accept: str, registry: Registry) -> Response | None:
    """The document at a path, or None when the path is none of OpenAPI's."""
    if path == "/openapi/v2":
        return _version_2(accept)
    if path == "/openapi/v3":
        return _json(msgspec.json.encode({"paths": {name: _link(name, body) for name, body in _all(registry).items()}}))
    document = _all(registry).get(path.removeprefix("/openapi/v3/")) if path.startswith("/openapi/v3/") else None
    return None if document is None else _json(document)


def _json(body: bytes) -> Response:
    return Response(200, {"content-type": JSON, "cache-control": "no-cache, private"}, body)


def _version_2(accept: str) -> Response:
    if JSON not in accept and _V2_PROTOBUF in accept:
        return Response(200, {"content-type": "application/octet-stream"}, _V2_PROTOBUF_BODY)
    return _json(msgspec.json.encode(_V2))


def _link(name: str, body: bytes) -> JsonObject:
    # Clients keep a document for as long as its link stays the same.
    return {"serverRelativeURL": f"/openapi/v3/{name}?hash={hashlib.sha512(body).hexdigest().upper()}"}


def _all(registry: Registry) -> dict[str, bytes]:
    """Every document, made anew only when the set of served types has changed."""
    known = _documents.get(registry)
    if known is None or known[0] != registry.revision:
        known = _documents[registry] = (registry.revision, _made(registry))
    return known[1]


def _made(registry: Registry) -> dict[str, bytes]:
    types: dict[str, list[ResourceType]] = {}
    for one in registry.all():
        prefix = "apis" if one.resource.group else "api"
        types.setdefault(f"{prefix}/{one.resource.api_version}", []).append(one)
    return {name: msgspec.json.encode(_document(found)) for name, found in types.items()}


def _document(types: list[ResourceType]) -> JsonObject:
    schemas = {f"{_META}.ObjectMeta": {"description": _METADATA, **shape_schema("meta.v1.ObjectMeta")}}
    paths: JsonObject = {}
    for one in types:
        schemas[_schema_name(one)] = _schema(one)
        paths.update(_paths(one))
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _kind(one: ResourceType) -> JsonObject:
    return {"group": one.resource.group, "version": one.resource.version, "kind": one.resource.kind}


def _schema_name(one: ResourceType) -> str:
    group = ".".join(reversed(one.resource.group.split("."))) if one.is_custom else f"io.k8s.api.{one.resource.group or 'core'}"
    return f"{group}.{one.resource.version}.{one.resource.kind}"


def _schema(one: ResourceType) -> JsonObject:
    schema = one.schema or {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {
        **schema.get("properties", {}),
        "apiVersion": {"type": "string", "description": _API_VERSION},
        "kind": {"type": "string", "description": _KIND},
        "metadata": {"description": _METADATA, "allOf": [{"$ref": f"#/components/schemas/{_META}.ObjectMeta"}]},
    }
    return {**schema, "properties": dict(sorted(properties.items())), "x-kubernetes-group-version-kind": [_kind(one)]}


def _paths(one: ResourceType) -> Iterator[tuple[str, JsonObject]]:
    resource = one.resource
    if resource.namespaced:
        yield resource.path(), {"get": _operation(one, "list")}
    collection = resource.path(namespace="{namespace}" if resource.namespaced else None).replace("%7B", "{").replace("%7D", "}")
    item: JsonObject = {
        "get": _operation(one, "get"),
        "put": _operation(one, "put"),
        "patch": _patch(one),
        "delete": _operation(one, "delete"),
    }
    yield collection, {"get": _operation(one, "list"), "post": _operation(one, "post")}
    yield f"{collection}/{{name}}", item
    if one.has_status:
        yield f"{collection}/{{name}}/status", {name: item[name] for name in ("get", "put", "patch")}


def _operation(one: ResourceType, action: str) -> JsonObject:
    parameters = ("dryRun", "fieldManager", "fieldValidation") if action in ("post", "put", "patch") else ()
    reference = {"$ref": f"#/components/schemas/{_schema_name(one)}"}
    return {
        "parameters": [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in parameters],
        "responses": {"200": {"description": "OK", "content": {JSON: {"schema": reference}}}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": _kind(one),
    }


def _patch(one: ResourceType) -> JsonObject:
    # Strategic patches are made from the schema: a type that shows none gets plain merge patches.
    has_schema = not one.is_custom and bool((one.schema or {}).get("properties"))
    kinds = (*_PATCHES, _STRATEGIC) if has_schema else _PATCHES
    return {**_operation(one, "patch"), "requestBody": {"content": {kind: {"schema": {"type": "object"}} for kind in kinds}}}
