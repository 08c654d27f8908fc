"""What a service account may do: what roles and their bindings give it, and nothing else.

The administrator, who bears the server's own token, is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dlop.embedded.apiserver.api_errors import forbidden
from dlop.embedded.apiserver.authentication import Account
from dlop.embedded.apiserver.request_info import RequestInfo, Verb
from dlop.embedded.apiserver.store import Key, Store
from dlop.kube.errors import ForbiddenError
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES
from dlop.kube.types import JsonObject

_ALL = "*"
# Commands run and ports are opened by whoever may create these, however the stream is opened: there is one way to open it here.
_STREAMS = frozenset({"exec", "attach", "portforward"})


def check(store: Store, account: Account, asked: RequestInfo) -> None:
    """Let a request pass, or not.

    Raises:
        ForbiddenError: no role of the account allows it.
    """
    if not any(_allows(rule, asked) for rule in _rules(store, account, asked.target.namespace)):
        raise _refusal(account, asked)


def _rules(store: Store, account: Account, namespace: str) -> Iterator[JsonObject]:
    """What is given to the account in all namespaces, and in this one."""
    for _, binding in store.list(CLUSTER_ROLE_BINDINGS.qualified_name):
        yield from _given(store, account, binding.body, "")
    if namespace:
        for _, binding in store.list(ROLE_BINDINGS.qualified_name, namespace=namespace):
            yield from _given(store, account, binding.body, namespace)


def _given(store: Store, account: Account, binding: JsonObject, namespace: str) -> Iterable[JsonObject]:
    if not any(_means(subject, account, namespace) for subject in binding.get("subjects") or ()):
        return ()
    role = binding["roleRef"]
    resource, where = (ROLES, namespace) if role["kind"] == "Role" else (CLUSTER_ROLES, "")
    found = store.get(Key(resource.qualified_name, where, role["name"]))
    rules: list[JsonObject] = [] if found is None else found.body.get("rules") or []
    return rules


def _means(subject: JsonObject, account: Account, namespace: str) -> bool:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        return (name, subject.get("namespace") or namespace) == (account.name, account.namespace)
    return name == account.user if subject["kind"] == "User" else name in account.groups


def _allows(rule: JsonObject, asked: RequestInfo) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule, "verbs", _verb(asked))
        and _has(rule, "apiGroups", asked.target.group)
        and (_has(rule, "resources", _resource(asked)) or f"{_ALL}/{asked.target.subresource}" in (rule.get("resources") or ()))
        and (not names or asked.target.name in names)
    )


def _has(rule: JsonObject, field: str, wanted: str) -> bool:
    given = rule.get(field) or ()
    return wanted in given or _ALL in given


def _verb(asked: RequestInfo) -> str:
    return Verb.CREATE if asked.target.subresource in _STREAMS else asked.verb


def _resource(asked: RequestInfo) -> str:
    target = asked.target
    return f"{target.plural}/{target.subresource}" if target.subresource else target.plural


def _refusal(account: Account, asked: RequestInfo) -> ForbiddenError:
    target = asked.target
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    what = f'cannot {_verb(asked)} resource "{_resource(asked)}" in API group "{target.group}" {scope}'
    return forbidden(asked.type.resource, target.name, f'User "{account.user}" {what}')
