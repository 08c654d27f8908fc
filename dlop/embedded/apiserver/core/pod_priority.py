"""The Priority admission plugin, which sets the priority of a pod from its priority class."""

from __future__ import annotations

from collections.abc import Iterator

from dlop.embedded.apiserver.api_errors import forbidden
from dlop.embedded.apiserver.store import Store
from dlop.kube.resources import PODS, PRIORITY_CLASSES
from dlop.kube.types import JsonObject

_SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_PREEMPT = "PreemptLowerPriority"
_NO_CLASS: JsonObject = {"value": 0}


def with_priority(spec: JsonObject, *, pod_name: str, store: Store) -> JsonObject:
    """The spec with the priority and preemption policy of its class.

    Raises:
        ForbiddenError: the class does not exist, or the pod sets different values.
    """
    class_name = spec.get("priorityClassName", "")
    priority_class = _find_class(class_name, store) if class_name else _default_class(store)
    if priority_class is None:
        raise forbidden(PODS, pod_name, f"no PriorityClass with name {class_name} was found")
    priority, preemption = priority_class["value"], priority_class.get("preemptionPolicy", _PREEMPT)
    if spec.get("priority", priority) != priority:
        raise forbidden(PODS, pod_name, _mismatch("integer value of priority", spec["priority"], priority))
    if spec.get("preemptionPolicy", preemption) != preemption:
        raise forbidden(PODS, pod_name, _mismatch("string value of PreemptionPolicy", spec["preemptionPolicy"], preemption))
    resolved_name = class_name or priority_class.get("metadata", {}).get("name")
    return {**spec, "priority": priority, "preemptionPolicy": preemption, **({"priorityClassName": resolved_name} if resolved_name else {})}


def _mismatch(field: str, value: object, computed: object) -> str:
    return (
        f"the {field} ({value}) must not be provided in pod spec; "
        f"priority admission controller computed {computed} from the given PriorityClass name"
    )


def _find_class(name: str, store: Store) -> JsonObject | None:
    if name in _SYSTEM_CLASSES:
        return {"value": _SYSTEM_CLASSES[name]}
    return next((body for body in _classes(store) if body["metadata"]["name"] == name), None)


def _default_class(store: Store) -> JsonObject:
    defaults = [body for body in _classes(store) if body.get("globalDefault")]
    return min(defaults, key=lambda body: int(body["value"]), default=_NO_CLASS)


def _classes(store: Store) -> Iterator[JsonObject]:
    return (stored.body for _, stored in store.list(PRIORITY_CLASSES.qualified_name))
