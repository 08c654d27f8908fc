"""Whether a pod fits on the node, with the messages of kube-scheduler. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from dlop.embedded.kubelet.crash_loop_backoff import ContainerRole, container_role
from dlop.kube.quantity import quantity_value
from dlop.kube.types import JsonObject

ResourceList = dict[str, Fraction]

PODS = "pods"


def pod_requests(spec: JsonObject) -> ResourceList:
    """The sum of the main containers and sidecars, or the peak during initialization if that is more."""
    mains = sum_resources(_container_requests(container) for container in spec["containers"])
    sidecars: ResourceList = {}
    peak: ResourceList = {}
    for container in spec.get("initContainers") or ():
        if container_role(container, is_init=True) is ContainerRole.SIDECAR:
            sidecars = sum_resources((sidecars, _container_requests(container)))
            peak = _max_resources((peak, sidecars))
        else:
            peak = _max_resources((peak, sum_resources((sidecars, _container_requests(container)))))
    requests = _max_resources((peak, sum_resources((mains, sidecars))))
    if pod_level := (spec.get("resources") or {}).get("requests"):
        requests |= {name: quantity_value(value) for name, value in pod_level.items()}
    overhead = {name: quantity_value(value) for name, value in (spec.get("overhead") or {}).items()}
    return {**sum_resources((requests, overhead)), PODS: Fraction(1)}


def unschedulable_reasons(spec: JsonObject, *, labels: Mapping[str, str], allocatable: ResourceList, requested: ResourceList) -> list[str]:
    """The reasons why a pod does not fit. Empty if it does. `requested` are the requests of other pods."""
    if not _matches_node(spec, labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    reasons = []
    for name, request in sorted(pod_requests(spec).items()):
        if request and request > allocatable.get(name, Fraction(0)) - requested.get(name, Fraction(0)):
            reasons.append("Too many pods" if name == PODS else f"Insufficient {name}")
    return reasons


def fits_empty_node(spec: JsonObject, *, labels: Mapping[str, str], allocatable: ResourceList) -> bool:
    return not unschedulable_reasons(spec, labels=labels, allocatable=allocatable, requested={})


def failed_scheduling_message(reasons: Iterable[str], *, can_fit: bool) -> str:
    reason_list = ", ".join(sorted(f"1 {reason}" for reason in reasons))
    preemption = "1 No preemption victims found for incoming pod" if can_fit else "1 Preemption is not helpful for scheduling"
    return f"0/1 nodes are available: {reason_list}. no new claims to deallocate, preemption: 0/1 nodes are available: {preemption}."


def _container_requests(container: JsonObject) -> ResourceList:
    resources = container.get("resources") or {}
    # A limit is also the default of the request. The API server usually sets it.
    quantities = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity_value(value) for name, value in quantities.items()}


def sum_resources(resource_lists: Iterable[ResourceList]) -> ResourceList:
    result: ResourceList = {}
    for resources in resource_lists:
        for name, value in resources.items():
            result[name] = result.get(name, Fraction(0)) + value
    return result


def _max_resources(resource_lists: Iterable[ResourceList]) -> ResourceList:
    result: ResourceList = {}
    for resources in resource_lists:
        for name, value in resources.items():
            result[name] = max(result.get(name, Fraction(0)), value)
    return result


# --- node selector and affinity -------------------------------------------------------------------------------------------


def _matches_node(spec: JsonObject, labels: Mapping[str, str]) -> bool:
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term_matches(term, labels) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: JsonObject, labels: Mapping[str, str]) -> bool:
    fields = {"metadata.name": labels.get("kubernetes.io/hostname", "")}
    expressions = [(expression, labels) for expression in term.get("matchExpressions") or ()]
    expressions += [(expression, fields) for expression in term.get("matchFields") or ()]
    return bool(expressions) and all(_expression_matches(expression, attributes) for expression, attributes in expressions)


def _expression_matches(expression: JsonObject, attributes: Mapping[str, str]) -> bool:
    values = expression.get("values") or []
    value = attributes.get(expression["key"])
    match expression.get("operator"):
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.isdigit() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.isdigit() and int(value) < int(values[0])
    return False
