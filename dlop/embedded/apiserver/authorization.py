"""Authorization: RBAC rules for resources, and fixed rules for other paths.

Members of `system:masters` may do everything and are not checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlop.embedded.apiserver.api_errors import forbidden, status_error
from dlop.embedded.apiserver.request_info import RequestTarget, Verb, parse_target, requested_verb
from dlop.embedded.apiserver.store import ObjectKey, Store
from dlop.embedded.apiserver.users import User, service_account_name
from dlop.kube.errors import ForbiddenError
from dlop.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource
from dlop.kube.transport import Request
from dlop.kube.types import JsonObject

HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
# Paths that kube-apiserver serves without authentication.
_PUBLIC_PATHS = (*HEALTH_PATHS, "/version")
_ALL = "*"
# These always need the create verb, although a WebSocket is opened by GET.
_STREAMS = frozenset({"exec", "attach", "portforward"})


def check(store: Store, user: User, request: Request) -> None:
    """Check that the user may send the request. Whether its path exists is not checked.

    Raises:
        ForbiddenError: the user may not.
    """
    if user.is_privileged:
        return
    target = parse_target(request.path)
    if target is None:
        _check_path(user, request)
        return
    verb = Verb.CREATE if target.subresource in _STREAMS else requested_verb(request.method, target, dict(request.query))
    check_verb(store, user, verb or "", target)


def check_verb(store: Store, user: User, verb: str, target: RequestTarget) -> None:
    """Check that the user may use a verb on an object or a collection.

    Raises:
        ForbiddenError: no role of the user allows it.
    """
    if not is_allowed(store, user, verb, target):
        raise _forbidden(user, verb, target)


def _check_path(user: User, request: Request) -> None:
    """Discovery is allowed for all authenticated users."""
    if not user.is_authenticated and request.path.rstrip("/") not in _PUBLIC_PATHS:
        message = f'forbidden: User "{user.name}" cannot {request.method.lower()} path "{request.path}"'
        raise status_error(ForbiddenError, message, {})


def is_allowed(store: Store, user: User, verb: str, target: RequestTarget) -> bool:
    """Whether RBAC allows the verb. `verb` can also be one that no request has, such as `bind`."""
    return user.is_privileged or any(_allows(rule, verb, target) for rule in user_rules(store, user, target.namespace))


def user_rules(store: Store, user: User, namespace: str) -> Iterator[JsonObject]:
    """The RBAC rules of the user in all namespaces and in this one."""
    for _, binding in store.list(CLUSTER_ROLE_BINDINGS.qualified_name):
        yield from _binding_rules(store, user, binding.body, "")
    if namespace:
        for _, binding in store.list(ROLE_BINDINGS.qualified_name, namespace=namespace):
            yield from _binding_rules(store, user, binding.body, namespace)


def _binding_rules(store: Store, user: User, binding: JsonObject, namespace: str) -> Sequence[JsonObject]:
    if not any(_is_subject(subject, user, namespace) for subject in binding.get("subjects") or ()):
        return ()
    return role_rules(store, binding["roleRef"], namespace) or ()


def role_rules(store: Store, role_ref: JsonObject, namespace: str) -> Sequence[JsonObject] | None:
    """The rules of the role that a binding in the namespace refers to. None if the role does not exist."""
    resource, role_namespace = (ROLES, namespace) if role_ref["kind"] == ROLES.kind else (CLUSTER_ROLES, "")
    role = store.get(ObjectKey(resource.qualified_name, role_namespace, role_ref["name"]))
    return None if role is None else role.body.get("rules") or ()


def _is_subject(subject: JsonObject, user: User, namespace: str) -> bool:
    name = subject["name"]
    if subject["kind"] == "ServiceAccount":
        return user.name == service_account_name(subject.get("namespace") or namespace, name)
    return name == user.name if subject["kind"] == "User" else name in user.groups


def _allows(rule: JsonObject, verb: str, target: RequestTarget) -> bool:
    names = rule.get("resourceNames")
    return (
        _has(rule, "verbs", verb)
        and _has(rule, "apiGroups", target.group)
        and (_has(rule, "resources", _resource(target)) or f"{_ALL}/{target.subresource}" in (rule.get("resources") or ()))
        and (not names or target.name in names)
    )


def _has(rule: JsonObject, field: str, value: str) -> bool:
    allowed = rule.get(field) or ()
    return value in allowed or _ALL in allowed


def _resource(target: RequestTarget) -> str:
    return f"{target.plural}/{target.subresource}" if target.subresource else target.plural


def _forbidden(user: User, verb: str, target: RequestTarget) -> ForbiddenError:
    scope = f'in the namespace "{target.namespace}"' if target.namespace else "at the cluster scope"
    action = f'cannot {verb} resource "{_resource(target)}" in API group "{target.group}" {scope}'
    resource = Resource(target.group, target.version, target.plural, "")
    return forbidden(resource, target.name, f'User "{user.name}" {action}')
