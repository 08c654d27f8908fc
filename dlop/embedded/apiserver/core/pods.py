"""Pods: strategy, binding and eviction."""

from __future__ import annotations

from typing import Any

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import FieldError, conflict, error_without_reason
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, enum_errors, forbidden, get_nested, required
from dlop.embedded.apiserver.core.pod_columns import POD_COLUMNS
from dlop.embedded.apiserver.core.pod_defaults import qos_class, with_pod_defaults
from dlop.embedded.apiserver.core.pod_priority import with_priority
from dlop.embedded.apiserver.core.pod_updates import pod_status_errors, pod_update_errors
from dlop.embedded.apiserver.core.pod_validation import pod_spec_errors
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.embedded.apiserver.store import Store
from dlop.kube.resources import PODS, Resource
from dlop.kube.types import JsonObject

_GO_TYPE = "core.v1.Pod"
_BINDING = Resource("", "v1", "pods/binding", "Binding")
_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)

_GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


class _PodStrategy(BuiltinStrategy):
    def __init__(self, go_type: str, store: Store) -> None:
        super().__init__(go_type)
        self._store = store

    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        spec = with_priority(body.get("spec") or {}, pod_name=body["metadata"].get("name", ""), store=self._store)
        spec = body["spec"] = with_pod_defaults(spec)
        status = body["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        if spec.get("schedulingGates"):
            body["status"] = _with_condition(status, _GATED, now=now)
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        body["spec"] = with_pod_defaults(body.get("spec") or {})
        body["status"] = _completed_status(body.get("status") or {}, old.get("status") or {})
        return body

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if subresource == "status" and old is not None:
            return errors + pod_status_errors(body["status"], old.get("status") or {})
        errors += pod_spec_errors(body["spec"])
        if old is not None:
            return errors or pod_update_errors(body["spec"], old["spec"])
        if body["spec"].get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        return errors

    def deletion_grace_seconds(self, body: JsonObject, requested: int | None) -> int:
        # No kubelet runs an unscheduled or finished pod, so no kubelet would complete a graceful deletion.
        if not get_nested(body, "spec", "nodeName") or get_nested(body, "status", "phase") in ("Succeeded", "Failed"):
            return 0
        grace = get_nested(body, "spec", "terminationGracePeriodSeconds") if requested is None else requested
        seconds = int(grace or 0)
        return 1 if seconds < 0 else seconds


def _completed_status(status: JsonObject, old: JsonObject) -> JsonObject:
    """The status with its old QoS class, and with podIP and podIPs in sync."""
    if not status.get("qosClass") and old.get("qosClass"):
        status = {**status, "qosClass": old["qosClass"]}
    addresses: list[JsonObject] = status.get("podIPs") or []
    single = status.get("podIP")
    if single and (not addresses or addresses[0].get("ip") != single):
        return {**status, "podIPs": [{"ip": single}]}
    if addresses and not single:
        return {**status, "podIP": addresses[0].get("ip", "")}
    return status


def with_node(pod: JsonObject, binding: JsonObject, *, now: Timestamp) -> JsonObject:
    """The pod, assigned to the node of a Binding.

    Raises:
        ServerError: the Binding has no node.
        ConflictError: the pod cannot be bound.
    """
    name = pod["metadata"]["name"]
    target = binding.get("target") or {}
    errors = enum_errors("target.kind", target.get("kind") or "Node", ("Node", "<empty>"))
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        raise error_without_reason(f"{errors[0].path}: {errors[0].message}")
    if reason := _binding_conflict(pod, name):
        raise conflict(_BINDING, name, reason)
    metadata = {**pod["metadata"]}
    for field in ("annotations", "labels"):
        if values := get_nested(binding, "metadata", field):
            metadata[field] = {**(metadata.get(field) or {}), **values}
    status = _with_condition(pod.get("status") or {}, {"type": "PodScheduled", "status": "True"}, now=now)
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": target["name"]}, "status": status}


def _binding_conflict(pod: JsonObject, name: str) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := get_nested(pod, "spec", "nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if get_nested(pod, "spec", "schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def with_disruption_condition(pod: JsonObject, *, now: Timestamp) -> JsonObject:
    """The pod with the DisruptionTarget condition of an eviction."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**pod, "status": _with_condition(pod.get("status") or {}, condition, now=now)}


def _with_condition(status: JsonObject, condition: JsonObject, *, now: Timestamp) -> JsonObject:
    new_condition: dict[str, Any] = {**condition, "lastProbeTime": None, "lastTransitionTime": format_time(now)}
    others = [other for other in status.get("conditions") or () if other.get("type") != condition["type"]]
    return {**status, "conditions": [*others, new_condition]}


def pod_types(store: Store) -> list[ResourceType]:
    """Pods. Priority classes are looked up in the store."""
    return [
        builtin_type(
            PODS,
            _GO_TYPE,
            strategy=_PodStrategy(_GO_TYPE, store),
            short_names=("po",),
            categories=("all",),
            has_status=True,
            has_generation=True,
            returns_deleted=True,
            columns=POD_COLUMNS,
            fields={path: tuple(path.split(".")) for path in _FIELDS},
        )
    ]
