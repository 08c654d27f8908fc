"""Priority classes: stored and shown."""

from __future__ import annotations

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, column, columns, forbidden, invalid
from dlop.embedded.apiserver.resource_type import Moment, ResourceType
from dlop.kube.resources import PRIORITY_CLASSES
from dlop.kube.types import JsonObject

_SHAPE = "scheduling.v1.PriorityClass"
_HIGHEST = 1_000_000_000


class _PriorityClassRules(BuiltinRules):
    def prepare_create(self, body: JsonObject, *, moment: Moment) -> JsonObject:
        # It is there and never moves, although the type has neither spec nor status.
        body["metadata"]["generation"] = 1
        body.setdefault("preemptionPolicy", "PreemptLowerPriority")
        return body

    def prepare_update(self, body: JsonObject, old: JsonObject, *, moment: Moment) -> JsonObject:
        return self.prepare_create(body, moment=moment)

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        errors = super().validate(body, old, subresource=subresource)
        if old is None and body["value"] > _HIGHEST:
            errors.append(forbidden("value", f"maximum allowed value of a user defined priority is {_HIGHEST}"))
        if old is not None and body["value"] != old["value"]:
            errors.append(forbidden("value", "may not be changed in an update."))
        if old is not None and body["preemptionPolicy"] != old["preemptionPolicy"]:
            errors.append(invalid("preemptionPolicy", body["preemptionPolicy"], "field is immutable"))
        return errors


def priority_types() -> list[ResourceType]:
    """priorityclasses.scheduling.k8s.io."""
    policy = column("PreemptionPolicy", lambda body: body.get("preemptionPolicy", ""))
    shown = columns(
        column("Value", lambda body: body.get("value", 0), type="integer"),
        column("Global-Default", lambda body: bool(body.get("globalDefault")), type="boolean"),
        after_age=(policy,),
    )
    return [builtin_type(PRIORITY_CLASSES, _SHAPE, rules=_PriorityClassRules(_SHAPE), short_names=("pc",), columns=shown)]
