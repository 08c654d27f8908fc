"""Annotations with one value for each role, for kinds whose roles do not have the field."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from dlop.api.fields import ManifestField
from dlop.api.spec import JobSpec, RoleSpec
from dlop.api.types import ReplicaType


def with_values_by_role(
    spec: JobSpec,
    field: ManifestField,
    types: Iterable[ReplicaType],
    *,
    with_value: Callable[[RoleSpec, ManifestField], RoleSpec],
    set_at: Callable[[RoleSpec], str],
) -> JobSpec:
    """The spec with what an object from roles to values adds to its roles. `types` are the roles of the kind.

    `with_value` returns a role with one of the values. `set_at` returns the path of the field of a role that has the same meaning and
    takes precedence; empty if the role does not have it.
    """
    known = {known.name.lower(): known.name for known in types}
    field.object()
    roles = {role.name: role for role in spec.roles}
    for key, entry in field.entries():
        name = known.get(key.lower())
        if name is None:
            entry.error(f"is not a role of this kind; must be one of {', '.join(known.values())}")
        elif name in roles and (path := set_at(roles[name])):
            entry.warning(f"has no effect, because {path} takes precedence")
        else:
            # The value of a role that the job does not have is only checked.
            role = with_value(roles.get(name, RoleSpec(name=name, replicas=0)), entry)
            roles |= {name: role} if name in roles else {}
    return replace(spec, roles=tuple(roles.values()))
