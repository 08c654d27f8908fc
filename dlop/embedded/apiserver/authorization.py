"""RBAC authorization of service accounts.

The administrator, who uses the server's own token, may do everything and is not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlop.embedded.apiserver.api_errors import forbidden
from dlop.embedded.apiserver.authentication import ServiceAccountUser
from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.store import ObjectKey, Store
from dlop.kube.errors import ForbiddenError
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from dlop.kube.types import JsonObject

_ALL = "*"
# These always need the create verb, although a WebSocket is opened by GET.
_STREAMS = frozenset({"exec", "attach", "portforward"})


def check(store: Store, account: ServiceAccountUser, info: RequestInfo) -> None:
    """Check that the account may send the request.

    Raises:
        ForbiddenError: no role of the account allows the request.
    """
    if not any(_allows(rule, info) for rule in _rules(store, account, info.target.namespace)):
        raise _forbidden(account, info)


def _rules(store: Store, account: ServiceAccountUser, namespace: str) -> Iterator[JsonObject]:
    """The RBAC rules of the account in all namespaces and in this one."""
    for _, binding in store.list(CLUSTER_ROLE_BINDINGS.qualified_name):
        yield from _binding_rules(store, account, binding.body, "")
    if namespace:
        for _, binding in store.list(ROLE_BINDINGS.qualified_name, namespace=namespace):
            yield from _binding_rules(store, account, binding.body, namespace)


def _binding_rules(store: Store, account: ServiceAccountUser, binding: JsonObject, namespace: str) -> Iterable[JsonObject]:
    if not any(_is_subject(subject, account, namespace) for subject in binding.get("subjects") or ()):
        return ()
    role = binding["roleRef"]
    resource, role_namespace = (ROLES, namespace) if role["kind"] == "Role" else (CLUSTER_ROLES, "")
    stored_role = store.get(ObjectKey(resource.qualified_name, role_namespace, role["name"]))
    rules: list[JsonObject] = [] if stored_role is None else stored_role.body.get("rules") or []
    return rules


def _is_subject(subject: JsonObject, account: ServiceAccountUser, namespace: str) -> bool:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        return (name, subject.get("namespace") or namespace) == (account.name, account.namespace)
    return name == account.user if subject["kind"] == "User" else name in account.groups


def _allows(rule: JsonObject, info: RequestInfo) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule, "verbs", _verb(info))
        and _has(rule, "apiGroups", info.target.group)
        and (_has(rule, "resources", _resource(info)) or f"{_ALL}/{info.target.subresource}" in (rule.get("resources") or ()))
        and (not names or info.target.name in names)
    )


def _has(rule: JsonObject, field: str, value: str) -> bool:
    allowed = rule.get(field) or ()
    return value in allowed or _ALL in allowed


def _verb(info: RequestInfo) -> str:
    return Verb.CREATE if info.target.subresource in _STREAMS else info.verb


def _resource(info: RequestInfo) -> str:
    target = info.target
    return f"{target.plural}/{target.subresource}" if target.subresource else target.plural


def _forbidden(account: ServiceAccountUser, info: RequestInfo) -> ForbiddenError:
    target = info.target
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    action = f'cannot {_verb(info)} resource "{_resource(info)}" in API group "{target.group}" {scope}'
    return forbidden(info.type.resource, target.name, f'User "{account.user}" {action}')
