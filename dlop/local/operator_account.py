"""The service account of the local operator. It has the permissions that `dlop deploy` gives, so that a missing rule shows here first."""

from __future__ import annotations

from collections.abc import Iterable

from dlop.deploy import deployment
from dlop.deploy.apply import apply
from dlop.deploy.rbac import GANG, Grant, ServiceAccountRef, all_permission_sets, cluster_rbac, permission_set_rbac
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.resources import SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject

_ACCOUNT = ServiceAccountRef(deployment.DEFAULT_NAMESPACE)


async def create_operator_account(client: Client, kinds: Iterable[type[DLJob]]) -> None:
    """Create the account with the permissions for the kinds, including their optional permission sets."""
    kinds = tuple(kinds)
    # There is no gang scheduler.
    grants = [Grant(permission_set) for permission_set in all_permission_sets(kinds) if permission_set is not GANG]
    objects = [
        deployment.namespace(_ACCOUNT.namespace),
        deployment.service_account(_ACCOUNT),
        *cluster_rbac(kinds, _ACCOUNT),
        *permission_set_rbac(grants, _ACCOUNT),
    ]
    await apply(client, objects, report=lambda _: None)


async def request_operator_token(client: Client) -> str:
    """A token of the account, which expires after an hour."""
    body: JsonObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await client.create(SERVICE_ACCOUNTS, body, namespace=_ACCOUNT.namespace, name=_ACCOUNT.name, subresource="token")
    return str(response["status"]["token"])
