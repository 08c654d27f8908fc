"""Child objects of an MPI job: a config map with scripts, and a service account that can run commands in the workers."""

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
    # RBAC lets the operator grant only permissions that it has itself.
    {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
)
PERMISSIONS = PermissionSet("mpi", _RULES)
"""Optional permissions of the operator to create these objects."""


@dataclass(frozen=True, slots=True)
class LauncherObjects:
    """Builds these objects for one job."""

    launcher: str
    """Name of the launcher's pod, role and role binding."""
    config_map: str
    account: str
    """Name of the launcher's service account, which may be the user's."""
    make_metadata: Callable[[str], JsonObject]
    """Builds the metadata of an object from its name."""

    def build_all(self, scripts: Mapping[str, str], *, workers: Iterable[str]) -> tuple[Create, ...]:
        """All objects in the order of creation."""
        return (_service_account(self.make_metadata(self.account)), *self.build_updated(scripts, workers=workers))

    def build_updated(self, scripts: Mapping[str, str], *, workers: Iterable[str]) -> tuple[Create, ...]:
        """The objects that change with the workers or with the service account."""
        config_map = _config_map(self.make_metadata(self.config_map), scripts)
        role = _role(self.make_metadata(self.launcher), pods=workers)
        return config_map, role, _binding(self.make_metadata(self.launcher), role=self.launcher, account=self.account)


def _service_account(metadata: JsonObject) -> Create:
    """The launcher's service account. An existing one of this name is used regardless of its owner."""
    return Create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}, allow_existing=True)


def _config_map(metadata: JsonObject, contents: Mapping[str, str]) -> Create:
    return Create(CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(contents)})


def _role(metadata: JsonObject, *, pods: Iterable[str]) -> Create:
    """A role to read all pods and to run commands in these."""
    read_rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    exec_rule = {"apiGroups": [""], "resources": ["pods/exec"], "resourceNames": list(pods), "verbs": ["create"]}
    # A rule with an empty resourceNames list would apply to all pods.
    rules = [read_rule, exec_rule] if exec_rule["resourceNames"] else [read_rule]
    return Create(ROLES, {"apiVersion": ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": rules})


def _binding(metadata: JsonObject, *, role: str, account: str) -> Create:
    body = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": metadata["namespace"]}],
    }
    return Create(ROLE_BINDINGS, body)
