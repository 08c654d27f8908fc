"""Minimal valid request bodies. Keyword arguments without a parameter of their own become metadata fields."""

from __future__ import annotations

from typing import Any

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def pod(name: str, *, node: str | None = None, spec: JsonObject | None = None, **metadata: Any) -> JsonObject:
    """A pod with one container, scheduled if a node is given."""
    pod_spec: JsonObject = {"containers": [{"name": "main", "image": "none"}], **(spec or {})}
    if node is not None:
        pod_spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": pod_spec}


def pod_spec(**container: Any) -> JsonObject:
    """A pod spec with one container that has these fields in addition to a name and an image."""
    return {"containers": [{"name": "c", "image": "i", **container}]}


def binding(name: str, node: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}}


def eviction(name: str) -> JsonObject:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def service(name: str, **metadata: Any) -> JsonObject:
    """A headless service."""
    spec = {"clusterIP": "None", "selector": {"app": name}, "ports": [{"name": "main", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **metadata}, "spec": spec}


def lease(name: str, holder: str = "me", **metadata: Any) -> JsonObject:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **metadata}, "spec": spec}


def core_event(name: str, namespace: str) -> JsonObject:
    """An event of the core API."""
    involved_object = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": namespace, "uid": "u-1"}
    event: JsonObject = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace}}
    event |= {"involvedObject": involved_object, "reason": "Started", "message": "it runs", "type": "Normal", "count": 3}
    return event | {"source": {"component": "tests", "host": "here"}, "firstTimestamp": "2026-01-01T00:00:00Z"}


def events_api_event(name: str, namespace: str) -> JsonObject:
    """An event of the events.k8s.io API."""
    regarding = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": namespace}
    event: JsonObject = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name}}
    event |= {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.org/tests", "reportingInstance": "tests-0"}
    return event | {"action": "Start", "reason": "Started", "note": "it runs", "type": "Normal", "regarding": regarding}


def owner_reference(owner: JsonObject, *, block: bool | None = None, controller: bool | None = None) -> JsonObject:
    """A reference to a created object. `block` is blockOwnerDeletion; None leaves a field out."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
    if block is not None:
        reference["blockOwnerDeletion"] = block
    if controller is not None:
        reference["controller"] = controller
    return reference


def owned_lease(name: str, *owner_references: JsonObject, **metadata: Any) -> JsonObject:
    return lease(name, ownerReferences=list(owner_references), **metadata)


def object_schema(**properties: Any) -> JsonObject:
    """A structural schema with these properties."""
    return {"type": "object", "properties": properties}


def crd_version(name: str, schema: JsonObject, *, storage: bool = True, served: bool = True, **fields: Any) -> JsonObject:
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": schema}, **fields}


def crd(resource: Resource, *versions: JsonObject, **names: Any) -> JsonObject:
    """A CustomResourceDefinition. Keyword arguments are further fields of spec.names."""
    spec = {
        "group": resource.group,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "names": {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind, **names},
        "versions": list(versions),
    }
    body: JsonObject = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return body | {"metadata": {"name": resource.qualified_name}, "spec": spec}


def object_of(resource: Resource, name: str, *, spec: Any = None, **fields: Any) -> JsonObject:
    """An object of any resource. Keyword arguments are top-level fields."""
    body: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    return body | ({} if spec is None else {"spec": spec}) | fields


def json_patch_operation(op: str, path: str, *value: Any, **fields: Any) -> JsonObject:
    """One operation of a JSON patch. Operations such as `remove` have no value."""
    return {"op": op, "path": path, **({"value": value[0]} if value else {}), **fields}
