"""A service account under test: its token, its roles and the responses to its requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from dlop.kube.http.transport import connect
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource
from dlop.kube.transport import JSON, Request, Response
from dlop.kube.types import JsonObject
from tests.conformance.support import TIMEOUT_SECONDS, Api, decode_json

RBAC_GROUP = "rbac.authorization.k8s.io"
ACCOUNT_NAME = "bot"


async def create_account(api: Api) -> JsonObject:
    return await api.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT_NAME}})


async def create_token_request(api: Api, **spec: object) -> JsonObject:
    """Request a token of the account. Returns the TokenRequest with its status."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return await api.create(SERVICE_ACCOUNTS, body, name=ACCOUNT_NAME, subresource="token")


def rule(resource: str, *verbs: str, **fields: list[str]) -> JsonObject:
    """A policy rule for a resource of the core API group."""
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs), **fields}


@dataclass(frozen=True)
class Account:
    """A service account in the namespace of a test. Its roles and bindings have fixed names, so a test creates each at most once."""

    api: Api
    token: str
    directory: Path

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.api.namespace}:{ACCOUNT_NAME}"

    @property
    def subject(self) -> JsonObject:
        return {"kind": "ServiceAccount", "name": ACCOUNT_NAME, "namespace": self.api.namespace}

    async def send(
        self,
        path: str,
        *,
        method: str = "GET",
        token: str | None = None,
        body: JsonObject | None = None,
        content_type: str = JSON,
        query: tuple[tuple[str, str], ...] = (),
    ) -> Response:
        """Send a request with the token of the account, or with another one. An empty token sends an anonymous request."""
        bearer = self.token if token is None else token
        headers = {"authorization": f"Bearer {bearer}" if bearer else "", "content-type": content_type}
        request = Request(method, path, query, headers, body=None if body is None else msgspec.json.encode(body))
        if self.api.server.kubeconfig is None:
            return await self.api.client.transport.send(request, timeout_seconds=TIMEOUT_SECONDS)
        config = yaml.safe_load(self.api.server.kubeconfig.read_text())
        users = [{**user, "user": {"token": bearer} if bearer else {}} for user in config["users"]]
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump({**config, "users": users}))
        transport = await connect(kubeconfig)
        try:
            return await transport.send(request, timeout_seconds=TIMEOUT_SECONDS)
        finally:
            await transport.close()

    async def request(
        self, resource: Resource, name: str | None = None, *, namespace: str | None = None, method: str = "GET", **options: Any
    ) -> JsonObject:
        """Send a request and return the body of the response. `options` are those of `send`."""
        path = resource.path(namespace=(namespace or self.api.namespace) if resource.namespaced else None, name=name)
        return decode_json(await self.send(path, method=method, **options))

    async def wait_until_allowed(self, resource: Resource, name: str | None = None, **options: Any) -> None:
        """Repeat a request until it is not forbidden, because a server needs some time to observe new roles."""
        await self.api.wait_until(lambda: self.request(resource, name, **options), lambda body: body.get("code") != 403)

    async def expect_forbidden(self, resource: Resource, name: str | None = None, **options: Any) -> str:
        """Send a request that must be forbidden, and return the message."""
        body = await self.request(resource, name, **options)
        assert (body.get("code"), body.get("reason")) == (403, "Forbidden"), body
        return str(body["message"])

    async def grant_role(self, *rules: JsonObject, subject: JsonObject | None = None) -> None:
        """Create a Role with these rules and bind it to the account or to another subject."""
        metadata = {"name": "some"}
        await self.api.create(ROLES, {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "Role", "metadata": metadata, "rules": list(rules)})
        await self.bind({"kind": "Role", "name": "some"}, subject=subject)

    async def bind(self, role: JsonObject, *, subject: JsonObject | None = None) -> None:
        """Create a RoleBinding."""
        body: JsonObject = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "RoleBinding", "metadata": {"name": "some"}}
        role_ref = {"apiGroup": RBAC_GROUP, **role}
        await self.api.create(ROLE_BINDINGS, {**body, "roleRef": role_ref, "subjects": [subject or self.subject]})

    async def create_cluster_role(self, *rules: JsonObject) -> None:
        """Create a ClusterRole with the name of the namespace."""
        metadata = {"name": self.api.namespace}
        body = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(rules)}
        await self.api.create(CLUSTER_ROLES, body)

    async def grant_cluster_role(self, *rules: JsonObject) -> None:
        """Create a ClusterRole with these rules and bind it to the account in all namespaces."""
        await self.create_cluster_role(*rules)
        role_ref = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": self.api.namespace}
        body: JsonObject = {"apiVersion": f"{RBAC_GROUP}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": self.api.namespace}}
        await self.api.create(CLUSTER_ROLE_BINDINGS, {**body, "roleRef": role_ref, "subjects": [self.subject]})
