"""The spec model of kinds that do not define one: `runPolicy`, and `replicaSpecs` by role.

Rules that a schema cannot express are CEL rules in the CRD: the allowed roles, the required roles and the replicas of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from pydantic import Field, create_model

from dlop.api.spec_models import ApiModel, ReplicaModel, RunPolicyModel
from dlop.api.structural_schema import rule, with_rules
from dlop.api.types import ReplicaType
from dlop.kube.types import JsonObject

REPLICA_SPECS = "replicaSpecs"

# Far above the number of roles of any kind, so that an unknown role is reported by the rule that lists the valid ones.
_MAX_ROLES = 16


class JobSpecModel(ApiModel):
    """The spec of a kind that does not define its own model."""

    run_policy: RunPolicyModel = RunPolicyModel()
    """How the job is run."""


def build_spec_model(kind: str, roles: Iterable[ReplicaType], *, field: str = REPLICA_SPECS) -> type[JobSpecModel]:
    """A model for the spec of a kind with these roles. `field` is the JSON name of the map from roles to replica specs."""
    roles = tuple(roles)
    # The API server needs an upper bound to estimate the cost of the rules.
    replica_specs = Field(
        alias=field,
        min_length=1,
        max_length=_MAX_ROLES,
        description=f"The replicas of each role: {', '.join(role.name for role in roles)}.",
        json_schema_extra=with_rules(*role_rules(roles)),
    )
    fields: dict[str, Any] = {"replica_specs": (Annotated[dict[str, ReplicaModel], replica_specs], ...)}
    model: type[JobSpecModel] = create_model(f"{kind}Spec", __base__=JobSpecModel, __doc__=f"The spec of a {kind}.", **fields)
    return model


def role_rules(roles: Iterable[ReplicaType]) -> list[JsonObject]:
    """CEL rules for a map from roles to replica specs. Role names are case-insensitive."""
    roles = tuple(roles)
    known = ", ".join(_quoted(role) for role in roles)
    rules = [rule(f"self.all(role, role.lowerAscii() in [{known}])", f"write one of the roles {', '.join(role.name for role in roles)}")]
    for role in roles:
        rules += _rules_of(role)
    return rules


def _rules_of(role: ReplicaType) -> Iterator[JsonObject]:
    if role.required:
        yield rule(f"self.exists(role, role.lowerAscii() == {_quoted(role)})", f"the role {role.name} is required")
    bounds = [f"self[role].replicas >= {role.minimum}"] if role.minimum > 0 else []
    if role.maximum is not None:
        bounds.append(f"self[role].replicas <= {role.maximum}")
    if bounds:
        condition = f"!has(self[role].replicas) || ({' && '.join(bounds)})"
        yield rule(
            f"self.all(role, role.lowerAscii() != {_quoted(role)} || {condition})", f"replicas of {role.name} must be {_range(role)}"
        )


def _range(role: ReplicaType) -> str:
    if role.maximum is None:
        return f"at least {role.minimum}"
    return f"exactly {role.minimum}" if role.minimum == role.maximum else f"from {role.minimum} to {role.maximum}"


def _quoted(role: ReplicaType) -> str:
    """A CEL string. Nothing needs escaping, because `ReplicaType` allows only letters and digits."""
    return f"'{role.name.lower()}'"
