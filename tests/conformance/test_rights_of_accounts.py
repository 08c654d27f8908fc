"""What a service account may do, by its roles: the same requests pass and the same are refused, in the same words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from dlop.kube.http.transport import connect
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource
from dlop.kube.transport import Request, Response
from dlop.kube.types import JsonObject
from tests.conformance.support import PATIENCE_SECONDS, Api, decoded

_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Bot:
    """A service account, and what it gets when it asks."""

    api: Api
    token: str
    folder: Path

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.api.namespace}:bot"

    async def gets(self, path: str, *, method: str = "GET", token: str | None = None) -> Response:
        """What the server says to the bearer of the token."""
        bearer = self.token if token is None else token
        request = Request(method, path, headers={"authorization": f"Bearer {bearer}"})
        if self.api.server.kubeconfig is None:
            return await self.api.client.transport.send(request, timeout_seconds=PATIENCE_SECONDS)
        config = yaml.safe_load(self.api.server.kubeconfig.read_text())
        users = [{**each, "user": {"token": bearer}} for each in config["users"]]
        kubeconfig = self.folder / "bearer"
        kubeconfig.write_text(yaml.safe_dump({**config, "users": users}))
        transport = await connect(kubeconfig)
        try:
            return await transport.send(request, timeout_seconds=PATIENCE_SECONDS)
        finally:
            await transport.close()

    async def asks(self, resource: Resource, name: str | None = None, *, namespace: str | None = None, method: str = "GET") -> JsonObject:
        path = resource.path(namespace=(namespace or self.api.namespace) if resource.namespaced else None, name=name)
        return decoded(await self.gets(path, method=method))

    async def may(self, resource: Resource, name: str | None = None, **where: str) -> None:
        """It may, as soon as the server has seen its rights."""
        await self.api.eventually(lambda: self.asks(resource, name, **where), lambda found: found.get("code") != 403)

    async def may_not(self, resource: Resource, name: str | None = None, **where: str) -> str:
        found = await self.asks(resource, name, **where)
        assert (found.get("code"), found.get("reason")) == (403, "Forbidden"), found
        return str(found["message"])


@pytest_asyncio.fixture(loop_scope="session")
async def bot(api: Api, tmp_path: Path) -> Bot:
    await api.create(SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = await api.create(SERVICE_ACCOUNTS, request, name="bot", subresource="token")
    return Bot(api, answer["status"]["token"], tmp_path)


def subject(bot: Bot) -> JsonObject:
    return {"kind": "ServiceAccount", "name": "bot", "namespace": bot.api.namespace}


def rule(resource: str, *verbs: str, **more: list[str]) -> JsonObject:
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs), **more}


async def give(bot: Bot, *rules: JsonObject, to: JsonObject | None = None) -> None:
    """A role in the bot's namespace."""
    await bot.api.create(ROLES, {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": {"name": "some"}, "rules": list(rules)})
    await bind(bot, {"kind": "Role", "name": "some"}, to=to)


async def bind(bot: Bot, role: JsonObject, *, to: JsonObject | None = None) -> None:
    body: JsonObject = {"apiVersion": f"{_RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": "some"}}
    await bot.api.create(ROLE_BINDINGS, {**body, "roleRef": {"apiGroup": _RBAC, **role}, "subjects": [to or subject(bot)]})


async def test_an_account_without_roles_may_do_nothing_and_is_told_what(bot: Bot) -> None:
    where = bot.api.namespace
    assert await bot.may_not(PODS) == (
        f'pods is forbidden: User "{bot.user}" cannot list resource "pods" in API group "" in the namespace "{where}"'
    )
    assert await bot.may_not(ROLES, "some") == (
        f'{ROLES.qualified_name} "some" is forbidden: User "{bot.user}" cannot get resource "roles" in API group "{_RBAC}" '
        f'in the namespace "{where}"'
    )
    assert await bot.may_not(CLUSTER_ROLES) == (
        f'{CLUSTER_ROLES.qualified_name} is forbidden: User "{bot.user}" cannot list resource "clusterroles" in API group "{_RBAC}" '
        "at the cluster scope"
    )


async def test_a_role_gives_its_verbs_in_its_namespace_only(bot: Bot) -> None:
    await give(bot, rule("pods", "list"))
    await bot.may(PODS)
    await bot.may_not(PODS, "one")
    await bot.may_not(CONFIG_MAPS)
    await bot.may_not(PODS, namespace="default")


async def test_a_right_to_named_objects_is_none_to_others(bot: Bot) -> None:
    await give(bot, rule("configmaps", "*", resourceNames=["one"]))
    await bot.may(CONFIG_MAPS, "one")
    await bot.may_not(CONFIG_MAPS, "two")
    await bot.may_not(CONFIG_MAPS)
    await bot.may_not(CONFIG_MAPS, method="POST")


async def test_a_right_to_a_subresource_is_none_to_the_resource(bot: Bot) -> None:
    await give(bot, rule("pods/log", "get"))
    path = bot.api.path(PODS, "one", "log")
    await bot.api.eventually(lambda: bot.gets(path), lambda answer: answer.status == 404)
    await bot.may_not(PODS, "one")


@pytest.mark.parametrize("name", ["system:serviceaccounts", "system:serviceaccounts:{namespace}", "system:authenticated"])
async def test_an_account_has_the_rights_of_its_groups(bot: Bot, name: str) -> None:
    group = {"kind": "Group", "apiGroup": _RBAC, "name": name.format(namespace=bot.api.namespace)}
    await give(bot, rule("pods", "list"), to=group)
    await bot.may(PODS)


async def test_a_right_of_another_account_is_of_no_use(bot: Bot) -> None:
    await give(bot, rule("pods", "list"), to={**subject(bot), "namespace": "default"})
    await give_everywhere(bot, rule("configmaps", "list"))
    # The server has seen both by now.
    await bot.may(CONFIG_MAPS)
    await bot.may_not(PODS)


async def test_a_cluster_role_gives_rights_where_it_is_bound(bot: Bot) -> None:
    await cluster_role(bot, rule("pods", "list"))
    await bind(bot, {"kind": "ClusterRole", "name": bot.api.namespace})
    await bot.may(PODS)
    await bot.may_not(PODS, namespace="default")


async def test_a_cluster_role_that_is_bound_everywhere_gives_rights_everywhere(bot: Bot) -> None:
    await give_everywhere(bot, rule("pods", "list"))
    await bot.may(PODS)
    await bot.may(PODS, namespace="default")


async def test_everybody_may_look_what_the_server_has_to_offer(bot: Bot) -> None:
    for path in ("/api", "/apis", "/version", "/api/v1"):
        assert (await bot.gets(path)).status == 200, path


async def test_a_token_that_was_changed_is_nobodys(bot: Bot) -> None:
    head, claims, signature = bot.token.split(".")
    for token in (f"{head}.{claims}.{signature[::-1]}", f"{head}.{claims}.", f"{head}.{claims[:-4]}.{signature}", "x"):
        assert (await bot.gets("/api", token=token)).status == 401, token


async def test_a_token_for_somebody_else_is_none_for_the_server(bot: Bot) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": ["somebody"]}}
    token = (await bot.api.create(SERVICE_ACCOUNTS, request, name="bot", subresource="token"))["status"]["token"]
    assert (await bot.gets("/api", token=token)).status == 401


async def test_a_token_ends_with_its_account(bot: Bot) -> None:
    assert (await bot.gets("/api")).status == 200
    await bot.api.delete(SERVICE_ACCOUNTS, "bot")
    await bot.api.eventually(lambda: bot.gets("/api"), lambda answer: answer.status == 401)


async def cluster_role(bot: Bot, *rules: JsonObject) -> None:
    """A role of the whole cluster, which is called as the namespace is."""
    metadata = {"name": bot.api.namespace}
    await bot.api.create(CLUSTER_ROLES, {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": list(rules)})


async def give_everywhere(bot: Bot, *rules: JsonObject) -> None:
    await cluster_role(bot, *rules)
    role = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": bot.api.namespace}
    body: JsonObject = {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": bot.api.namespace}}
    await bot.api.create(CLUSTER_ROLE_BINDINGS, {**body, "roleRef": role, "subjects": [subject(bot)]})
