"""A service account cannot grant permissions that it does not have."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.kube.client import PatchType
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource
from dlop.kube.types import JsonObject
from tests.conformance.service_accounts import RBAC_GROUP, Account, rule
from tests.conformance.support import over_https
from tests.kubernetes_versions import since

pytestmark = over_https(reason="the token of an account is sent in a request header")

KINDS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
READ_SECRETS = rule("secrets", "get", "list")
MISSING_SECRETS = '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'


def rbac_rule(*verbs: str, resources: tuple[str, ...] = KINDS, **fields: list[str]) -> JsonObject:
    return {"apiGroups": [RBAC_GROUP], "resources": list(resources), "verbs": list(verbs), **fields}


MANAGE_RBAC = rbac_rule("list", "get", "create", "update", "patch")


async def grant(account: Account, *rules: JsonObject, in_all_namespaces: bool = False) -> None:
    """Let the account write roles and bindings, and give it these permissions."""
    await (account.grant_cluster_role if in_all_namespaces else account.grant_role)(MANAGE_RBAC, *rules)
    # One binding grants all of these, so they become effective together.
    await account.wait_until_allowed(ROLES)


def role(name: str, *rules: JsonObject, resource: Resource = ROLES, **fields: Any) -> JsonObject:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "rules": list(rules), **fields}


def binding(name: str, account: Account, *, to: str, kind: str = "Role", resource: Resource = ROLE_BINDINGS) -> JsonObject:
    role_ref = {"apiGroup": RBAC_GROUP, "kind": kind, "name": to}
    body: JsonObject = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    return {**body, "roleRef": role_ref, "subjects": [account.subject]}


def refusal(account: Account, resource: Resource, name: str, *missing: str) -> str:
    groups = f'["system:serviceaccounts" "system:serviceaccounts:{account.api.namespace}" "system:authenticated"]'
    return (
        f'{resource.qualified_name} "{name}" is forbidden: user "{account.user}" (groups={groups}) '
        "is attempting to grant RBAC permissions not currently held:\n" + "\n".join(missing)
    )


async def write(account: Account, method: str, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
    """Send a write as the account and return the body of the response."""
    name = None if method == "POST" else body["metadata"]["name"]
    return await account.request(resource, name, method=method, body=body, **options)


async def expect_refused(account: Account, method: str, resource: Resource, body: JsonObject, *missing: str, **options: Any) -> None:
    response = await write(account, method, resource, body, **options)
    assert (response.get("code"), response.get("reason")) == (403, "Forbidden"), response
    name = body["metadata"]["name"]
    assert response["message"] == refusal(account, resource, name, *missing)
    assert response["details"] == {"name": name, "group": RBAC_GROUP, "kind": resource.plural}


async def expect_written(account: Account, method: str, resource: Resource, body: JsonObject, **options: Any) -> JsonObject:
    response = await write(account, method, resource, body, **options)
    assert response["kind"] == resource.kind, response
    return response


async def test_a_role_with_permissions_that_the_account_does_not_have_is_refused_and_not_created(account: Account) -> None:
    await grant(account, rule("pods", "get"))
    await expect_refused(account, "POST", ROLES, role("new", rule("pods", "get"), READ_SECRETS), MISSING_SECRETS)
    assert await account.api.get_or_none(ROLES, "new") is None


async def test_a_role_with_permissions_that_the_account_has_is_created(account: Account) -> None:
    await grant(account, rule("pods", "get"), rule("pods", "list"))
    created = await expect_written(account, "POST", ROLES, role("new", rule("pods", "get", "list")))
    assert created["rules"] == [rule("pods", "get", "list")]


COVERAGE = {
    "all verbs": ([rule("pods", "*")], rule("pods", "get", "*"), ()),
    "not all verbs": ([rule("pods", "get")], rule("pods", "get", "*"), ('{APIGroups:[""], Resources:["pods"], Verbs:["*"]}',)),
    "all resources": ([rule("*", "get")], rule("pods/log", "get"), ()),
    "a subresource of all resources": ([rule("*/log", "get")], rule("pods/log", "get"), ()),
    "the resource without its subresource": (
        [rule("pods", "get")],
        rule("pods/log", "get"),
        ('{APIGroups:[""], Resources:["pods/log"], Verbs:["get"]}',),
    ),
    "the same object": ([rule("secrets", "get", resourceNames=["a", "b"])], rule("secrets", "get", resourceNames=["b"]), ()),
    "one of two objects": (
        [rule("secrets", "get", resourceNames=["a"])],
        rule("secrets", "get", "list", resourceNames=["a", "b"]),
        (
            '{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["list"]}',
            '{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get" "list"]}',
        ),
    ),
    "one object instead of all": (
        [rule("secrets", "get", resourceNames=["a"])],
        rule("secrets", "get"),
        ('{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}',),
    ),
    "another API group": (
        [rule("pods", "get")],
        {**rule("pods", "get"), "apiGroups": ["", "metrics.k8s.io"]},
        ('{APIGroups:["metrics.k8s.io"], Resources:["pods"], Verbs:["get"]}',),
    ),
    "all API groups": ([{**rule("pods", "get"), "apiGroups": ["*"]}], {**rule("pods", "get"), "apiGroups": ["metrics.k8s.io", "*"]}, ()),
}


@pytest.mark.parametrize("name", COVERAGE)
async def test_a_role_is_refused_exactly_for_the_permissions_that_are_missing(account: Account, name: str) -> None:
    held, granted, missing = COVERAGE[name]
    await grant(account, *held)
    if missing:
        await expect_refused(account, "POST", ROLES, role("new", granted), *missing)
    else:
        await expect_written(account, "POST", ROLES, role("new", granted))


@pytest.mark.parametrize("dry_run", [False, True])
async def test_permissions_cannot_be_added_to_a_role(account: Account, *, dry_run: bool) -> None:
    await grant(account, rule("pods", "get"))
    options = {"query": (("dryRun", "All"),)} if dry_run else {}
    await account.api.create(ROLES, role("existing", rule("pods", "get")))
    escalated = role("existing", rule("pods", "get"), READ_SECRETS)
    await expect_refused(account, "PUT", ROLES, escalated, MISSING_SECRETS, **options)
    await expect_refused(account, "PATCH", ROLES, escalated, MISSING_SECRETS, content_type=PatchType.MERGE, **options)
    await expect_refused(account, "PUT", ROLES, role("new", READ_SECRETS), MISSING_SECRETS, **options)
    assert (await account.api.get(ROLES, "existing"))["rules"] == [rule("pods", "get")]
    assert await account.api.get_or_none(ROLES, "new") is None


async def test_a_role_with_permissions_that_the_account_does_not_have_can_only_be_changed_for_garbage_collection(account: Account) -> None:
    await grant(account)
    await account.api.create(ROLES, role("existing", READ_SECRETS))
    labels = {"metadata": {"name": "existing", "labels": {"a": "b"}}}
    await expect_refused(account, "PATCH", ROLES, labels, MISSING_SECRETS, content_type=PatchType.MERGE)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1"}
    collected = {"metadata": {"name": "existing", "ownerReferences": [owner], "finalizers": ["example.org/test"]}}
    changed = await expect_written(account, "PATCH", ROLES, collected, content_type=PatchType.MERGE)
    assert changed["metadata"]["finalizers"] == ["example.org/test"]
    await account.api.patch(ROLES, "existing", {"metadata": {"finalizers": None}}, patch_type=PatchType.MERGE)


async def test_permissions_in_a_namespace_cannot_be_granted_in_all_namespaces(account: Account) -> None:
    name = f"{account.api.namespace}-new"
    await account.create_cluster_role(MANAGE_RBAC)
    await account.api.create(
        CLUSTER_ROLE_BINDINGS, binding(name, account, to=account.api.namespace, kind="ClusterRole", resource=CLUSTER_ROLE_BINDINGS)
    )
    await account.grant_role(READ_SECRETS)
    await account.wait_until_allowed(CLUSTER_ROLES)
    await account.api.wait_until(lambda: write(account, "POST", ROLES, role("new", READ_SECRETS)), lambda body: body["kind"] == "Role")
    await expect_refused(account, "POST", CLUSTER_ROLES, role(name, READ_SECRETS, resource=CLUSTER_ROLES), MISSING_SECRETS)


async def test_the_escalate_verb_allows_a_role_with_any_permissions(account: Account) -> None:
    await grant(account, rbac_rule("escalate", resources=("roles",)))
    await expect_written(account, "POST", ROLES, role("new", READ_SECRETS))
    await expect_written(account, "PUT", ROLES, role("new", READ_SECRETS, rule("secrets", "delete")))
    await expect_refused(
        account,
        "POST",
        ROLE_BINDINGS,
        binding("new", account, to="new"),
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "delete"]}',
    )


async def test_the_escalate_verb_on_one_role_does_not_allow_others(account: Account) -> None:
    await grant(account, rbac_rule("escalate", resources=("roles",), resourceNames=["one"]))
    for name in ("one", "two"):
        await account.api.create(ROLES, role(name))
    await expect_written(account, "PUT", ROLES, role("one", READ_SECRETS))
    await expect_refused(account, "PUT", ROLES, role("two", READ_SECRETS), MISSING_SECRETS)
    # A create request does not have the name.
    await account.api.delete(ROLES, "one")
    await expect_refused(account, "POST", ROLES, role("one", READ_SECRETS), MISSING_SECRETS)


async def test_a_binding_to_a_role_with_permissions_that_the_account_does_not_have_is_refused(account: Account) -> None:
    await grant(account)
    await account.api.create(ROLES, role("secrets", READ_SECRETS))
    body = binding("new", account, to="secrets")
    await expect_refused(account, "POST", ROLE_BINDINGS, body, MISSING_SECRETS)
    await expect_refused(account, "PUT", ROLE_BINDINGS, body, MISSING_SECRETS)
    assert await account.api.get_or_none(ROLE_BINDINGS, "new") is None
    await account.api.create(ROLE_BINDINGS, {**body, "subjects": []})
    await expect_refused(account, "PUT", ROLE_BINDINGS, body, MISSING_SECRETS)
    await expect_refused(account, "PATCH", ROLE_BINDINGS, body, MISSING_SECRETS, content_type=PatchType.MERGE)
    assert not (await account.api.get(ROLE_BINDINGS, "new")).get("subjects")


async def test_a_binding_to_a_role_with_permissions_that_the_account_has_is_created(account: Account) -> None:
    await grant(account, READ_SECRETS)
    await account.api.create(ROLES, role("secrets", READ_SECRETS))
    await expect_written(account, "POST", ROLE_BINDINGS, binding("new", account, to="secrets"))


async def test_the_bind_verb_on_a_role_allows_bindings_to_that_role_only(account: Account) -> None:
    await grant(account, rbac_rule("bind", resources=("roles",), resourceNames=["one"]))
    for name in ("one", "two"):
        await account.api.create(ROLES, role(name, READ_SECRETS))
    await expect_refused(account, "POST", ROLE_BINDINGS, binding("second", account, to="two"), MISSING_SECRETS)
    await expect_written(account, "POST", ROLE_BINDINGS, binding("first", account, to="one"))


async def test_the_bind_verb_in_a_namespace_does_not_allow_a_cluster_role_binding(account: Account) -> None:
    name = f"{account.api.namespace}-secrets"
    await account.grant_cluster_role(MANAGE_RBAC)
    await account.grant_role(rbac_rule("bind", resources=("clusterroles",), resourceNames=[name]))
    await account.api.create(CLUSTER_ROLES, role(name, READ_SECRETS, resource=CLUSTER_ROLES))
    in_namespace = binding("new", account, to=name, kind="ClusterRole")
    await account.api.wait_until(lambda: write(account, "POST", ROLE_BINDINGS, in_namespace), lambda body: body["kind"] == "RoleBinding")
    everywhere = binding(name, account, to=name, kind="ClusterRole", resource=CLUSTER_ROLE_BINDINGS)
    # The binding above gives the account these permissions in its namespace.
    await expect_refused(account, "POST", CLUSTER_ROLE_BINDINGS, everywhere, MISSING_SECRETS)


@since("1.32", reason="the message names the binding, not the role")
async def test_a_binding_to_a_missing_role_needs_the_bind_verb(account: Account) -> None:
    await grant(account, rbac_rule("bind", resources=("roles",), resourceNames=["later"]))
    response = await write(account, "POST", ROLE_BINDINGS, binding("new", account, to="missing"))
    assert (response.get("code"), response.get("message")) == (404, f'{ROLE_BINDINGS.qualified_name} "missing" not found')
    await expect_written(account, "POST", ROLE_BINDINGS, binding("new", account, to="later"))


async def test_a_binding_to_another_kind_is_refused(account: Account) -> None:
    await grant(account)
    response = await write(account, "POST", ROLE_BINDINGS, binding("new", account, to="x", kind="Nonsense"))
    assert (response.get("code"), response.get("message")) == (500, 'unsupported role reference kind: "Nonsense"')


async def test_an_aggregated_cluster_role_needs_all_permissions(account: Account) -> None:
    await grant(account, in_all_namespaces=True)
    name = f"{account.api.namespace}-aggregated"
    aggregation = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    response = await write(account, "POST", CLUSTER_ROLES, role(name, resource=CLUSTER_ROLES, aggregationRule=aggregation))
    reason = "must have cluster-admin privileges to use the aggregationRule"
    assert (response.get("code"), response.get("message")) == (403, f'{CLUSTER_ROLES.qualified_name} "{name}" is forbidden: {reason}')


async def test_permissions_for_paths_are_compared_by_prefix(account: Account) -> None:
    held = {"nonResourceURLs": ["/debug/*"], "verbs": ["get"]}
    await grant(account, held, in_all_namespaces=True)
    name = f"{account.api.namespace}-paths"
    granted = {"nonResourceURLs": ["/debug/pprof", "/logs"], "verbs": ["get", "post"]}
    missing = [
        '{NonResourceURLs:["/debug/pprof"], Verbs:["post"]}',
        '{NonResourceURLs:["/logs"], Verbs:["get"]}',
        '{NonResourceURLs:["/logs"], Verbs:["post"]}',
    ]
    await expect_refused(account, "POST", CLUSTER_ROLES, role(name, granted, resource=CLUSTER_ROLES), *missing)


@since("1.32", reason="the message names the missing permission")
async def test_a_put_that_creates_needs_the_create_verb(account: Account) -> None:
    await account.grant_role(rbac_rule("list", "update", resources=("roles",)))
    await account.wait_until_allowed(ROLES)
    response = await write(account, "PUT", ROLES, role("new"))
    assert response.get("code") == 403
    assert response["message"] == (
        f'{ROLES.qualified_name} "new" is forbidden: User "{account.user}" cannot create resource "roles" in API group "{RBAC_GROUP}" '
        f'in the namespace "{account.api.namespace}"'
    )
    assert await account.api.get_or_none(ROLES, "new") is None
