"""Exact resource requests of pods. Invalid quantities are ignored, because the API server rejects the pod and explains why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlop.kube.quantity import Quantity, parse_quantity
from dlop.kube.types import JsonObject

Requests = dict[str, Quantity]
"""Quantities by resource name."""


def pod_requests(spec: JsonObject) -> Requests:
    """The effective requests of a pod, as the scheduler computes them.

    The sum over containers and sidecars, or the peak during initialization if that is higher, plus the overhead.
    """
    sidecars: Requests = {}
    init_peak: Requests = {}
    for container in _list(spec.get("initContainers")):
        if container.get("restartPolicy") == "Always":
            sidecars = sum_requests((sidecars, _container_requests(container)))  # keeps running next to all later containers
            init_peak = _maximum(init_peak, sidecars)
        else:
            init_peak = _maximum(init_peak, sum_requests((sidecars, _container_requests(container))))
    containers = sum_requests(_container_requests(container) for container in _list(spec.get("containers")))
    # Pod-level requests override the containers' requests. Pod-level limits apply only where neither requests a resource.
    pod_level = _object(spec.get("resources"))
    effective = (
        parse_quantities(pod_level.get("limits"))
        | _maximum(sum_requests((containers, sidecars)), init_peak)
        | parse_quantities(pod_level.get("requests"))
    )
    return sum_requests((effective, parse_quantities(spec.get("overhead"))))


def sum_requests(parts: Iterable[Requests]) -> Requests:
    total: Requests = {}
    for part in parts:
        for name, quantity in part.items():
            total[name] = total[name] + quantity if name in total else quantity
    return total


def scale_requests(requests: Requests, count: int) -> Requests:
    return {name: quantity * count for name, quantity in requests.items()}


def parse_quantities(value: Any) -> Requests:
    """Parses a map from resource names to quantities. Invalid quantities are left out."""
    parsed = ((name, _parse(text)) for name, text in _object(value).items())
    return {name: quantity for name, quantity in parsed if quantity is not None}


def _container_requests(container: JsonObject) -> Requests:
    """The API server defaults a missing request to the limit."""
    resources = _object(container.get("resources"))
    return parse_quantities(resources.get("limits")) | parse_quantities(resources.get("requests"))


def _maximum(one: Requests, other: Requests) -> Requests:
    return one | {name: quantity for name, quantity in other.items() if name not in one or quantity.value > one[name].value}


def _parse(value: Any) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse_quantity(str(value))
    except ValueError:
        return None


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list | tuple) else []
