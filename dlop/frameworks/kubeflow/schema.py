"""What the specs of kubeflow.org/v1 have in common, as pydantic models and CEL rules.

The rules refuse what the validating webhook of Kubeflow's operator refused, at the same fields. Nobody needs a webhook for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, create_model

from dlop.api.crd import ScalePaths
from dlop.api.schema import rule, with_default, with_rules
from dlop.api.spec_models import ApiModel, ContainerModel, PodSpecModel, PodTemplate, ReplicaModel, RunPolicyModel
from dlop.kube.types import JsonObject

TRAINING_OPERATOR = "kubeflow.org/training-operator"
"""The name of the one who runs these jobs, in `runPolicy.managedBy`. Whoever stands in for it answers to it."""

_HAS_MANAGER = "has({0}.runPolicy) && has({0}.runPolicy.managedBy)"
_NEW, _OLD = _HAS_MANAGER.format("self"), _HAS_MANAGER.format("oldSelf")
MANAGER_RULE = rule(
    f"({_NEW}) == ({_OLD}) && (!({_NEW}) || self.runPolicy.managedBy == oldSelf.runPolicy.managedBy)",
    "field is immutable",
    field_path=".runPolicy.managedBy",
)

# Far above what any kind has, so that a wrong role meets the rule that names the right ones.
_MOST_ROLES = 8


class KubeflowRunPolicy(RunPolicyModel):
    """How a job is run, apart from what it runs."""

    # The one default that was always written into specs: clients may look there.
    suspend: Annotated[bool, Field(json_schema_extra=with_default(value=False))] = False
    """Whether the job is to have no pods for now."""
    managed_by: Literal["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"] | None = None
    """Who runs the job: this operator, or Kueue in another cluster. It cannot be changed."""


class KubeflowSpec(ApiModel):
    """What every job of kubeflow.org asks for."""

    model_config = ConfigDict(json_schema_extra=with_rules(MANAGER_RULE))

    run_policy: KubeflowRunPolicy | None = None
    """How the job is run, apart from what it runs."""


def rules_of_spec(*rules: JsonObject) -> ConfigDict:
    """The configuration of a model whose spec has rules of its own besides those of all."""
    return ConfigDict(json_schema_extra=with_rules(MANAGER_RULE, *rules))


def with_roles(
    model: type[KubeflowSpec], *, field: str, names: Iterable[str], container: str, any_case: bool = False
) -> type[KubeflowSpec]:
    """The model with replica specs by role, in a field of this name.

    With `any_case`, the case of a role's letters does not matter, as it never did for some kinds.
    """
    names = tuple(names)
    known = f"role.lowerAscii() in {_listed(name.lower() for name in names)}" if any_case else f"role in {_listed(names)}"
    message = f"must be one of {', '.join(names)}"
    # All of them in one message would cost more than the API server allows: nothing bounds the length of a key.
    culprit = f"'{message}, not ' + self.filter(role, !({known}))[0]"
    roles = Field(
        alias=field,
        min_length=1,
        # Without an upper bound, the API server would not know what the rules may cost.
        max_length=_MOST_ROLES,
        description=f"The replicas of each role: {', '.join(names)}.",
        json_schema_extra=with_rules(rule(f"self.all(role, {known})", message, told=culprit)),
    )
    fields: dict[str, Any] = {"replica_specs": (Annotated[dict[str, _replica_spec(container)], roles], ...)}  # type: ignore[misc]
    found: type[KubeflowSpec] = create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
    return found


def _listed(names: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _replica_spec(container: str) -> type[ReplicaModel]:
    """One role of a job, each of whose pods must have the container that takes part; any will do where that has no name."""
    if not container:
        return ReplicaModel
    needed = f"must have at least one container with name {container}"
    rules = with_rules(rule(f"self.exists(c, c.name == '{container}')", needed, reason="FieldValueRequired"))
    containers = Annotated[list[ContainerModel], Field(min_length=1, json_schema_extra=rules)]
    pod = create_model("PodSpec", __base__=PodSpecModel, __doc__=PodSpecModel.__doc__, containers=(containers, ...))
    template = create_model("Template", __base__=PodTemplate, __doc__=PodTemplate.__doc__, spec=(pod, ...))
    return create_model("ReplicaSpec", __base__=ReplicaModel, __doc__=ReplicaModel.__doc__, template=(template, ...))


def exactly_one(field: str, role: str) -> JsonObject:
    """A rule for specs with a role that, where there is one, is a single pod, and says so."""
    found = f"self.{field}['{role}']"
    return _count_rule(f"has({found}.replicas) && {found}.replicas == 1", "must be 1", field=field, role=role)


def at_least_one(field: str, role: str) -> JsonObject:
    """A rule for specs with a role that cannot be without a pod."""
    found = f"self.{field}['{role}']"
    return _count_rule(f"!has({found}.replicas) || {found}.replicas >= 1", "must be at least 1", field=field, role=role)


def at_most_one(field: str, role: str) -> JsonObject:
    """A rule for specs with a role that is a single pod."""
    found = f"self.{field}['{role}']"
    return _count_rule(f"!has({found}.replicas) || {found}.replicas <= 1", "must be at most 1", field=field, role=role)


def _count_rule(holds: str, message: str, *, field: str, role: str) -> JsonObject:
    path = f".{field}.{role}.replicas"
    return rule(f"!('{role}' in self.{field}) || ({holds})", message, field_path=path, reason="FieldValueForbidden")


def scaled_by_workers(field: str) -> ScalePaths:
    """Where `kubectl scale` looks in kinds whose workers can be scaled."""
    counts = ".status.replicaStatuses.Worker"
    return ScalePaths(f".spec.{field}.Worker.replicas", f"{counts}.active", f"{counts}.selector")
