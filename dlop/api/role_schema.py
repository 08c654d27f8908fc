"""The spec of a kind that does not bring its own: `runPolicy`, and `replicaSpecs` by role.

The rules for the roles stand in the CRD as CEL, where a schema alone cannot say them: which roles there are, which a job
must have, and how many replicas each may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Protocol

from pydantic import Field, create_model

from dlop.api.schema import rule, with_rules
from dlop.api.spec_models import ApiModel, ReplicaModel, RunPolicyModel
from dlop.kube.types import JsonObject

REPLICA_SPECS = "replicaSpecs"

# Far above what any kind has, so that a wrong role meets the rule that names the right ones.
_MOST_ROLES = 16


class Role(Protocol):
    """What has to be known of a role. `dlop.ReplicaType` is one."""

    @property
    def name(self) -> str:
        """As manifests spell it."""
        ...

    @property
    def minimum(self) -> int:
        """How few replicas it may have."""
        ...

    @property
    def maximum(self) -> int | None:
        """How many it may have; None: any number."""
        ...

    @property
    def required(self) -> bool:
        """Whether a job without it makes no sense."""
        ...


class JobSpecModel(ApiModel):
    """The spec of a kind that does not bring its own."""

    run_policy: RunPolicyModel = RunPolicyModel()
    """How the job is run, apart from what it runs."""


def spec_model(kind: str, roles: Iterable[Role], *, field: str = REPLICA_SPECS) -> type[JobSpecModel]:
    """A model for the spec of a kind with these roles. Its replica specs are found under `field`, by the name of the role."""
    roles = tuple(roles)
    # Without an upper bound, the API server would not know what the rules may cost.
    described = Field(
        alias=field,
        min_length=1,
        max_length=_MOST_ROLES,
        description=f"The replicas of each role: {', '.join(role.name for role in roles)}.",
        json_schema_extra=with_rules(*role_rules(roles)),
    )
    fields: dict[str, Any] = {"replica_specs": (Annotated[dict[str, ReplicaModel], described], ...)}
    model: type[JobSpecModel] = create_model(f"{kind}Spec", __base__=JobSpecModel, __doc__=f"What a {kind} asks for.", **fields)
    return model


def role_rules(roles: Iterable[Role]) -> list[JsonObject]:
    """CEL rules for a map from roles to replica specs. The case of a role's letters does not matter."""
    roles = tuple(roles)
    known = ", ".join(_quoted(role) for role in roles)
    found = [rule(f"self.all(role, role.lowerAscii() in [{known}])", f"write one of the roles {', '.join(role.name for role in roles)}")]
    for role in roles:
        found += _rules_of(role)
    return found


def _rules_of(role: Role) -> Iterator[JsonObject]:
    if role.required:
        yield rule(f"self.exists(role, role.lowerAscii() == {_quoted(role)})", f"the role {role.name} is required")
    bounds = [f"self[role].replicas >= {role.minimum}"] if role.minimum > 0 else []
    if role.maximum is not None:
        bounds.append(f"self[role].replicas <= {role.maximum}")
    if bounds:
        holds = f"!has(self[role].replicas) || ({' && '.join(bounds)})"
        yield rule(f"self.all(role, role.lowerAscii() != {_quoted(role)} || {holds})", f"replicas of {role.name} must be {_range(role)}")


def _range(role: Role) -> str:
    if role.maximum is None:
        return f"at least {role.minimum}"
    return f"exactly {role.minimum}" if role.minimum == role.maximum else f"from {role.minimum} to {role.maximum}"


def _quoted(role: Role) -> str:
    """A CEL string. Names of roles are words, so there is nothing to escape: `dlop.api.types` sees to that."""
    return f"'{role.name.lower()}'"
