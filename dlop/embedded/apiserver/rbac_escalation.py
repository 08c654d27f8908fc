"""Privilege escalation prevention of RBAC: users cannot grant permissions that they do not have.

A role needs all permissions in its rules, or the `escalate` verb on it. A binding needs all permissions of its role, or the `bind` verb
on that role.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from dlop.embedded.apiserver.api_errors import error_without_reason, forbidden, not_found
from dlop.embedded.apiserver.authorization import is_allowed, role_rules, user_rules
from dlop.embedded.apiserver.request_info import RequestInfo, RequestTarget
from dlop.embedded.apiserver.store import Store
from dlop.kube.resources import CLUSTER_ROLES, ROLES
from dlop.kube.types import JsonObject

_ALL = "*"
_ROLES = {ROLES.kind: ROLES, CLUSTER_ROLES.kind: CLUSTER_ROLES}
_FULL_AUTHORITY: Sequence[JsonObject] = (
    {"apiGroups": [_ALL], "resources": [_ALL], "verbs": [_ALL]},
    {"nonResourceURLs": [_ALL], "verbs": [_ALL]},
)
# Changes of these alone grant nothing. The garbage collector needs them.
_GARBAGE_COLLECTION_FIELDS = ("ownerReferences", "finalizers")


def check_escalation(store: Store, info: RequestInfo, body: JsonObject, old: JsonObject | None) -> None:
    """Check that a write of a role or a binding grants only permissions that the user has. `old` is None on create.

    Raises:
        ForbiddenError: it grants others.
        NotFoundError: the role of the binding does not exist, and the user may not bind it.
    """
    if info.user.is_privileged or (old is not None and _changes_only_gc_fields(body, old)):
        return
    if info.type.resource.kind in _ROLES:
        _check_role(store, info, body, old)
    else:
        _check_binding(store, info, body)


def _changes_only_gc_fields(body: JsonObject, old: JsonObject) -> bool:
    return _without_gc_fields(body) == _without_gc_fields(old)


def _without_gc_fields(body: JsonObject) -> JsonObject:
    return {**body, "metadata": {name: value for name, value in body["metadata"].items() if name not in _GARBAGE_COLLECTION_FIELDS}}


def _check_role(store: Store, info: RequestInfo, body: JsonObject, old: JsonObject | None) -> None:
    if is_allowed(store, info.user, "escalate", info.target):
        return
    _check_rules(store, info, body, body.get("rules") or ())
    # An aggregated role gets the rules of other roles.
    is_aggregated = body.get("aggregationRule") is not None or (old or {}).get("aggregationRule") is not None
    if is_aggregated and _missing_rules(store, info, _FULL_AUTHORITY):
        reason = "must have cluster-admin privileges to use the aggregationRule"
        raise forbidden(info.type.resource, body["metadata"].get("name", ""), reason)


def _check_binding(store: Store, info: RequestInfo, body: JsonObject) -> None:
    role_ref, namespace = body["roleRef"], info.target.namespace
    resource = _ROLES.get(role_ref.get("kind", ""))
    if resource is None:
        raise error_without_reason(f'unsupported role reference kind: "{role_ref.get("kind", "")}"')
    name = role_ref.get("name", "")
    if is_allowed(store, info.user, "bind", RequestTarget(resource.group, resource.version, resource.plural, namespace, name)):
        return
    rules = role_rules(store, {"kind": resource.kind, "name": name}, namespace)
    if rules is None:
        # kube-apiserver, too, names the resource of the binding with the name of the role.
        raise not_found(info.type.resource, name)
    _check_rules(store, info, body, rules)


def _check_rules(store: Store, info: RequestInfo, body: JsonObject, rules: Iterable[JsonObject]) -> None:
    if missing := _missing_rules(store, info, rules):
        groups = _quoted(info.user.groups)
        reason = f'user "{info.user.name}" (groups={groups}) is attempting to grant RBAC permissions not currently held:\n'
        raise forbidden(info.type.resource, body["metadata"].get("name", ""), reason + "\n".join(sorted(missing)))


def _missing_rules(store: Store, info: RequestInfo, rules: Iterable[JsonObject]) -> set[str]:
    """Descriptions of the permissions that the user does not have in the namespace of the request."""
    held = list(user_rules(store, info.user, info.target.namespace))
    missing = [part for rule in rules for part in _parts(rule) if not any(_covers(held_rule, part) for held_rule in held)]
    verbs: dict[_Permission, list[str]] = {}
    for part in missing:
        # Verbs on the same resource are combined into one line.
        verbs.setdefault(part if part.url else replace(part, verb=""), []).append(part.verb)
    return {_describe(part, part_verbs) for part, part_verbs in verbs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Permission:
    """One verb on one resource, on one object of a resource if `name` is set, or on a non-resource URL."""

    verb: str
    group: str = ""
    resource: str = ""
    name: str = ""
    url: str = ""


def _parts(rule: JsonObject) -> Iterator[_Permission]:
    verbs, names = rule.get("verbs") or (), rule.get("resourceNames") or ("",)
    for group, resource, verb, name in product(rule.get("apiGroups") or (), rule.get("resources") or (), verbs, names):
        yield _Permission(verb=verb, group=group, resource=resource, name=name)
    for url, verb in product(rule.get("nonResourceURLs") or (), verbs):
        yield _Permission(verb=verb, url=url)


def _covers(rule: JsonObject, part: _Permission) -> bool:
    if not _has(rule, "verbs", part.verb):
        return False
    if part.url:
        return any(_covers_url(url, part.url) for url in rule.get("nonResourceURLs") or ())
    _, slash, subresource = part.resource.partition("/")
    names = rule.get("resourceNames")
    return (
        _has(rule, "apiGroups", part.group)
        and (_has(rule, "resources", part.resource) or (bool(slash) and f"{_ALL}/{subresource}" in rule["resources"]))
        and (not names or part.name in names)
    )


def _has(rule: JsonObject, field: str, value: str) -> bool:
    return not {value, _ALL}.isdisjoint(rule.get(field) or ())


def _covers_url(held: str, url: str) -> bool:
    return held == url or (held.endswith(_ALL) and url.startswith(held.rstrip(_ALL)))


def _describe(part: _Permission, verbs: Iterable[str]) -> str:
    """The permission as kube-apiserver describes it."""
    if part.url:
        return f"{{NonResourceURLs:{_quoted([part.url])}, Verbs:{_quoted(verbs)}}}"
    names = f", ResourceNames:{_quoted([part.name])}" if part.name else ""
    return f"{{APIGroups:{_quoted([part.group])}, Resources:{_quoted([part.resource])}{names}, Verbs:{_quoted(verbs)}}}"


def _quoted(texts: Iterable[str]) -> str:
    """A list of strings as Go formats it with %q."""
    return f"[{' '.join(json.dumps(text, ensure_ascii=False) for text in texts)}]"
