"""An operator that is deployed with its generated manifests, and requests with the permissions of its service account."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import cluster_credentials
from real_cluster import RealCluster

from dlop import DLJob
from dlop.api.crd import build_crds
from dlop.deploy import deployment
from dlop.deploy.apply import apply, delete_objects, ensure_namespace
from dlop.deploy.deployment import DeployOptions
from dlop.deploy.installation import operator_objects
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import SERVICE_ACCOUNTS
from dlop.kube.types import JsonObject
from tests.kinds_for_crds import KINDS

Permission = tuple[str, str, str]
"""API group, resource with an optional subresource, verb."""


@dataclass(frozen=True)
class DeployedOperator:
    admin: Client
    operator: Client
    """Authenticates as the service account of the operator."""
    options: DeployOptions

    async def allows(self, group: str, resource: str, verb: str, *, namespace: str, name: str = "") -> bool:
        """Whether the service account has a permission, according to a SelfSubjectAccessReview."""
        resource, _, subresource = resource.partition("/")
        attributes = {"group": group, "resource": resource, "subresource": subresource, "verb": verb, "namespace": namespace, "name": name}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
        response = await self.operator.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body=body)
        return b'"allowed":true' in response.body

    async def unexpected(self, permissions: list[Permission], *, expected: bool, namespace: str) -> list[Permission]:
        """The permissions that are not granted, or not denied, as expected."""
        return [permission for permission in permissions if await self.allows(*permission, namespace=namespace) is not expected]


@asynccontextmanager
async def deploy_operator(
    cluster: RealCluster,
    folder: Path,
    *,
    one_namespace: bool,
    kinds: tuple[type[DLJob], ...] = KINDS,
    permission_sets: tuple[str, ...] = (),
) -> AsyncIterator[DeployedOperator]:
    """Apply the manifests in a new namespace. The kubeconfig of the service account is `operator.kubeconfig` in the folder."""
    name = f"permissions-{uuid.uuid4().hex[:8]}"
    options = DeployOptions(namespace=name, watched_namespaces=(name,) if one_namespace else (), permission_sets=permission_sets)
    admin = Client(await connect(cluster.kubeconfig_path))
    try:
        await ensure_namespace(admin, deployment.namespace(name), report=discard)
        await apply(admin, [*build_crds(kinds), *operator_objects(kinds, options)], report=discard)
        operator = Client(await connect(await service_account_kubeconfig(cluster, admin, options, folder)))
        try:
            yield DeployedOperator(admin, operator, options)
        finally:
            await operator.close()
            await delete_objects(admin, operator_objects(kinds, options), report=discard)
    finally:
        await admin.close()


async def service_account_kubeconfig(cluster: RealCluster, admin: Client, options: DeployOptions, folder: Path) -> Path:
    """Write `operator.kubeconfig` with a token of the operator's service account."""
    account = options.account
    body: JsonObject = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    response = await admin.create(SERVICE_ACCOUNTS, body, namespace=account.namespace, name=account.name, subresource="token")
    path = folder / "operator.kubeconfig"
    token = response["status"]["token"]
    cluster_credentials.write_kubeconfig(path, url=cluster.url, ca_pem=cluster.ca_path.read_bytes(), user=account.name, token=token)
    return path


def discard(text: str) -> None:
    """A `report` callback that ignores the text."""
