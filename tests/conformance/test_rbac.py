"""Authentication and RBAC of service accounts."""

from __future__ import annotations

import pytest

from dlop.kube.resources import CLUSTER_ROLES, CONFIG_MAPS, PODS, ROLES, SERVICE_ACCOUNTS, Resource
from tests.conformance.service_accounts import ACCOUNT_NAME, RBAC_GROUP, Account, create_token_request, rule
from tests.conformance.support import decode_json, over_https

pytestmark = over_https(reason="the token of an account is sent in a request header")


async def test_an_account_without_roles_is_forbidden_and_the_message_names_the_missing_permission(account: Account) -> None:
    namespace = account.api.namespace
    assert await account.expect_forbidden(PODS) == (
        f'pods is forbidden: User "{account.user}" cannot list resource "pods" in API group "" in the namespace "{namespace}"'
    )
    assert await account.expect_forbidden(ROLES, "some") == (
        f'{ROLES.qualified_name} "some" is forbidden: User "{account.user}" cannot get resource "roles" in API group "{RBAC_GROUP}" '
        f'in the namespace "{namespace}"'
    )
    assert await account.expect_forbidden(CLUSTER_ROLES) == (
        f'{CLUSTER_ROLES.qualified_name} is forbidden: User "{account.user}" cannot list resource "clusterroles" in API group '
        f'"{RBAC_GROUP}" at the cluster scope'
    )


async def test_a_role_grants_its_verbs_in_its_namespace_only(account: Account) -> None:
    await account.grant_role(rule("pods", "list"))
    await account.wait_until_allowed(PODS)
    await account.expect_forbidden(PODS, "one")
    await account.expect_forbidden(CONFIG_MAPS)
    await account.expect_forbidden(PODS, namespace="default")


async def test_a_rule_with_resource_names_does_not_cover_other_objects(account: Account) -> None:
    await account.grant_role(rule("configmaps", "*", resourceNames=["one"]))
    await account.wait_until_allowed(CONFIG_MAPS, "one")
    await account.expect_forbidden(CONFIG_MAPS, "two")
    await account.expect_forbidden(CONFIG_MAPS)
    await account.expect_forbidden(CONFIG_MAPS, method="POST")


async def test_a_rule_for_a_subresource_does_not_cover_the_resource(account: Account) -> None:
    await account.grant_role(rule("pods/log", "get"))
    path = account.api.path(PODS, "one", "log")
    await account.api.wait_until(lambda: account.send(path), lambda response: response.status == 404)
    await account.expect_forbidden(PODS, "one")


@pytest.mark.parametrize("name", ["system:serviceaccounts", "system:serviceaccounts:{namespace}", "system:authenticated"])
async def test_an_account_has_the_permissions_of_its_groups(account: Account, name: str) -> None:
    group = {"kind": "Group", "apiGroup": RBAC_GROUP, "name": name.format(namespace=account.api.namespace)}
    await account.grant_role(rule("pods", "list"), subject=group)
    await account.wait_until_allowed(PODS)


async def test_an_account_does_not_have_the_permissions_of_an_account_in_another_namespace(account: Account) -> None:
    await account.grant_role(rule("pods", "list"), subject={**account.subject, "namespace": "default"})
    await account.grant_cluster_role(rule("configmaps", "list"))
    # When the later binding is effective, the server has observed the earlier one as well.
    await account.wait_until_allowed(CONFIG_MAPS)
    await account.expect_forbidden(PODS)


async def test_a_cluster_role_in_a_role_binding_applies_to_the_namespace_of_the_binding(account: Account) -> None:
    await account.create_cluster_role(rule("pods", "list"))
    await account.bind({"kind": "ClusterRole", "name": account.api.namespace})
    await account.wait_until_allowed(PODS)
    await account.expect_forbidden(PODS, namespace="default")


async def test_a_cluster_role_in_a_cluster_role_binding_applies_to_all_namespaces(account: Account) -> None:
    await account.grant_cluster_role(rule("pods", "list"))
    await account.wait_until_allowed(PODS)
    await account.wait_until_allowed(PODS, namespace="default")


async def test_discovery_is_allowed_without_roles(account: Account) -> None:
    for path in ("/api", "/apis", "/version", "/api/v1"):
        assert (await account.send(path)).status == 200, path


async def test_a_token_that_was_modified_is_unauthorized(account: Account) -> None:
    header, claims, signature = account.token.split(".")
    for token in (f"{header}.{claims}.{signature[::-1]}", f"{header}.{claims}.", f"{header}.{claims[:-4]}.{signature}", "x"):
        assert (await account.send("/api", token=token)).status == 401, token


async def test_a_token_for_another_audience_is_unauthorized(account: Account) -> None:
    token = (await create_token_request(account.api, audiences=["vault"]))["status"]["token"]
    assert (await account.send("/api", token=token)).status == 401


async def test_a_token_becomes_invalid_when_its_account_is_deleted(account: Account) -> None:
    assert (await account.send("/api")).status == 200
    await account.api.delete(SERVICE_ACCOUNTS, ACCOUNT_NAME)
    await account.api.wait_until(lambda: account.send("/api"), lambda response: response.status == 401)


async def test_a_request_without_a_token_is_anonymous_and_has_no_permissions(account: Account) -> None:
    namespace = account.api.namespace
    for method, verb in (("GET", "list"), ("POST", "create"), ("DELETE", "deletecollection")):
        assert await account.expect_forbidden(CONFIG_MAPS, method=method, token="") == (
            f'configmaps is forbidden: User "system:anonymous" cannot {verb} resource "configmaps" in API group "" '
            f'in the namespace "{namespace}"'
        )
    body = decode_json(await account.send("/api", token=""))
    assert (body["code"], body["message"]) == (403, 'forbidden: User "system:anonymous" cannot get path "/api"')
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await account.send(path, token="")).status == 200, path


async def test_an_anonymous_request_has_the_permissions_of_its_user_and_its_group_only(account: Account) -> None:
    await account.grant_role(rule("pods", "list"), subject={"kind": "Group", "apiGroup": RBAC_GROUP, "name": "system:unauthenticated"})
    await account.wait_until_allowed(PODS, token="")
    await account.expect_forbidden(CONFIG_MAPS, token="")
    await account.expect_forbidden(PODS)


async def test_a_request_for_an_unknown_resource_is_forbidden_without_permissions(account: Account) -> None:
    unknown = Resource("", "v1", "nonsenses", "Nonsense")
    for token, user in (("", "system:anonymous"), (None, account.user)):
        assert await account.expect_forbidden(unknown, token=token) == (
            f'nonsenses is forbidden: User "{user}" cannot list resource "nonsenses" in API group "" '
            f'in the namespace "{account.api.namespace}"'
        )
