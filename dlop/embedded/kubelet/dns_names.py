"""Pods and services of the API as `names` knows them. Pure."""

from __future__ import annotations

from dlop.embedded.kubelet.hosts_file import NamedPod, NamedService
from dlop.kube.errors import JsonObject


def named_pod(pod: JsonObject, address: str) -> NamedPod:
    """A pod under its names, with the address that it has."""
    metadata, spec = pod["metadata"], pod["spec"]
    return NamedPod(
        namespace=metadata["namespace"],
        name=metadata["name"],
        address=address,
        labels=metadata.get("labels") or {},
        hostname=spec.get("hostname") or "",
        subdomain=spec.get("subdomain") or "",
        host_aliases=tuple((each["ip"], tuple(each.get("hostnames") or ())) for each in spec.get("hostAliases") or ()),
    )


def named_service(service: JsonObject) -> NamedService:
    """A service under its name."""
    metadata, spec = service["metadata"], service["spec"]
    return NamedService(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=spec.get("selector") or {},
        is_headless=spec.get("clusterIP") == "None",
    )
