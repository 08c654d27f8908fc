"""Namespaces: active until deleted, then held in place by `spec.finalizers` until they are empty."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, column, columns, dig, finalizer_errors, invalid
from dlop.embedded.apiserver.name_validation import label_errors
from dlop.embedded.apiserver.resource_type import ALL_VERBS, Moment, ResourceType
from dlop.kube.resources import NAMESPACES
from dlop.kube.types import JsonObject

NAME_LABEL = "kubernetes.io/metadata.name"
CONTENT_FINALIZER = "kubernetes"
FINALIZE = "finalize"
_SHAPE = "core.v1.Namespace"


class _NamespaceRules(BuiltinRules):
    def validate_name(self, name: str) -> list[str]:
        return label_errors(name)

    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        finalizers = list(dig(body, "spec", "finalizers") or ())
        if CONTENT_FINALIZER not in finalizers:
            finalizers.append(CONTENT_FINALIZER)
        body["spec"] = {**(body.get("spec") or {}), "finalizers": finalizers}
        body["status"] = {"phase": "Active"}
        return _labelled(body)

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        return _labelled(body)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        errors += finalizer_errors(dig(body, "spec", "finalizers") or (), "spec.finalizers")
        marked, phase = "deletionTimestamp" in body["metadata"], dig(body, "status", "phase")
        if not marked and phase not in (None, "Active"):
            errors.append(invalid("status.Phase", phase, "may only be 'Active' if `deletionTimestamp` is empty"))
        elif marked and phase != "Terminating":
            errors.append(invalid("status.Phase", phase or "", "may only be 'Terminating' if `deletionTimestamp` is not empty"))
        return errors

    def isolated(self, body: JsonObject, old: JsonObject, *, subresource: str | None) -> JsonObject:
        # Only the `finalize` subresource lets go of a namespace.
        return finalized(body, old) if subresource != FINALIZE else finalized(old, body)

    def prepare_delete(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        metadata = {name: value for name, value in body["metadata"].items() if name != "deletionGracePeriodSeconds"}
        return {**body, "metadata": metadata, "status": {**(body.get("status") or {}), "phase": "Terminating"}}

    def finalizers_on_delete(self, body: JsonObject) -> tuple[str, ...]:
        return tuple(dig(body, "spec", "finalizers") or ())


def _labelled(body: JsonObject) -> JsonObject:
    """Every namespace carries its name as a label, so that selectors can find it."""
    metadata = body["metadata"]
    if metadata.get("name"):
        metadata["labels"] = {**(metadata.get("labels") or {}), NAME_LABEL: metadata["name"]}
    return body


def finalized(body: JsonObject, source: JsonObject) -> JsonObject:
    """The namespace with the finalizers that another version of it has in its spec."""
    finalizers = list(dig(source, "spec", "finalizers") or ())
    spec = {**(body.get("spec") or {}), "finalizers": finalizers}
    if not finalizers:
        del spec["finalizers"]
    return {**body, "metadata": {**body["metadata"]}, "spec": spec}


def namespace_types() -> list[ResourceType]:
    """The type of namespaces."""
    phase = column("Status", lambda namespace: dig(namespace, "status", "phase") or "")
    return [
        builtin_type(
            NAMESPACES,
            _SHAPE,
            rules=_NamespaceRules(_SHAPE),
            short_names=("ns",),
            verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
            has_status=True,
            returns_deleted=True,
            columns=columns(phase),
            fields={"status.phase": ("status", "phase"), "name": ("metadata", "name")},
        )
    ]
