"""What pods ask of their nodes, added up exactly. What is no quantity is left out here: the API server refuses the pod, and says why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dlop.kube.quantity import Quantity, quantity
from dlop.kube.types import JsonObject

Requests = dict[str, Quantity]
"""How much of each resource."""


def requests_of(spec: JsonObject) -> Requests:
    """What a pod takes from its node: all that runs side by side, or more if an init container needs more at once."""
    beside: Requests = {}
    peak: Requests = {}
    for container in _list(spec.get("initContainers")):
        if container.get("restartPolicy") == "Always":
            beside = total((beside, _asked(container)))  # from then on it runs beside all others
            peak = _most(peak, beside)
        else:
            peak = _most(peak, total((beside, _asked(container))))
    containers = total(_asked(container) for container in _list(spec.get("containers")))
    # Where the pod as a whole asks for something, its containers have to share that; its limits count where nobody asks.
    whole = _object(spec.get("resources"))
    taken = amounts(whole.get("limits")) | _most(total((containers, beside)), peak) | amounts(whole.get("requests"))
    return total((taken, amounts(spec.get("overhead"))))


def total(parts: Iterable[Requests]) -> Requests:
    """All of them together."""
    found: Requests = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found[name] + amount if name in found else amount
    return found


def times(requests: Requests, count: int) -> Requests:
    """So many of the same."""
    return {name: amount * count for name, amount in requests.items()}


def amounts(given: Any) -> Requests:
    """Quantities by name, as far as they make sense."""
    found = ((name, _amount(value)) for name, value in _object(given).items())
    return {name: amount for name, amount in found if amount is not None}


def _asked(container: JsonObject) -> Requests:
    """What the API server makes of requests and limits: a limit without a request is a request."""
    resources = _object(container.get("resources"))
    return amounts(resources.get("limits")) | amounts(resources.get("requests"))


def _most(one: Requests, other: Requests) -> Requests:
    return one | {name: amount for name, amount in other.items() if name not in one or amount.value > one[name].value}


def _amount(value: Any) -> Quantity | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return quantity(str(value))
    except ValueError:
        return None


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[JsonObject]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
