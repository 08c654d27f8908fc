"""Pydantic models and CEL rules that the specs of kubeflow.org/v1 share.

The rules reject what the validating webhook of Kubeflow's operator rejects, with the same field paths, but without a webhook.
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
"""Value of `runPolicy.managedBy` for Kubeflow's operator. dlop replaces it and accepts the value as its own name."""

_HAS_MANAGER = "has({0}.runPolicy) && has({0}.runPolicy.managedBy)"
_NEW, _OLD = _HAS_MANAGER.format("self"), _HAS_MANAGER.format("oldSelf")
MANAGER_RULE = rule(
    f"({_NEW}) == ({_OLD}) && (!({_NEW}) || self.runPolicy.managedBy == oldSelf.runPolicy.managedBy)",
    "field is immutable",
    field_path=".runPolicy.managedBy",
)

# Higher than the number of roles of any kind, so that an unknown role violates the rule that lists the known ones.
_MAX_ROLES = 8


class KubeflowRunPolicy(RunPolicyModel):
    """Run policy of a job."""

    # The only default that Kubeflow's CRDs write into the spec; clients may rely on it.
    suspend: Annotated[bool, Field(json_schema_extra=with_default(value=False))] = False
    """Suspends the job. A suspended job has no pods. Defaults to false."""
    managed_by: Literal["kubeflow.org/training-operator", "kueue.x-k8s.io/multikueue"] | None = None
    """Controller that runs the job: the operator, or MultiKueue in another cluster. Immutable."""


class KubeflowSpec(ApiModel):
    """Fields of the spec that all kinds of kubeflow.org share."""

    model_config = ConfigDict(json_schema_extra=with_rules(MANAGER_RULE))

    run_policy: KubeflowRunPolicy | None = None
    """Run policy of the job."""


def spec_config(*rules: JsonObject) -> ConfigDict:
    """The model configuration for a spec with these CEL rules in addition to the common ones."""
    return ConfigDict(json_schema_extra=with_rules(MANAGER_RULE, *rules))


def with_replica_specs(
    model: type[KubeflowSpec], *, field: str, names: Iterable[str], container: str, any_case: bool = False
) -> type[KubeflowSpec]:
    """A subclass of the model with a field for the replica specs by role. With `any_case`, role names are case-insensitive."""
    names = tuple(names)
    known = f"role.lowerAscii() in {_cel_list(name.lower() for name in names)}" if any_case else f"role in {_cel_list(names)}"
    message = f"must be one of {', '.join(names)}"
    # The message names the first unknown role only. Because keys have no length limit, listing all of them exceeds the CEL cost budget.
    message_with_role = f"'{message}, got ' + self.filter(role, !({known}))[0]"
    roles = Field(
        alias=field,
        min_length=1,
        # The API server needs an upper bound to estimate the cost of the rules.
        max_length=_MAX_ROLES,
        description=f"Replica specs by role: {', '.join(names)}.",
        json_schema_extra=with_rules(rule(f"self.all(role, {known})", message, message_expression=message_with_role)),
    )
    fields: dict[str, Any] = {"replica_specs": (Annotated[dict[str, _replica_spec(container)], roles], ...)}  # type: ignore[misc]
    extended: type[KubeflowSpec] = create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
    return extended


def _cel_list(names: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _replica_spec(container: str) -> type[ReplicaModel]:
    """The model of a replica spec whose pod template must have a container of this name. An empty name accepts any container."""
    if not container:
        return ReplicaModel
    message = f"must have at least one container with name {container}"
    rules = with_rules(rule(f"self.exists(c, c.name == '{container}')", message, reason="FieldValueRequired"))
    containers = Annotated[list[ContainerModel], Field(min_length=1, json_schema_extra=rules)]
    pod = create_model("PodSpec", __base__=PodSpecModel, __doc__=PodSpecModel.__doc__, containers=(containers, ...))
    template = create_model("Template", __base__=PodTemplate, __doc__=PodTemplate.__doc__, spec=(pod, ...))
    return create_model("ReplicaSpec", __base__=ReplicaModel, __doc__=ReplicaModel.__doc__, template=(template, ...))


def exactly_one(field: str, role: str) -> JsonObject:
    """CEL rule: if the role is present, its `replicas` must be set to 1."""
    replica_spec = f"self.{field}['{role}']"
    return _count_rule(f"has({replica_spec}.replicas) && {replica_spec}.replicas == 1", "must be 1", field=field, role=role)


def at_least_one(field: str, role: str) -> JsonObject:
    """CEL rule: if the role is present, its `replicas` must not be 0."""
    replica_spec = f"self.{field}['{role}']"
    return _count_rule(f"!has({replica_spec}.replicas) || {replica_spec}.replicas >= 1", "must be at least 1", field=field, role=role)


def at_most_one(field: str, role: str) -> JsonObject:
    """CEL rule: if the role is present, its `replicas` must not exceed 1."""
    replica_spec = f"self.{field}['{role}']"
    return _count_rule(f"!has({replica_spec}.replicas) || {replica_spec}.replicas <= 1", "must be at most 1", field=field, role=role)


def _count_rule(condition: str, message: str, *, field: str, role: str) -> JsonObject:
    path = f".{field}.{role}.replicas"
    return rule(f"!('{role}' in self.{field}) || ({condition})", message, field_path=path, reason="FieldValueForbidden")


def worker_scale_paths(field: str) -> ScalePaths:
    """Paths of the scale subresource for the Worker role."""
    counts = ".status.replicaStatuses.Worker"
    return ScalePaths(f".spec.{field}.Worker.replicas", f"{counts}.active", f"{counts}.selector")
