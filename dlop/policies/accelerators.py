"""Devices that containers request, and the legacy resource name of NVIDIA GPUs."""

from __future__ import annotations

from typing import Any

from dlop.kube.types import JsonObject

GPU = "nvidia.com/gpu"
LEGACY_GPU = "alpha.kubernetes.io/nvidia-gpu"
"""No node has this resource since Kubernetes 1.10. A pod that requests it would stay pending."""


def current_resource_name(name: str) -> str:
    return GPU if name == LEGACY_GPU else name


def requested_resources(container: JsonObject) -> set[str]:
    """Names of the resources in the requests and limits of a container."""
    return {name for quantities in _resources(container).values() if isinstance(quantities, dict) for name in quantities}


def with_current_resource_names(container: JsonObject) -> JsonObject:
    """The container with current names in its requests and limits."""
    if LEGACY_GPU not in requested_resources(container):
        return container
    resources = {
        part: {current_resource_name(name): quantity for name, quantity in quantities.items()}
        if isinstance(quantities, dict)
        else quantities
        for part, quantities in _resources(container).items()
    }
    return {**container, "resources": resources}


def _resources(container: JsonObject) -> dict[str, Any]:
    resources = container.get("resources")
    return resources if isinstance(resources, dict) else {}
