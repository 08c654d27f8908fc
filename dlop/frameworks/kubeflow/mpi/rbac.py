"""What an MPI job has besides pods: scripts in a config map, and an account whose rights end at the job's own workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dlop import Create, PermissionSet
from dlop.kube.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

RESOURCES = (SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)
_VERBS = ["get", "list", "watch", "create", "patch"]
_RBAC = ROLES.group
_RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": [SERVICE_ACCOUNTS.plural, CONFIG_MAPS.plural], "verbs": _VERBS},
    {"apiGroups": [_RBAC], "resources": [ROLES.plural, ROLE_BINDINGS.plural], "verbs": _VERBS},
    # Nobody can give rights that he does not have himself.
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
)
RIGHTS = PermissionSet("mpi", _RULES)
"""What the operator itself needs, and not everybody wants to give it."""


@dataclass(frozen=True, slots=True)
class Belongings:
    """All that one job has besides pods, by name."""

    launcher: str
    """The name of the launcher and of its rights."""
    config_map: str
    account: str
    """The account that the launcher runs as. One of the user's may have whatever rights it needs besides."""
    owned: Callable[[str], JsonObject]
    """Makes the metadata of an object of this name."""

    def all(self, scripts: Mapping[str, str], *, workers: Iterable[str]) -> tuple[Create, ...]:
        """Everything, in the order in which it is made."""
        return (_account(self.owned(self.account)), *self.changing(scripts, workers=workers))

    def changing(self, scripts: Mapping[str, str], *, workers: Iterable[str]) -> tuple[Create, ...]:
        """What follows the workers and the choice of the account."""
        files, rights = _files(self.owned(self.config_map), scripts), _rights(self.owned(self.launcher), pods=workers)
        return files, rights, _binding(self.owned(self.launcher), role=self.launcher, account=self.account)


def _account(metadata: JsonObject) -> Create:
    """The launcher's account, unless there is one of this name: whose it is does not matter."""
    return Create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, is_shareable=True)


def _files(metadata: JsonObject, contents: Mapping[str, str]) -> Create:
    """Files by name."""
    return Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(contents)})


def _rights(metadata: JsonObject, *, pods: Iterable[str]) -> Create:
    """To look at all pods, and to run commands in these."""
    look = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    run = {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": list(pods), "verbs": ["create"]}
    # Without names, the rule would be for every pod.
    rules = [look, run] if run["resourceNames"] else [look]
    return Create(ROLES, {"apiVersion": ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": rules})


def _binding(metadata: JsonObject, *, role: str, account: str) -> Create:
    """What gives the rights to the account."""
    body = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": metadata["namespace"]}],
    }
    return Create(ROLE_BINDINGS, body)
