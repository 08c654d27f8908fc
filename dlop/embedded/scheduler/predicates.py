"""Whether a pod fits on the node. Pure: what it asks for, what is there, what is taken; in the scheduler's own words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from dlop.embedded.kubelet.restart_backoff import Role, role_of
from dlop.kube.quantity import amount
from dlop.kube.types import JsonObject

Amounts = dict[str, Fraction]

PODS = "pods"


def requests_of(spec: JsonObject) -> Amounts:
    """What a pod takes from its node: the sum of its containers, or what its greediest init container needs at once."""
    mains = _sum(_requests(each) for each in spec["containers"])
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        if role_of(container, is_init=True) is Role.SIDECAR:
            sidecars = _sum((sidecars, _requests(container)))
            peak = _most((peak, sidecars))
        else:
            peak = _most((peak, _sum((sidecars, _requests(container)))))
    taken = _most((peak, _sum((mains, sidecars))))
    if whole := (spec.get("resources") or {}).get("requests"):
        taken |= {name: amount(value) for name, value in whole.items()}
    overhead = {name: amount(value) for name, value in (spec.get("overhead") or {}).items()}
    return {**_sum((taken, overhead)), PODS: Fraction(1)}


def problems(spec: JsonObject, *, labels: Mapping[str, str], allocatable: Amounts, taken: Amounts) -> list[str]:
    """Why a pod does not fit; nothing if it does."""
    if not _is_chosen(spec, labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    found = []
    for name, wanted in sorted(requests_of(spec).items()):
        if wanted and wanted > allocatable.get(name, Fraction(0)) - taken.get(name, Fraction(0)):
            found.append("Too many pods" if name == PODS else f"Insufficient {name}")
    return found


def can_ever_fit(spec: JsonObject, *, labels: Mapping[str, str], allocatable: Amounts) -> bool:
    """Whether it would fit on the empty node."""
    return not problems(spec, labels=labels, allocatable=allocatable, taken={})


def explanation(reasons: Iterable[str], *, is_hopeless: bool) -> str:
    """The sentence of the scheduler."""
    listed = ", ".join(sorted(f"1 {reason}" for reason in reasons))
    preemption = "1 Preemption is not helpful for scheduling" if is_hopeless else "1 No preemption victims found for incoming pod"
    return f"0/1 nodes are available: {listed}. no new claims to deallocate, preemption: 0/1 nodes are available: {preemption}."


def total(amounts: Iterable[Amounts]) -> Amounts:
    """All of them together."""
    return _sum(amounts)


def _requests(container: JsonObject) -> Amounts:
    resources = container.get("resources") or {}
    # A limit without a request is a request: the API server fills it in, but not every server does.
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: amount(value) for name, value in asked.items()}


def _sum(amounts: Iterable[Amounts]) -> Amounts:
    result: Amounts = {}
    for each in amounts:
        for name, value in each.items():
            result[name] = result.get(name, Fraction(0)) + value
    return result


def _most(amounts: Iterable[Amounts]) -> Amounts:
    result: Amounts = {}
    for each in amounts:
        for name, value in each.items():
            result[name] = max(result.get(name, Fraction(0)), value)
    return result


# --- which nodes a pod wants ----------------------------------------------------------------------------------------------


def _is_chosen(spec: JsonObject, labels: Mapping[str, str]) -> bool:
    selector = spec.get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in selector.items()):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    return any(_term_matches(term, labels) for term in required.get("nodeSelectorTerms") or ())


def _term_matches(term: JsonObject, labels: Mapping[str, str]) -> bool:
    named = {"metadata.name": labels.get("kubernetes.io/hostname", "")}
    expressions = [(each, labels) for each in term.get("matchExpressions") or ()]
    expressions += [(each, named) for each in term.get("matchFields") or ()]
    return bool(expressions) and all(_expression_matches(each, known) for each, known in expressions)


def _expression_matches(expression: JsonObject, known: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or []
    value = known.get(key)
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
