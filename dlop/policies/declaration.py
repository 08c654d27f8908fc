"""Checks what a framework class declares. A mistake fails at import with a message that says what to write, and not later in a job."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dlop.api.schema import ListSchema, Schema
from dlop.api.types import ContainerProperties, DeclarationError, JobType, ReplicaType
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.policies.children import ChildObjects
from dlop.policies.lifecycle import LeaderRole, Lifecycle
from dlop.policies.naming import Naming
from dlop.policies.status import Status

if TYPE_CHECKING:
    from dlop.job import DLJob

_ATTRIBUTES: dict[str, tuple[type[Any], str]] = {
    "job_type": (JobType, 'JobType(group="example.org", version="v1", kind="RingJob")'),
    "container_properties": (ContainerProperties, 'ContainerProperties(name="main", port=7000)'),
    "schema": (Schema, 'Schema(field="replicaSpecs")'),
    "naming": (Naming, "Naming()"),
    "lifecycle": (Lifecycle, "Lifecycle()"),
    "status": (Status, "Status()"),
}
"""The type of each attribute, and an example."""


def check_declaration(kind: type[DLJob]) -> None:
    """Raise DeclarationError unless a framework class declares all required attributes, and policies of the right type."""
    for attribute, (expected, example) in _ATTRIBUTES.items():
        _check_attribute(kind, attribute, expected, example)
    _check_roles(kind)
    _check_policies(kind)
    _check_children(kind)
    _check_flags(kind)
    if getattr(kind.get_environment_variables, "__isabstractmethod__", False):
        raise DeclarationError(
            f"{kind.__name__} must implement get_environment_variables: "
            "def get_environment_variables(self, replica: Replica) -> Mapping[str, str | FieldRef]: return {...}"
        )


def _check_attribute(kind: type[DLJob], attribute: str, expected: type[Any], example: str) -> None:
    value = getattr(kind, attribute, None)
    if isinstance(value, expected):
        return
    if inspect.isclass(value) and issubclass(value, expected):
        raise DeclarationError(f"{kind.__name__}.{attribute} must be an instance, not a class: {attribute} = {value.__name__}()")
    raise DeclarationError(f"{kind.__name__} must have a class attribute of type {expected.__name__}: {attribute} = {example}")


def _check_roles(kind: type[DLJob]) -> None:
    name, roles = kind.__name__, getattr(kind, "replica_types", None)
    if not isinstance(roles, tuple) or not roles or not all(isinstance(role, ReplicaType) for role in roles):
        raise DeclarationError(f'{name} must declare its roles: replica_types = (ReplicaType("Worker"),)')
    names = [role.name.lower() for role in roles]
    duplicate = next((role.name for role in roles if names.count(role.name.lower()) > 1), None)
    if duplicate is not None:
        raise DeclarationError(f"{name}.replica_types must not contain {duplicate!r} twice.")
    _check_start_order(name, roles)


def _check_policies(kind: type[DLJob]) -> None:
    name, roles, schema = kind.__name__, {role.name for role in kind.replica_types}, kind.schema
    if schema.scale and schema.scale not in roles:
        raise DeclarationError(f"{name}.schema has scale={schema.scale!r}, which is not a role; use one of {_listed(kind.replica_types)}.")
    if isinstance(schema, ListSchema) and schema.model is None and not schema.accepts_any_spec:
        raise DeclarationError(f"{name}.schema is a ListSchema and needs the model of the spec: ListSchema(model=MySpec, ...)")
    leaders = kind.lifecycle.roles if isinstance(kind.lifecycle, LeaderRole) else roles
    if not leaders or not roles.issuperset(leaders):
        raise DeclarationError(f"{name}.lifecycle must name roles of the kind: LeaderRole({kind.replica_types[0].name!r})")


def _check_start_order(name: str, roles: tuple[ReplicaType, ...]) -> None:
    upstream = {role.name: {after.role for after in role.upstream} for role in roles}
    for role, others in upstream.items():
        unknown = sorted(others - upstream.keys())
        if unknown:
            raise DeclarationError(
                f"{name}: ReplicaType {role!r} has start_after={unknown[0]!r}, which is not a role; use one of {_listed(roles)}."
            )
    started: set[str] = set()
    while waiting := upstream.keys() - started:
        startable = {role for role in waiting if upstream[role] <= started}
        if not startable:
            raise DeclarationError(f"{name}: the roles {', '.join(sorted(waiting))} wait for each other; remove one start_after.")
        started |= startable


def _check_children(kind: type[DLJob]) -> None:
    children = kind.children
    if not isinstance(children, tuple) or not all(isinstance(child, ChildObjects) for child in children):
        raise DeclarationError(f"{kind.__name__}.children must be a tuple of ChildObjects: children = (MyObjects(),)")
    lifetimes: dict[Resource, bool] = {}
    for child in children:
        name, resources = type(child).__name__, getattr(child, "resources", None)
        if not isinstance(resources, tuple):
            raise DeclarationError(f"{name} must list the resources of its objects: resources = (CONFIG_MAPS,)")
        if PODS in resources or SERVICES in resources:
            raise DeclarationError(f"{name}.resources must not contain pods or services, which the operator watches anyway.")
        if any(lifetimes.setdefault(resource, child.is_ephemeral) != child.is_ephemeral for resource in resources):
            raise DeclarationError(f"{name}.is_ephemeral must be the same for all children of {kind.__name__} with the same resource.")


def _check_flags(kind: type[DLJob]) -> None:
    flags = kind.flags
    if flags is None:
        return
    from dlop.api.flags import FrameworkFlags  # noqa: PLC0415 - needs pydantic

    if not inspect.isclass(flags) or not issubclass(flags, FrameworkFlags):
        raise DeclarationError(f"{kind.__name__}.flags must be a subclass of FrameworkFlags: flags = MyFlags")
    incomplete = next((name for name, field in flags.model_fields.items() if field.is_required() or not field.description), None)
    if incomplete is not None:
        raise DeclarationError(
            f"{flags.__name__}.{incomplete} needs a default and a description: {incomplete}: str = Field(default='', description='...')"
        )


def _listed(roles: tuple[ReplicaType, ...]) -> str:
    return ", ".join(role.name for role in roles)
