"""Validation of pod updates. Only a few fields of a pod can be changed."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import forbidden, invalid
from dlop.kube.types import JsonObject

_FORBIDDEN_UPDATE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def pod_update_errors(spec: JsonObject, old: JsonObject) -> list[FieldError]:
    for field in ("containers", "initContainers"):
        if len(spec.get(field) or ()) != len(old.get(field) or ()):
            return [
                forbidden(
                    f"spec.{field}", f"pod updates may not add or remove {'containers' if field == 'containers' else 'init containers'}"
                )
            ]
    errors = _deadline_errors(spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds"))
    errors += _toleration_errors(spec.get("tolerations") or [], old.get("tolerations") or [])
    if not errors and _immutable_fields(spec, old) != _immutable_fields(old, old):
        errors.append(forbidden("spec", _FORBIDDEN_UPDATE))
    return errors


def _deadline_errors(deadline: int | None, old: int | None) -> list[FieldError]:
    path = "spec.activeDeadlineSeconds"
    if old is None or deadline == old:
        return []
    if deadline is None:
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    return [invalid(path, deadline, "must be less than or equal to previous value")] if deadline > old else []


def _toleration_errors(tolerations: list[JsonObject], old: list[JsonObject]) -> list[FieldError]:
    # Only tolerationSeconds of a toleration may change.
    kept = [_without_seconds(toleration) for toleration in tolerations]
    if all(_without_seconds(toleration) in kept for toleration in old):
        return []
    return [forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")]


def _without_seconds(toleration: JsonObject) -> JsonObject:
    return {field: value for field, value in toleration.items() if field != "tolerationSeconds"}


def _immutable_fields(spec: JsonObject, old: JsonObject) -> JsonObject:
    """The spec with mutable fields removed or set to their old values."""
    fixed = {field: value for field, value in spec.items() if field not in ("activeDeadlineSeconds", "tolerations")}
    for field in ("containers", "initContainers"):
        if fixed.get(field):
            fixed[field] = [
                {**container, "image": before.get("image", "")} for container, before in zip(fixed[field], old[field], strict=True)
            ]
    gates = old.get("schedulingGates") or []
    if all(gate in gates for gate in fixed.get("schedulingGates") or ()):
        # Gates may be removed. While the pod is gated, its node selector and affinity may change.
        fixed.pop("schedulingGates", None)
        if gates:
            fixed.pop("nodeSelector", None)
            fixed.pop("affinity", None)
    return fixed


def pod_status_errors(status: JsonObject, old: JsonObject) -> list[FieldError]:
    if status.get("qosClass") != old.get("qosClass"):
        return [invalid("status.qosClass", status.get("qosClass", ""), "field is immutable")]
    return []
