"""Checks what a framework class declares. A mistake fails at import with a message that says what to write, and not later in a job."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from dlop.api.schema import ListSchema, RoleFieldsSchema, Schema
from dlop.api.types import RULES_EXAMPLE, ContainerProperties, DeclarationError, JobType, PermissionSet, ReplicaType, is_rules
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


_METHODS = {
    "get_environment_variables": (2, "(self, replica: Replica) -> Mapping[str, str | FieldRef]: return {...}"),
    "customize_pod": (3, "(self, replica: Replica, pod: JsonObject) -> JsonObject: return {**pod, ...}"),
}
"""The number of arguments of each method, and what to write after its name."""


def check_declaration(kind: type[DLJob]) -> None:
    """Raise DeclarationError unless a framework class declares all required attributes, and policies of the right type."""
    _check_names(kind)
    for attribute, (expected, example) in _ATTRIBUTES.items():
        _check_attribute(kind, attribute, expected, example)
    _check_roles(kind)
    _check_policies(kind)
    _check_children(kind)
    _check_flags(kind)
    for name, (arguments, example) in _METHODS.items():
        _check_method(kind, name, arguments, example)


def _check_names(kind: type[DLJob]) -> None:
    """A policy in another attribute, for example `lifecyle`, would be ignored."""
    for name, value in vars(kind).items():
        attribute = next((attribute for attribute, (expected, _) in _ATTRIBUTES.items() if isinstance(value, expected)), name)
        if name != attribute and not name.startswith("_"):
            raise DeclarationError(
                f"{kind.__name__}.{name} is a {type(value).__name__} and would be ignored: {attribute} = {type(value).__name__}(...)"
            )


def _check_method(kind: type[DLJob], name: str, arguments: int, example: str) -> None:
    method = getattr(kind, name)
    is_abstract = getattr(method, "__isabstractmethod__", False)
    if is_abstract or inspect.iscoroutinefunction(method) or not _accepts(method, arguments):
        raise DeclarationError(f"{kind.__name__} must implement {name}: def {name}{example}")


def _accepts(method: Any, arguments: int) -> bool:
    try:
        inspect.signature(method).bind(*range(arguments))
    except TypeError:  # also if it is not callable
        return False
    return True


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
    if not schema.field and not isinstance(schema, ListSchema | RoleFieldsSchema):
        raise DeclarationError(f'{name}.schema needs the field of the spec that contains the roles: Schema(field="replicaSpecs")')
    if isinstance(schema, ListSchema | RoleFieldsSchema) and schema.model is None:
        title = type(schema).__name__
        raise DeclarationError(f"{name}.schema is a {title} and needs the model of the spec: {title}(model=MySpec, ...)")
    leaders = kind.lifecycle.roles if isinstance(kind.lifecycle, LeaderRole) else roles
    if not leaders or not roles.issuperset(leaders):
        raise DeclarationError(f"{name}.lifecycle must name roles of the kind: LeaderRole({kind.replica_types[0].name!r})")


def _check_start_order(name: str, roles: tuple[ReplicaType, ...]) -> None:
    upstream = {role.name: {after.role for after in role.upstream} for role in roles}
    for role, others in upstream.items():
        if role in others:
            raise DeclarationError(f"{name}: ReplicaType {role!r} waits for itself; remove it from start_after.")
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
    lifetimes: dict[Resource, tuple[bool, bool]] = {}
    for child in children:
        name, resources = type(child).__name__, getattr(child, "resources", None)
        if not isinstance(resources, tuple) or not all(isinstance(resource, Resource) for resource in resources):
            raise DeclarationError(f"{name} must list the resources of its objects: resources = (CONFIG_MAPS,)")
        if not is_rules(child.rules):
            raise DeclarationError(f"{name}.rules must be a tuple of RBAC rules: rules = {RULES_EXAMPLE}")
        if child.permission_set is not None and not isinstance(child.permission_set, PermissionSet):
            raise DeclarationError(f'{name}.permission_set must be a PermissionSet: permission_set = PermissionSet("mpi", (...))')
        if PODS in resources or SERVICES in resources:
            raise DeclarationError(f"{name}.resources must not contain pods or services, which the operator watches anyway.")
        lifetime = (child.is_ephemeral, child.on_demand)
        if any(lifetimes.setdefault(resource, lifetime) != lifetime for resource in resources):
            raise DeclarationError(
                f"{name}.is_ephemeral and on_demand must be the same for all children of {kind.__name__} with the same resource."
            )


def _check_flags(kind: type[DLJob]) -> None:
    flags = kind.flags
    if flags is None:
        return
    from pydantic import ValidationError  # noqa: PLC0415 - slow to import, and few frameworks have flags

    from dlop.api.flags import FrameworkFlags  # noqa: PLC0415

    if not inspect.isclass(flags) or not issubclass(flags, FrameworkFlags):
        raise DeclarationError(f"{kind.__name__}.flags must be a subclass of FrameworkFlags: flags = MyFlags")
    incomplete = next((name for name, field in flags.model_fields.items() if field.is_required() or not field.description), None)
    if incomplete is not None:
        raise DeclarationError(
            f"{flags.__name__}.{incomplete} needs a default and a description: {incomplete}: str = Field(default='', description='...')"
        )
    try:
        flags()
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise DeclarationError(f"{flags.__name__} must accept its own defaults: {message}; change a default or the validator.") from None


def _listed(roles: tuple[ReplicaType, ...]) -> str:
    return ", ".join(role.name for role in roles)
