"""What an MPI job has besides pods: scripts in a config map, and an account whose rights end at the job's own workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dlop import Creation
from dlop.kube.errors import JsonObject
from dlop.kube.resources import CONFIG_MAPS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS

RESOURCES = (SERVICE_ACCOUNTS, CONFIG_MAPS, ROLES, ROLE_BINDINGS)
_VERBS = ["get", "list", "watch", "create", "patch"]
_RBAC = ROLES.group
RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": [SERVICE_ACCOUNTS.plural, CONFIG_MAPS.plural], "verbs": _VERBS},
    {"apiGroups": [_RBAC], "resources": [ROLES.plural, ROLE_BINDINGS.plural], "verbs": _VERBS},
    # Nobody can give rights that he does not have himself.
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
)
"""What the operator itself needs."""


def account(metadata: JsonObject) -> Creation:
    """The launcher's account."""
    return Creation(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})


def files(metadata: JsonObject, contents: Mapping[str, str]) -> Creation:
    """Files by name."""
    return Creation(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(contents)})


def rights(metadata: JsonObject, *, pods: Iterable[str]) -> Creation:
    """To look at all pods, and to run commands in these."""
    look = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    run = {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": list(pods), "verbs": ["create"]}
    # Without names, the rule would be for every pod.
    rules = [look, run] if run["resourceNames"] else [look]
    return Creation(ROLES, {"apiVersion": ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": rules})


def binding(metadata: JsonObject, *, role: str, account: str) -> Creation:
    """What gives the rights to the account."""
    body = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": metadata["namespace"]}],
    }
    return Creation(ROLE_BINDINGS, body)
