"""Namespaces. `spec.finalizers` keeps a terminating namespace until it is empty."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, finalizer_errors, get_nested, invalid
from dlop.embedded.apiserver.name_validation import label_errors
from dlop.embedded.apiserver.resource_type import ALL_VERBS, ResourceType, Timestamp
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject

NAME_LABEL = "kubernetes.io/metadata.name"
CONTENT_FINALIZER = "kubernetes"
FINALIZE = "finalize"
_GO_TYPE = "core.v1.Namespace"


class _NamespaceStrategy(BuiltinStrategy):
    def validate_name(self, name: str) -> list[str]:
        return label_errors(name)

    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        finalizers = list(get_nested(body, "spec", "finalizers") or ())
        if CONTENT_FINALIZER not in finalizers:
            finalizers.append(CONTENT_FINALIZER)
        body["spec"] = {**(body.get("spec") or {}), "finalizers": finalizers}
        body["status"] = {"phase": "Active"}
        return _with_name_label(body)

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return _with_name_label(body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        errors += finalizer_errors(get_nested(body, "spec", "finalizers") or (), "spec.finalizers")
        terminating, phase = "deletionTimestamp" in body["metadata"], get_nested(body, "status", "phase")
        if not terminating and phase not in (None, "Active"):
            errors.append(invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"))
        elif terminating and phase != "Terminating":
            errors.append(invalid("status.Phase", phase or "", "may only be 'Terminating' if `deletionTimestamp` is not empty"))
        return errors

    def reset_fields(self, body: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
        # Only the `finalize` subresource can change the finalizers.
        return with_finalizers_of(body, old) if subresource != FINALIZE else with_finalizers_of(old, body)

    def prepare_delete(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        metadata = {name: value for name, value in body["metadata"].items() if name != "deletionGracePeriodSeconds"}
        return {**body, "metadata": metadata, "status": {**(body.get("status") or {}), "phase": "Terminating"}}

    def extra_finalizers(self, body: JsonObject) -> tuple[str, ...]:
        return tuple(get_nested(body, "spec", "finalizers") or ())


def _with_name_label(body: JsonObject) -> JsonObject:
    metadata = body["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}
    return body


def with_finalizers_of(body: JsonObject, source: JsonObject) -> JsonObject:
    """A copy of the namespace with the `spec.finalizers` of `source`."""
    finalizers = list(get_nested(source, "spec", "finalizers") or ())
    spec = {**(body.get("spec") or {}), "finalizers": finalizers}
    if not finalizers:
        del spec["finalizers"]
    return {**body, "metadata": {**body["metadata"]}, "spec": spec}


def namespace_types() -> list[ResourceType]:
    phase = column("Status", lambda namespace: get_nested(namespace, "status", "phase") or "")
    return [
        builtin_type(
            NAMESPACES,
            _GO_TYPE,
            strategy=_NamespaceStrategy(_GO_TYPE),
            short_names=("ns",),
            verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
            has_status=True,
            returns_deleted=True,
            columns=columns(phase),
            fields={"status.phase": ("status", "phase"), "name": ("metadata", "name")},
        )
    ]
