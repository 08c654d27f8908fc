"""Optional permissions of the operator. Each permission set has a name and a role of its own.

mpi     objects of MPI launchers, and pods/exec: RBAC lets the operator grant only permissions that it has itself
gang    PodGroups, and read access to priority classes
"""

from __future__ import annotations

from collections.abc import Iterable

from dlop.api.constants import GANG_PERMISSIONS
from dlop.api.types import PermissionSet
from dlop.job import DLJob
from dlop.kube.types import JsonObject

_POD_GROUPS: JsonObject = {
    "apiGroups": ["scheduling.volcano.sh", "scheduling.x-k8s.io"],
    "resources": ["podgroups"],
    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
}
_PRIORITY_CLASSES: JsonObject = {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get", "list", "watch"]}
GANG = PermissionSet(GANG_PERMISSIONS, (_POD_GROUPS,), cluster_rules=(_PRIORITY_CLASSES,))
"""Required by `--gang-scheduler-name`; independent of the kinds."""


class UnknownPermissionSetError(LookupError):
    """No permission set has this name. The message lists the available ones."""


def all_permission_sets(kinds: Iterable[type[DLJob]]) -> tuple[PermissionSet, ...]:
    """The permission sets of the kinds without duplicates, and those that apply to all kinds."""
    by_name = {kind.optional_permissions.name: kind.optional_permissions for kind in kinds if kind.optional_permissions is not None}
    return (*by_name.values(), GANG)


def find_permission_sets(names: Iterable[str], kinds: Iterable[type[DLJob]]) -> tuple[PermissionSet, ...]:
    """The permission sets with these names, without duplicates.

    Raises:
        UnknownPermissionSetError: a name is unknown.
    """
    available = {permission_set.name: permission_set for permission_set in all_permission_sets(kinds)}
    for name in names:
        if name not in available:
            raise UnknownPermissionSetError(f"unknown permission set {name!r}; available: {', '.join(available)}")
    return tuple(available[name] for name in dict.fromkeys(names))
