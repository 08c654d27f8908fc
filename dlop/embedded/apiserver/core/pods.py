"""Pods: their life on the server. Somebody else binds them to nodes, runs them, and confirms that they have ended."""

from __future__ import annotations

from typing import Any

from dlop.embedded.apiserver.age import format_time
from dlop.embedded.apiserver.api_errors import FieldError, conflict, unreasoned
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, dig, forbidden, not_one_of, required
from dlop.embedded.apiserver.core.pod_columns import POD_COLUMNS
from dlop.embedded.apiserver.core.pod_defaults import defaulted_pod_spec, quality_of_service
from dlop.embedded.apiserver.core.pod_priority import with_priority
from dlop.embedded.apiserver.core.pod_updates import pod_status_errors, pod_update_errors
from dlop.embedded.apiserver.core.pod_validation import pod_spec_errors
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.embedded.apiserver.store import Store
from dlop.kube.resources import PODS, Resource
from dlop.kube.types import JsonObject

_SHAPE = "core.v1.Pod"
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


class _PodRules(BuiltinRules):
    def __init__(self, shape: str, store: Store) -> None:
        super().__init__(shape)
        self._store = store

    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        spec = with_priority(body.get("spec") or {}, pod_name=body["metadata"].get("name", ""), store=self._store)
        spec = body["spec"] = defaulted_pod_spec(spec)
        status = body["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}
        if spec.get("schedulingGates"):
            body["status"] = _with_condition(status, _GATED, moment=moment)
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        body["spec"] = defaulted_pod_spec(body.get("spec") or {})
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
        # Nobody runs a pod without a node, and a finished one runs no more: there is nobody to wait for.
        if not dig(body, "spec", "nodeName") or dig(body, "status", "phase") in ("Succeeded", "Failed"):
            return 0
        wanted = dig(body, "spec", "terminationGracePeriodSeconds") if requested is None else requested
        seconds = int(wanted or 0)
        return 1 if seconds < 0 else seconds


def _completed_status(status: JsonObject, old: JsonObject) -> JsonObject:
    """The class never changes, and the first of the addresses is kept in two places."""
    if not status.get("qosClass") and old.get("qosClass"):
        status = {**status, "qosClass": old["qosClass"]}
    addresses: list[JsonObject] = status.get("podIPs") or []
    single = status.get("podIP")
    if single and (not addresses or addresses[0].get("ip") != single):
        return {**status, "podIPs": [{"ip": single}]}
    if addresses and not single:
        return {**status, "podIP": addresses[0].get("ip", "")}
    return status


def bound(pod: JsonObject, binding: JsonObject, *, moment: Moment) -> JsonObject:
    """The pod on the node that a Binding names, for the `binding` subresource.

    Raises:
        ServerError: when the Binding names no node.
        ConflictError: when the pod cannot be bound any more.
    """
    name = pod["metadata"]["name"]
    target = binding.get("target") or {}
    errors = not_one_of("target.kind", target.get("kind") or "Node", ("Node", "<empty>"))
    if not target.get("name"):
        errors.append(required("target.name"))
    if errors:
        raise unreasoned(f"{errors[0].path}: {errors[0].message}")
    if why := _unbindable(pod, name):
        raise conflict(_BINDING, name, why)
    metadata = {**pod["metadata"]}
    for field in ("annotations", "labels"):
        if given := dig(binding, "metadata", field):
            metadata[field] = {**(metadata.get(field) or {}), **given}
    status = _with_condition(pod.get("status") or {}, {"type": "PodScheduled", "status": "True"}, moment=moment)
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": target["name"]}, "status": status}


def _unbindable(pod: JsonObject, name: str) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if node := dig(pod, "spec", "nodeName"):
        return f'pod {name} is already assigned to node "{node}"'
    if dig(pod, "spec", "schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def marked_for_eviction(pod: JsonObject, *, moment: Moment) -> JsonObject:
    """The pod with the condition that the `eviction` subresource sets before it deletes."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    return {**pod, "status": _with_condition(pod.get("status") or {}, condition, moment=moment)}


def _with_condition(status: JsonObject, condition: JsonObject, *, moment: Moment) -> JsonObject:
    made: dict[str, Any] = {**condition, "lastProbeTime": None, "lastTransitionTime": format_time(moment)}
    others = [each for each in status.get("conditions") or () if each.get("type") != condition["type"]]
    return {**status, "conditions": [*others, made]}


def pod_types(store: Store) -> list[ResourceType]:
    """The type of pods; priority classes are looked up in the store."""
    return [
        builtin_type(
            PODS,
            _SHAPE,
            rules=_PodRules(_SHAPE, store),
            short_names=("po",),
            categories=("all",),
            has_status=True,
            has_generation=True,
            returns_deleted=True,
            columns=POD_COLUMNS,
            fields={path: tuple(path.split(".")) for path in _FIELDS},
        )
    ]
