"""Priority classes."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, columns, forbidden, invalid
from dlop.embedded.apiserver.resource_type import ResourceType, Timestamp
from dlop.kube.resources import PRIORITY_CLASSES
from dlop.kube.types import JsonObject

_GO_TYPE = "scheduling.v1.PriorityClass"
_MAX_USER_PRIORITY = 1_000_000_000


class _PriorityClassStrategy(BuiltinStrategy):
    def prepare_create(self, body: JsonObject, *, now: Timestamp) -> JsonObject:
        # The generation is always 1, although the type has neither spec nor status.
        body["metadata"]["generation"] = 1
        body.setdefault("preemptionPolicy", "PreemptLowerPriority")
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, now: Timestamp) -> JsonObject:
        return self.prepare_create(body, now=now)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if old is None and body["value"] > _MAX_USER_PRIORITY:
            errors.append(forbidden("value", f"maximum allowed value of a user defined priority is {_MAX_USER_PRIORITY}"))
        if old is not None and body["value"] != old["value"]:
            errors.append(forbidden("value", "may not be changed in an update."))
        if old is not None and body["preemptionPolicy"] != old["preemptionPolicy"]:
            errors.append(invalid("preemptionPolicy", body["preemptionPolicy"], "field is immutable"))
        return errors


def priority_types() -> list[ResourceType]:
    """priorityclasses.scheduling.k8s.io."""
    policy = column("PreemptionPolicy", lambda body: body.get("preemptionPolicy", ""))
    table_columns = columns(
        column("Value", lambda body: body.get("value", 0), type="integer"),
        column("Global-Default", lambda body: bool(body.get("globalDefault")), type="boolean"),
        after_age=(policy,),
    )
    return [builtin_type(PRIORITY_CLASSES, _GO_TYPE, strategy=_PriorityClassStrategy(_GO_TYPE), short_names=("pc",), columns=table_columns)]
