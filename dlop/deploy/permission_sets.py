"""Rights that not everybody wants to give to the operator: each set has a name, and a role of its own.

mpi     launchers of MPI jobs run commands in their workers, and nobody can give a right that he does not have (pods/exec)
gang    pods that are placed together: PodGroups, and the priority classes that say which of them count first
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dlop.api.constants import GANG_RIGHTS
from dlop.api.types import PermissionSet
from dlop.kube.types import JsonObject

_POD_GROUPS: JsonObject = {
    "apiGroups": ["scheduling.volcano.sh", "scheduling.x-k8s.io"],
    "resources": ["podgroups"],
    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
}
_PRIORITY_CLASSES: JsonObject = {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get", "list", "watch"]}
GANG = PermissionSet(GANG_RIGHTS, (_POD_GROUPS,), cluster_rules=(_PRIORITY_CLASSES,))
"""For `--gang-scheduler-name`, whatever the kinds are."""


class UnknownRightsError(LookupError):
    """Rights were asked for that there are not. The message names those that there are."""


class KindWithOptionalRights(Protocol):
    """What has to be known of a class of jobs. `dlop.DLJob` is one."""

    @property
    def optional_rights(self) -> PermissionSet | None:
        """Rights that the operator has only where it is given them, if there are any."""
        ...


def all_rights(kinds: Iterable[KindWithOptionalRights]) -> tuple[PermissionSet, ...]:
    """Those of the kinds, each once, and those that are for all kinds."""
    found = {kind.optional_rights.name: kind.optional_rights for kind in kinds if kind.optional_rights is not None}
    return (*found.values(), GANG)


def rights_named(names: Iterable[str], kinds: Iterable[KindWithOptionalRights]) -> tuple[PermissionSet, ...]:
    """Those of these names.

    Raises:
        UnknownRightsError: one of them is not there.
    """
    known = {rights.name: rights for rights in all_rights(kinds)}
    for name in names:
        if name not in known:
            raise UnknownRightsError(f"there are no rights of the name {name!r}; these there are: {', '.join(known)}")
    return tuple(known[name] for name in dict.fromkeys(names))
