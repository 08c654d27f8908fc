"""RBAC objects of the operator, generated from the kinds that it runs. No access to secrets, no wildcards.

    resource                verbs                                      used for
    jobs                    get list watch delete                      informer, uncached read before adoption, TTL
    jobs/status             patch                                      one status write per reconcile pass
    jobs/finalizers         update                                     owner references with blockOwnerDeletion
    scale plans             get list watch delete; status: patch       kinds whose master asks for pods
    crons                   get list watch; status: patch;             schedules of jobs
                            finalizers: update
    pods, services          get list watch create patch delete         children; patch adopts orphans
    events                  create patch                               patch updates the series of a repeated event
    CRDs                    get list watch                             kinds that are installed later; cluster-wide only
    leases                  get watch update by name, create           leader election, in the operator's own namespace

A kind that creates other objects declares their rules in its `children`. Far-reaching permissions are not part of these roles.
They are permission sets with roles of their own, which exist only on request:

    mpi     objects of MPI launchers, and pods/exec: RBAC lets the operator grant only permissions that it has itself
    elasticjob
            objects of the masters of ElasticJobs, and scale plans: RBAC lets the operator grant only permissions that it has itself
    paddle  config maps with the addresses of the pods of PaddleJobs
    ingress Ingresses of MarsJobs and TensorBoards
    hpa     autoscalers of elastic PyTorchJobs with metrics
    gang    PodGroups, and read access to priority classes
    nodes   read access to nodes
    cron    creation of jobs for Crons, and of Crons for jobs
    kueue   Workloads of Kueue, and read access to ResourceFlavors and priority classes

A permission set can be limited to namespaces (`mpi:team`). The operator then reads its objects in all namespaces, because its caches
do, and writes them only there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dlop.api.constants import CRON_PERMISSIONS, GANG_PERMISSIONS, MANAGER, NODE_PERMISSIONS
from dlop.api.cron import CRONS
from dlop.api.gang import POD_GROUPS
from dlop.api.types import PermissionSet
from dlop.job import DLJob
from dlop.kube.types import JsonObject
from dlop.policies.common_children import COMMON_CHILDREN

RBAC = "rbac.authorization.k8s.io"

_POD_GROUPS: JsonObject = {
    "apiGroups": [resource.group for resource in POD_GROUPS],
    "resources": ["podgroups"],
    "verbs": ["get", "list", "watch", "create", "patch", "delete"],
}
_PRIORITY_CLASSES: JsonObject = {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["get", "list", "watch"]}
GANG = PermissionSet(GANG_PERMISSIONS, (_POD_GROUPS,), cluster_rules=(_PRIORITY_CLASSES,))
"""Required by `--gang-scheduler-name`; independent of the kinds."""

NODES = PermissionSet(NODE_PERMISSIONS, (), cluster_rules=({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},))
"""Required by `--force-deletion node-down`; independent of the kinds."""


_VIEW_VERBS = ("get", "list", "watch")
_EDIT_VERBS = (*_VIEW_VERBS, "create", "update", "patch", "delete", "deletecollection")


@dataclass(frozen=True, slots=True)
class ServiceAccountRef:
    """The service account that the operator runs as."""

    namespace: str
    name: str = MANAGER


@dataclass(frozen=True, slots=True)
class Grant:
    """A permission set that the operator gets."""

    permission_set: PermissionSet
    namespaces: tuple[str, ...] = ()
    """The namespaces in which the operator may write; empty means all that it watches."""


def job_rules(kinds: Iterable[type[DLJob]]) -> list[JsonObject]:
    """Rules for the namespaces of the jobs."""
    kinds = tuple(kinds)
    rules: list[JsonObject] = []
    for group, plurals in _plurals_by_group(kinds).items():
        rules += [
            _rule(group, plurals, "get", "list", "watch", "delete"),
            _rule(group, [f"{plural}/status" for plural in plurals], "patch"),
            _rule(group, [f"{plural}/finalizers" for plural in plurals], "update"),
        ]
    for group, plurals in _plan_plurals_by_group(kinds).items():
        rules.append(_rule(group, plurals, "get", "list", "watch", "delete"))
        rules.append(_rule(group, [f"{plural}/status" for plural in plurals], "patch"))
    rules += _cron_rules()
    rules.append(_rule("", ["pods", "services"], "get", "list", "watch", "create", "patch", "delete"))
    rules.append(_rule("events.k8s.io", ["events"], "create", "patch"))
    for child in (child for kind in kinds for child in kind.all_children()):
        rules += [dict(rule) for rule in child.rules if dict(rule) not in rules]
    return rules


def _cron_rules() -> list[JsonObject]:
    group, plural = CRONS.group, CRONS.plural
    return [
        _rule(group, [plural], *_VIEW_VERBS),
        _rule(group, [f"{plural}/status"], "patch"),
        _rule(group, [f"{plural}/finalizers"], "update"),
    ]


def _cron_permissions(kinds: Iterable[type[DLJob]]) -> PermissionSet:
    """Crons create jobs of all kinds, and jobs with a schedule have a Cron."""
    job_rules = (_rule(group, plurals, "create") for group, plurals in _plurals_by_group(kinds).items())
    return PermissionSet(CRON_PERMISSIONS, (*job_rules, _rule(CRONS.group, [CRONS.plural], "create", "patch")))


def crd_rules() -> list[JsonObject]:
    return [_rule("apiextensions.k8s.io", ["customresourcedefinitions"], "get", "list", "watch")]


def lease_rules(lease: str) -> list[JsonObject]:
    """Rules for the operator's own namespace. RBAC cannot restrict a create to a resource name."""
    named = _rule("coordination.k8s.io", ["leases"], "get", "watch", "update")
    return [_rule("coordination.k8s.io", ["leases"], "create"), {**named, "resourceNames": [lease]}]


def cluster_rbac(kinds: Iterable[type[DLJob]], account: ServiceAccountRef) -> list[JsonObject]:
    """Roles and bindings to run the kinds in all namespaces."""
    role = _role("ClusterRole", MANAGER, [*job_rules(kinds), *crd_rules()])
    return [role, _binding(role, account), *_lease_rbac(account)]


def namespaced_rbac(kinds: Iterable[type[DLJob]], account: ServiceAccountRef, namespaces: Iterable[str]) -> list[JsonObject]:
    """Roles and bindings to run the kinds in these namespaces only. None of the objects is cluster-scoped."""
    rules = job_rules(kinds)
    objects: list[JsonObject] = []
    for namespace in namespaces:
        role = _role("Role", MANAGER, rules, namespace=namespace)
        objects += [role, _binding(role, account)]
    return [*objects, *_lease_rbac(account)]


def permission_set_rbac(grants: Iterable[Grant], account: ServiceAccountRef, namespaces: Sequence[str] = ()) -> list[JsonObject]:
    """Roles and bindings for an operator that watches these namespaces; all if `namespaces` is empty."""
    objects: list[JsonObject] = []
    for grant in grants:
        objects += _namespaced_grant(grant, account, namespaces) if namespaces else _cluster_grant(grant, account)
    return objects


def _namespaced_grant(grant: Grant, account: ServiceAccountRef, namespaces: Iterable[str]) -> Iterator[JsonObject]:
    """A Role in each namespace."""
    for namespace in namespaces:
        is_writable = not grant.namespaces or namespace in grant.namespaces
        rules = _copies(grant.permission_set.rules) if is_writable else _read_only(grant.permission_set.rules)
        if rules:
            role = _role("Role", f"{MANAGER}-{grant.permission_set.name}", rules, namespace=namespace)
            yield from (role, _binding(role, account))


def _cluster_grant(grant: Grant, account: ServiceAccountRef) -> Iterator[JsonObject]:
    """A ClusterRole for all namespaces, or two: one to read in all namespaces, and one that is bound in the namespaces of the grant."""
    name, rules = f"{MANAGER}-{grant.permission_set.name}", _copies(grant.permission_set.rules)
    cluster_rules = _copies(grant.permission_set.cluster_rules)
    if not grant.namespaces:
        role = _role("ClusterRole", name, [*rules, *cluster_rules])
        yield from (role, _binding(role, account))
        return
    role, read_rules = _role("ClusterRole", name, rules), [*_read_only(rules), *cluster_rules]
    if read_rules:
        read_role = _role("ClusterRole", f"{name}-read", read_rules)
        yield from (read_role, _binding(read_role, account))
    yield role
    yield from (_binding(role, account, namespace=namespace) for namespace in grant.namespaces)


def _copies(rules: Iterable[JsonObject]) -> list[JsonObject]:
    return [dict(rule) for rule in rules]


def _read_only(rules: Iterable[JsonObject]) -> list[JsonObject]:
    """The rules with their read verbs only."""
    limited = ({**rule, "verbs": [verb for verb in rule["verbs"] if verb in ("get", "list", "watch")]} for rule in rules)
    return [rule for rule in limited if rule["verbs"]]


def user_facing_roles(kinds: Iterable[type[DLJob]]) -> list[JsonObject]:
    """ClusterRoles for jobs and Crons that are aggregated to the default roles `view`, `edit` and `admin`."""
    kinds = tuple(kinds)
    plurals_by_group = _plurals_by_group(kinds)
    for group, plurals in _plan_plurals_by_group(kinds).items():
        plurals_by_group.setdefault(group, []).extend(plurals)
    plurals_by_group[CRONS.group] = [CRONS.plural]
    scalable_by_group = _plurals_by_group(kind for kind in kinds if kind.schema.scale_role(kind))
    view_rules = [_rule(group, plurals, *_VIEW_VERBS) for group, plurals in plurals_by_group.items()]
    edit_rules = [_rule(group, plurals, *_EDIT_VERBS) for group, plurals in plurals_by_group.items()]
    for group, plurals in scalable_by_group.items():
        edit_rules.append(_rule(group, [f"{plural}/scale" for plural in plurals], "get", "update", "patch"))
    view = _role("ClusterRole", f"{MANAGER}-view", view_rules)
    edit = _role("ClusterRole", f"{MANAGER}-edit", edit_rules)
    view["metadata"]["labels"] |= {f"{RBAC}/aggregate-to-view": "true"}
    edit["metadata"]["labels"] |= {f"{RBAC}/aggregate-to-edit": "true", f"{RBAC}/aggregate-to-admin": "true"}
    return [view, edit]


def _lease_rbac(account: ServiceAccountRef) -> list[JsonObject]:
    role = _role("Role", f"{MANAGER}-leader-election", lease_rules(MANAGER), namespace=account.namespace)
    return [role, _binding(role, account)]


def _plurals_by_group(kinds: Iterable[type[DLJob]]) -> dict[str, list[str]]:
    plurals_by_group: dict[str, list[str]] = {}
    for kind in kinds:
        plurals = plurals_by_group.setdefault(kind.job_type.group, [])
        if kind.job_type.plural not in plurals:
            plurals.append(kind.job_type.plural)
    return plurals_by_group


def _plan_plurals_by_group(kinds: Iterable[type[DLJob]]) -> dict[str, list[str]]:
    """The resources of scale plans."""
    plurals_by_group: dict[str, list[str]] = {}
    for plan_type in dict.fromkeys(kind.members.plan_type for kind in kinds if kind.members is not None):
        plurals_by_group.setdefault(plan_type.group, []).append(plan_type.plural)
    return plurals_by_group


def _rule(group: str, resources: Sequence[str], *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}


def _role(kind: str, name: str, rules: Sequence[JsonObject], *, namespace: str | None = None) -> JsonObject:
    metadata: JsonObject = {"name": name, "labels": {"app.kubernetes.io/name": MANAGER}}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": list(rules)}


def _binding(role: JsonObject, account: ServiceAccountRef, *, namespace: str | None = None) -> JsonObject:
    """Bind a role where it applies. With `namespace`, bind a ClusterRole in this namespace only."""
    metadata = {**role["metadata"], "labels": {"app.kubernetes.io/name": MANAGER}}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{role['kind']}Binding" if namespace is None else "RoleBinding",
        "metadata": metadata if namespace is None else {**metadata, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC, "kind": role["kind"], "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}],
    }


class UnknownPermissionSetError(LookupError):
    """No permission set has this name. The message lists the available ones."""


def all_permission_sets(kinds: Iterable[type[DLJob]]) -> tuple[PermissionSet, ...]:
    """The permission sets of the kinds without duplicates, and those that apply to all kinds."""
    kinds = tuple(kinds)
    children = (*(child for kind in kinds for child in kind.children), *COMMON_CHILDREN)
    permission_sets = (child.permission_set for child in children)
    by_name = {permission_set.name: permission_set for permission_set in permission_sets if permission_set is not None}
    return (*by_name.values(), GANG, NODES, _cron_permissions(kinds))


def find_grants(words: Iterable[str], kinds: Iterable[type[DLJob]]) -> tuple[Grant, ...]:
    """The permission sets with these names. A word is NAME, or NAME:NAMESPACE; NAME alone includes all namespaces.

    Raises:
        UnknownPermissionSetError: a name is unknown.
    """
    available = {permission_set.name: permission_set for permission_set in all_permission_sets(kinds)}
    namespaces: dict[str, list[str]] = {}
    for name, _, namespace in (word.partition(":") for word in words):
        if name not in available:
            raise UnknownPermissionSetError(f"unknown permission set {name!r}; available: {', '.join(available)}")
        namespaces.setdefault(name, []).append(namespace)
    return tuple(Grant(available[name], () if "" in chosen else tuple(dict.fromkeys(chosen))) for name, chosen in namespaces.items())
