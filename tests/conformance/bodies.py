"""The objects that conformance cases create: small, valid, and different only where a case says so."""

from __future__ import annotations

from typing import Any

from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject


def metadata(name: str, **more: Any) -> JsonObject:
    """Metadata with a name, and what else is given."""
    return {"name": name, **more}


def config_map(name: str, data: dict[str, str] | None = None, **more: Any) -> JsonObject:
    """A config map."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(name, **more), "data": data or {}}


def pod(name: str, *, node: str | None = None, spec: JsonObject | None = None, **more: Any) -> JsonObject:
    """A pod of one container, on a node or still without one."""
    body: JsonObject = {"containers": [{"name": "main", "image": "none"}], **(spec or {})}
    if node is not None:
        body["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata(name, **more), "spec": body}


def service(name: str, **more: Any) -> JsonObject:
    """A headless service."""
    spec = {"clusterIP": "None", "selector": {"app": name}, "ports": [{"name": "main", "port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(name, **more), "spec": spec}


def lease(name: str, holder: str = "me", **more: Any) -> JsonObject:
    """A lease."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(name, **more), "spec": spec}


def owner(found: JsonObject, *, block: bool | None = None, controller: bool | None = None) -> JsonObject:
    """A reference to an owner that has been created."""
    reference = {key: found[key] for key in ("apiVersion", "kind")}
    reference |= {"name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
    if block is not None:
        reference["blockOwnerDeletion"] = block
    if controller is not None:
        reference["controller"] = controller
    return reference


def schema(**properties: Any) -> JsonObject:
    """A structural schema of an object with these properties at its root."""
    return {"type": "object", "properties": properties}


def version(name: str, root: JsonObject, *, storage: bool = True, served: bool = True, **more: Any) -> JsonObject:
    """One version of a definition."""
    return {"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": root}, **more}


def definition(resource: Resource, *versions: JsonObject, **names: Any) -> JsonObject:
    """A CustomResourceDefinition with these versions."""
    spec = {
        "group": resource.group,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "names": {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind, **names},
        "versions": list(versions),
    }
    crd: JsonObject = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return crd | {"metadata": {"name": resource.qualified_name}, "spec": spec}


def custom(resource: Resource, name: str, *, spec: Any = None, **fields: Any) -> JsonObject:
    """A custom object."""
    body: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata(name)}
    return body | ({} if spec is None else {"spec": spec}) | fields
