"""Ingresses: objects that few jobs have, and for which the operator needs a permission set."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.api.types import PermissionSet
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

INGRESSES = Resource("networking.k8s.io", "v1", "ingresses", "Ingress")
INGRESS_PERMISSIONS = PermissionSet(
    "ingress",
    (
        {
            "apiGroups": [INGRESSES.group],
            "resources": [INGRESSES.plural],
            "verbs": ["get", "list", "watch", "create", "patch", "delete"],
        },
    ),
)


def ingress_body(
    metadata: JsonObject, *, host: str, paths: Sequence[str], service: str, port: int | None, path_type: str = "ImplementationSpecific"
) -> JsonObject:
    """An Ingress that routes these paths of a host to a port of a service."""
    backend = {"service": {"name": service, "port": {"number": port}}}
    http = {"paths": [{"path": path, "pathType": path_type, "backend": backend} for path in paths]}
    return {
        "apiVersion": INGRESSES.api_version,
        "kind": INGRESSES.kind,
        "metadata": metadata,
        "spec": {"rules": [{"host": host, "http": http}]},
    }
