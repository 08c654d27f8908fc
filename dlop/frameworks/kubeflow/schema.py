"""The schema of the kinds of kubeflow.org/v1.

The CEL rules reject what the validating webhook of Kubeflow's operator rejects, with the same field paths, but without a webhook. One
thing is accepted that the webhook rejects: a role that must have exactly one replica may leave out `replicas`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, create_model

from dlop import (
    ApiModel,
    CleanPodPolicy,
    ContainerModel,
    JsonObject,
    PodSpecModel,
    PodTemplate,
    ReplicaModel,
    ReplicaType,
    RunPolicyModel,
    Schema,
    rule,
    with_default,
    with_rules,
)
from dlop.frameworks.kubeflow.legacy_values import normalize_legacy_values

if TYPE_CHECKING:
    from dlop import DLJob

Model = TypeVar("Model", bound=BaseModel)

_TRAINING_OPERATOR = "kubeflow.org/training-operator"
"""Value of `runPolicy.managedBy` for Kubeflow's operator. dlop replaces it and accepts the value as its own name."""

_HAS_MANAGER = "has({0}.runPolicy) && has({0}.runPolicy.managedBy)"
_NEW, _OLD = _HAS_MANAGER.format("self"), _HAS_MANAGER.format("oldSelf")
_MANAGER_RULE = rule(
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
    """Specification of the job."""

    run_policy: KubeflowRunPolicy | None = None
    """Run policy of the job."""


def spec_config(*rules: JsonObject) -> ConfigDict:
    """The model configuration for a spec with these CEL rules in addition to the common ones."""
    return ConfigDict(json_schema_extra=with_rules(*rules))


@dataclass(frozen=True, kw_only=True)
class KubeflowSchema(Schema):
    """The spec of a kind of kubeflow.org/v1. `model` has the fields other than the replica specs."""

    model: type[BaseModel] | None = KubeflowSpec
    any_case: bool = False
    """Whether the names of roles are case-insensitive in the CRD."""
    scale: str | None = ""
    name_pattern: str = "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.NONE
    manager_names: tuple[str, ...] = (_TRAINING_OPERATOR, *Schema.manager_names)

    def spec_model(self, kind: type[DLJob]) -> type[BaseModel]:
        return _spec_model(kind, self)

    def normalize_legacy(self, spec: Any) -> Any:
        return normalize_legacy_values(spec, replica_specs=self.field)


@functools.cache
def _spec_model(kind: type[DLJob], schema: KubeflowSchema) -> type[BaseModel]:
    """The model of the kind with a field for the replica specs by role, and with the CEL rules of the roles."""
    # Required roles first.
    names = [role.name for role in sorted(kind.replica_types, key=lambda role: not role.required)]
    model = schema.model or KubeflowSpec
    known = f"role.lowerAscii() in {_cel_list(map(str.lower, names))}" if schema.any_case else f"role in {_cel_list(names)}"
    message = f"must be one of {', '.join(names)}"
    # The message names the first unknown role only. Because keys have no length limit, listing all of them exceeds the CEL cost budget.
    message_with_role = f"'{message}, got ' + self.filter(role, !({known}))[0]"
    replica_specs = Field(
        alias=schema.field,
        min_length=1,
        # The API server needs an upper bound to estimate the cost of the rules.
        max_length=_MAX_ROLES,
        description=f"Replica specs by role: {', '.join(names)}.",
        json_schema_extra=with_rules(rule(f"self.all(role, {known})", message, message_expression=message_with_role)),
    )
    fields: dict[str, Any] = {
        "replica_specs": (Annotated[dict[str, _replica_spec(kind.container_properties.name)], replica_specs], ...)  # type: ignore[misc]
    }
    own: Any = model.model_config.get("json_schema_extra") or with_rules()
    rules = with_rules(_MANAGER_RULE, *_role_rules(kind.replica_types, schema.field), *own["x-kubernetes-validations"])
    return _extend(model, f"{kind.job_type.kind}Spec", {"json_schema_extra": rules}, **fields)


def _role_rules(roles: tuple[ReplicaType, ...], field: str) -> Iterator[JsonObject]:
    """CEL rules for required roles, and for roles that have at most one replica."""
    for role in roles:
        if role.required and len(roles) > 1:
            path = f".{field}.{role.name}"
            yield rule(f"'{role.name}' in self.{field}", "must be present", field_path=path, reason="FieldValueRequired")
        if role.maximum == 1:
            yield replicas_rule(field, role.name, *(("== 1", "must be 1") if role.minimum == 1 else ("<= 1", "must be at most 1")))


def replicas_rule(field: str, role: str, comparison: str, message: str) -> JsonObject:
    """CEL rule for the `replicas` of a role, if the spec has the role and sets them."""
    replica_spec = f"self.{field}['{role}']"
    condition = f"!('{role}' in self.{field}) || !has({replica_spec}.replicas) || {replica_spec}.replicas {comparison}"
    return rule(condition, message, field_path=f".{field}.{role}.replicas", reason="FieldValueForbidden")


def _cel_list(names: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def _replica_spec(container: str) -> type[ReplicaModel]:
    """The model of a replica spec whose pod template must have a container of this name. An empty name accepts any container."""
    if not container:
        return ReplicaModel
    message = f"must have at least one container with name {container}"
    rules = with_rules(rule(f"self.exists(c, c.name == '{container}')", message, reason="FieldValueRequired"))
    containers = Annotated[list[ContainerModel], Field(min_length=1, json_schema_extra=rules)]
    pod = _extend(PodSpecModel, "PodSpec", containers=(containers, ...))
    template = _extend(PodTemplate, "Template", spec=(pod, ...))
    return _extend(ReplicaModel, "ReplicaSpec", template=(template, ...))


def _extend(model: type[Model], name: str, config: Mapping[str, Any] = {}, **fields: Any) -> type[Model]:
    """A subclass of a model with these fields. It has no source file, in which pydantic would search for docstrings of fields."""
    kwargs = {"use_attribute_docstrings": False, **config}
    extended: type[Model] = create_model(name, __base__=model, __doc__=model.__doc__, __cls_kwargs__=kwargs, **fields)
    return extended
