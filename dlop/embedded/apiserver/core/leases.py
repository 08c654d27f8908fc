"""Leases."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, get_nested, invalid
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.resources import LEASES
from dlop.kube.types import JsonObject

_GO_TYPE = "coordination.v1.Lease"


class _LeaseStrategy(BuiltinStrategy):
    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        spec = body.get("spec") or {}
        if spec.get("leaseDurationSeconds", 1) <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
        if spec.get("leaseTransitions", 0) < 0:
            errors.append(invalid("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0"))
        return errors


def lease_types() -> list[ResourceType]:
    """leases.coordination.k8s.io."""
    holder = column("Holder", lambda lease: get_nested(lease, "spec", "holderIdentity") or "")
    return [
        builtin_type(
            LEASES,
            _GO_TYPE,
            strategy=_LeaseStrategy(_GO_TYPE),
            columns=columns(holder),
            creates_on_update=True,
            needs_version_on_update=True,
        )
    ]
