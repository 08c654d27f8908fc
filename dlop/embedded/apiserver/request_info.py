"""Parses the path, method and query of a request into a `RequestInfo`.

Existence of the object and validity of the body are checked later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote

from dlop.embedded.apiserver.api_errors import bad_request, method_not_allowed_here, no_such_path
from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.embedded.apiserver.users import User
from dlop.kube.transport import Request


class Verb(StrEnum):
    GET = "get"
    LIST = "list"
    WATCH = "watch"
    CREATE = "create"
    UPDATE = "update"
    PATCH = "patch"
    DELETE = "delete"
    DELETE_COLLECTION = "deletecollection"


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """A parsed API path. An empty name means the collection."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    verb: Verb
    type: ResourceType
    target: RequestTarget
    query: Mapping[str, str]
    user: User

    def number(self, parameter: str) -> int:
        """An integer parameter of the query; 0 if absent.

        Raises:
            BadRequestError: the value is not an integer.
        """
        text = self.query.get(parameter) or "0"
        if not text.lstrip("-").isdecimal():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    def flag(self, parameter: str) -> bool:
        """A boolean parameter of the query. As in kube-apiserver, every value except `0` and `false` is true."""
        return parameter in self.query and self.query[parameter].lower() not in ("0", "false")


class UnknownPathError(Exception):
    """The path does not belong to a resource."""


def parse_target(path: str) -> RequestTarget | None:
    """Parse a resource path; None for other paths."""
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # `namespaces/x/pods` is a path of pods; `namespaces/x` and `namespaces/x/status` are paths of the namespace itself.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 or not all(rest):
        return None
    plural, name, subresource = (*rest, "", "")[:3]
    return RequestTarget(group, version, plural, namespace, name, subresource)


def parse_request(request: Request, registry: ResourceRegistry, *, user: User) -> RequestInfo:
    """Parse a request of a user.

    Raises:
        UnknownPathError: the path does not belong to a resource.
        StatusError: the resource does not exist or does not support the verb.
    """
    target = parse_target(request.path)
    if target is None:
        raise UnknownPathError
    query = dict(request.query)
    type = registry.find(target.group, target.version, target.plural)
    if type is None:
        raise no_such_path() if registry.has_builtin_group(target.group) else UnknownPathError
    _check_scope(type, target, request.method)
    verb = _supported_verb(request.method, target, query)
    if verb is None and type.is_custom and method_needs_name(request.method):
        raise bad_request("name must be provided")
    if verb is None or (not target.subresource and verb not in type.verbs):
        raise method_not_allowed_here()
    return RequestInfo(verb, type, target, query, user)


def method_needs_name(method: str) -> bool:
    """Whether the method applies to single objects only."""
    return method in ("PUT", "PATCH")


def _check_scope(type: ResourceType, target: RequestTarget, method: str) -> None:
    if not type.resource.namespaced and target.namespace:
        raise no_such_path()
    if type.resource.namespaced and not target.namespace and (target.name or method != "GET"):
        if type.is_custom:
            raise UnknownPathError
        raise no_such_path() if target.name else method_not_allowed_here()


def requested_verb(method: str, target: RequestTarget, query: Mapping[str, str]) -> Verb | None:
    """The verb for RBAC, whether the resource supports it or not. None for other methods."""
    if method == "GET" and not target.name:
        watching = query.get("watch", "false").lower() not in ("0", "false")
        return Verb.WATCH if watching else Verb.LIST
    if method == "DELETE" and not target.name:
        return Verb.DELETE_COLLECTION
    return _BY_METHOD.get(method)


def _supported_verb(method: str, target: RequestTarget, query: Mapping[str, str]) -> Verb | None:
    """The verb, or None if the path does not allow it."""
    verb = requested_verb(method, target, query)
    if verb is Verb.CREATE:
        return verb if target.subresource or not target.name else None
    return verb if target.name or verb in _COLLECTION_VERBS else None


_COLLECTION_VERBS = (Verb.LIST, Verb.WATCH, Verb.DELETE_COLLECTION)
_BY_METHOD = {"GET": Verb.GET, "POST": Verb.CREATE, "PUT": Verb.UPDATE, "PATCH": Verb.PATCH, "DELETE": Verb.DELETE}
