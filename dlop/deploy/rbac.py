"""The rights that the operator needs, made from the kinds that it runs. No secrets, nothing with a star.

    what                    verbs                                      why
    jobs                    get list watch delete                      informer, live check before adoption, TTL
    jobs/status             patch                                      one status write a pass
    jobs/finalizers         update                                     owner references that block the owner's deletion
    pods, services          get list watch create patch delete         children; patch is adoption of orphans
    events                  create patch                               patch counts a repetition
    definitions             get list watch                             kinds that are installed later; cluster-wide only
    leases                  get watch update by name, create           leader election, in the operator's own namespace

A kind that makes other objects names its rights in `extra_rules`. Rights that go further than most people want to let the
operator go are not among them: each set of these is a role of its own, which is there only if it is asked for (`optional.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dlop.api.constants import MANAGER
from dlop.api.crd import TypeNames
from dlop.api.types import PermissionSet
from dlop.kube.types import JsonObject

RBAC = "rbac.authorization.k8s.io"


class KindWithRights(Protocol):
    """What has to be known of a class of jobs. `dlop.DLJob` is one."""

    @property
    def job_type(self) -> TypeNames:
        """What it is called."""
        ...

    @property
    def extra_rules(self) -> Sequence[Mapping[str, Any]]:
        """Rights beyond those that every kind needs, as RBAC rules."""
        ...


@dataclass(frozen=True, slots=True)
class ServiceAccountRef:
    """The service account that the operator runs as."""

    namespace: str
    name: str = MANAGER


def job_rules(kinds: Iterable[KindWithRights]) -> list[JsonObject]:
    """What the operator may do where the jobs are."""
    kinds = tuple(kinds)
    rules: list[JsonObject] = []
    for group, plurals in _plurals(kinds).items():
        rules += [
            _rule(group, plurals, "get", "list", "watch", "delete"),
            _rule(group, [f"{plural}/status" for plural in plurals], "patch"),
            _rule(group, [f"{plural}/finalizers" for plural in plurals], "update"),
        ]
    rules.append(_rule("", ["pods", "services"], "get", "list", "watch", "create", "patch", "delete"))
    rules.append(_rule("events.k8s.io", ["events"], "create", "patch"))
    for kind in kinds:
        rules += [dict(rule) for rule in kind.extra_rules if dict(rule) not in rules]
    return rules


def definition_rules() -> list[JsonObject]:
    """What the operator may do with the definitions of custom resources: look at them."""
    return [_rule("apiextensions.k8s.io", ["customresourcedefinitions"], "get", "list", "watch")]


def lease_rules(lease: str) -> list[JsonObject]:
    """What the operator may do in its own namespace. A create cannot be bound to a name."""
    found = _rule("coordination.k8s.io", ["leases"], "get", "watch", "update")
    return [_rule("coordination.k8s.io", ["leases"], "create"), {**found, "resourceNames": [lease]}]


def cluster_wide(kinds: Iterable[KindWithRights], account: ServiceAccountRef) -> list[JsonObject]:
    """The rights to run these kinds in all namespaces."""
    role = _role("ClusterRole", MANAGER, [*job_rules(kinds), *definition_rules()])
    return [role, _binding(role, account), *_lease_role(account)]


def in_namespaces(kinds: Iterable[KindWithRights], account: ServiceAccountRef, namespaces: Iterable[str]) -> list[JsonObject]:
    """The rights to run these kinds in the named namespaces only; nothing here is cluster-wide."""
    rules = job_rules(kinds)
    found: list[JsonObject] = []
    for namespace in namespaces:
        role = _role("Role", MANAGER, rules, namespace=namespace)
        found += [role, _binding(role, account)]
    return [*found, *_lease_role(account)]


def given(rights: Iterable[PermissionSet], account: ServiceAccountRef, namespaces: Sequence[str] = ()) -> list[JsonObject]:
    """Rights that were asked for by name: in these namespaces, by Roles only, or in all when none is named."""
    found: list[JsonObject] = []
    for each in rights:
        name, rules = f"{MANAGER}-{each.name}", [dict(rule) for rule in each.rules]
        here = [_role("Role", name, rules, namespace=namespace) for namespace in namespaces]
        everywhere = _role("ClusterRole", name, [*rules, *map(dict, each.cluster_rules)])
        for role in here or [everywhere]:
            found += [role, _binding(role, account)]
    return found


def for_users(kinds: Iterable[KindWithRights]) -> list[JsonObject]:
    """What the cluster's own roles `view`, `edit` and `admin` get to do with jobs."""
    plurals = _plurals(tuple(kinds))
    viewing = [_rule(group, found, "get", "list", "watch") for group, found in plurals.items()]
    verbs = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
    editing = [_rule(group, found, *verbs) for group, found in plurals.items()]
    view = _role("ClusterRole", f"{MANAGER}-view", viewing)
    edit = _role("ClusterRole", f"{MANAGER}-edit", editing)
    view["metadata"]["labels"] |= {f"{RBAC}/aggregate-to-view": "true"}
    edit["metadata"]["labels"] |= {f"{RBAC}/aggregate-to-edit": "true", f"{RBAC}/aggregate-to-admin": "true"}
    return [view, edit]


def _lease_role(account: ServiceAccountRef) -> list[JsonObject]:
    role = _role("Role", f"{MANAGER}-leader-election", lease_rules(MANAGER), namespace=account.namespace)
    return [role, _binding(role, account)]


def _plurals(kinds: Iterable[KindWithRights]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for kind in kinds:
        plurals = found.setdefault(kind.job_type.group, [])
        if kind.job_type.plural not in plurals:
            plurals.append(kind.job_type.plural)
    return found


def _rule(group: str, resources: Sequence[str], *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _role(kind: str, name: str, rules: Sequence[JsonObject], *, namespace: str | None = None) -> JsonObject:
    metadata: JsonObject = {"name": name, "labels": {"app.kubernetes.io/name": MANAGER}}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}


def _binding(role: JsonObject, account: ServiceAccountRef) -> JsonObject:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role['kind']}Binding",
        "metadata": {**role["metadata"], "labels": {"app.kubernetes.io/name": MANAGER}},
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
    }
