"""The service account of the master, with the permissions that it needs to manage the pods of its namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlop import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Create, JsonObject, PermissionSet
from dlop.frameworks.dlrover.names import MASTER_APP, NAME_LABEL, master_service
from dlop.frameworks.dlrover.scale_plan import SCALE_PLAN
from dlop.policies import ChildObjects

if TYPE_CHECKING:
    from dlop.frameworks.dlrover.elasticjob import ElasticJob

_VERBS = ["get", "list", "watch", "create", "patch"]
_MASTER_RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": [*_VERBS, "delete"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": _VERBS},
    {"apiGroups": [SCALE_PLAN.group], "resources": ["elasticjobs"], "verbs": ["get", "list", "watch"]},
    # Required for owner references that block the deletion of their owner.
    {"apiGroups": [SCALE_PLAN.group], "resources": ["elasticjobs/finalizers"], "verbs": ["update"]},
    {"apiGroups": [SCALE_PLAN.group], "resources": [SCALE_PLAN.plural], "verbs": ["create"]},
)
_RULES: tuple[JsonObject, ...] = (
    {"apiGroups": [""], "resources": [SERVICE_ACCOUNTS.plural], "verbs": _VERBS},
    {"apiGroups": [ROLES.group], "resources": [ROLES.plural, ROLE_BINDINGS.plural], "verbs": _VERBS},
    # RBAC lets the operator grant only permissions that it has itself.
    {"apiGroups": [SCALE_PLAN.group], "resources": [SCALE_PLAN.plural], "verbs": ["create"]},
)


class MasterAccess(ChildObjects["ElasticJob"]):
    """A service account for each job. A job whose master names an account needs none of these objects."""

    resources = (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)
    permission_set = PermissionSet("elasticjob", _RULES)

    def build(self, job: ElasticJob) -> tuple[Create, ...]:
        if job.has_own_account:
            return ()
        name = master_service(job.metadata.name)
        metadata = {**job.child_metadata(name), "labels": {**MASTER_APP, NAME_LABEL: job.metadata.name}}
        role = {"apiVersion": ROLES.api_version, "kind": "Role", "metadata": metadata, "rules": [dict(rule) for rule in _MASTER_RULES]}
        binding = {
            "apiVersion": ROLE_BINDINGS.api_version,
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": job.metadata.namespace}],
        }
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
        return Create(SERVICE_ACCOUNTS, account, allow_existing=True), Create(ROLES, role), Create(ROLE_BINDINGS, binding)
