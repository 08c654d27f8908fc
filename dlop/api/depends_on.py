"""The start order that a job sets itself, with `dependsOn` of a role or with an annotation.

It replaces the order of the kind for the roles that it names.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace

from dlop.api.fields import ManifestField
from dlop.api.role_annotations import with_values_by_role
from dlop.api.spec import JobSpec, RoleSpec
from dlop.api.types import ReplicaType, StartAfter, StartCondition


def with_dependencies(role: RoleSpec, field: ManifestField, types: Iterable[ReplicaType]) -> RoleSpec:
    """The role with the start order in this list; the same role if it is absent. `types` are the roles of the kind."""
    if field.is_absent:
        return role
    known = {known.name.lower(): known.name for known in types}
    start_after = [_read_dependency(entry, role.name, known) for entry in field.items()]
    return replace(role, start_after=tuple(after for after in start_after if after is not None), order_path=field.path)


def _read_dependency(field: ManifestField, own: str, known: dict[str, str]) -> StartAfter | None:
    field.object()
    name = field.get("role")
    condition = field.get("condition").choice(StartCondition, StartCondition.RUNNING)
    role = known.get(name.string().lower())
    if role is None:
        names = ", ".join(other for other in known.values() if other != own)
        problem = "is missing; add" if name.is_absent else "must be"
        got = "" if name.is_absent else f"; got {name.value!r:.60}"
        name.error(f"{problem} another role of this kind{f': {names}' if names else ''}{got}")
        return None
    if role == own:
        name.error(f"is the role itself; {own} cannot wait for itself")
        return None
    return StartAfter(role, condition)


def with_start_order(spec: JobSpec, field: ManifestField, types: tuple[ReplicaType, ...]) -> JobSpec:
    """The spec with the start order in an object from roles to lists of dependencies. `dependsOn` of a role takes precedence."""
    return with_values_by_role(
        spec,
        field,
        types,
        with_value=lambda role, entry: with_dependencies(role, entry, types),
        set_at=lambda role: role.order_path,
    )


def check_start_order(spec: JobSpec, manifest: ManifestField, *, member_roles: Container[str]) -> None:
    """Report roles that wait for each other, at a field of one of them. The order of the kind alone has no such roles.

    The order of roles whose pods the master of the job manages (`member_roles`) is a warning.
    """
    own = next((role for role in spec.roles if role.order_path), None)
    if own is None:
        return
    for role in spec.roles:
        if role.order_path and role.start_after and role.name in member_roles:
            field = ManifestField(role.order_path, None, manifest.problems, manifest.warnings)
            field.warning(f"has no effect, because the master of the job decides when pods of {role.name} start; remove it")
    present = {role.name for role in spec.roles}
    upstream = {role.name: {after.role for after in role.start_after} & present for role in spec.roles}
    while unblocked := [name for name in upstream if not upstream[name] & upstream.keys() or not _is_awaited(name, upstream)]:
        for name in unblocked:
            del upstream[name]
    if upstream:
        path = next(role.order_path for role in spec.roles if role.name in upstream and role.order_path)
        ManifestField(path, None, manifest.problems).error(
            f"makes the roles {', '.join(upstream)} wait for each other; remove one dependency"
        )


def _is_awaited(name: str, upstream: dict[str, set[str]]) -> bool:
    return any(name in others for others in upstream.values())
