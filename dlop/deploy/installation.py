"""All objects of a running operator, in the order in which they must be created."""

from __future__ import annotations

from collections.abc import Sequence

from dlop.deploy import deployment, rbac
from dlop.deploy.deployment import DeployOptions
from dlop.deploy.rbac import find_grants
from dlop.job import DLJob
from dlop.kube.types import JsonObject


def operator_objects(kinds: Sequence[type[DLJob]], options: DeployOptions) -> list[JsonObject]:
    """The operator and its RBAC objects, without its namespace and without CRDs.

    Raises:
        UnknownPermissionSetError: `options` names a permission set that does not exist.
    """
    if options.watched_namespaces:
        roles = rbac.namespaced_rbac(kinds, options.account, options.watched_namespaces)
    else:
        roles = [*rbac.cluster_rbac(kinds, options.account), *rbac.user_facing_roles(kinds)]
    grants = find_grants(options.permission_sets, kinds)
    roles += rbac.permission_set_rbac(grants, options.account, options.watched_namespaces)
    services = [deployment.metrics_service(options)] if options.metrics_from else []
    return [
        deployment.service_account(options.account),
        *roles,
        deployment.network_policy(options),
        *services,
        deployment.pod_disruption_budget(options),
        deployment.deployment(options),
    ]
