"""Discovery documents: API groups, versions and resources, and the server version.

Both the documents per group and version and the aggregated document, which `kubectl` prefers, are supported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dlop.embedded.apiserver.registry import ResourceRegistry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STABILITY = {"": 2, "beta": 1, "alpha": 0}

_SERVER_VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.3",
    "gitCommit": "",
    "gitTreeState": "",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}


def respond(path: str, accept: str, registry: ResourceRegistry) -> Response | None:
    """The document at a path; None for other paths."""
    parts = path.strip("/").split("/")
    version = _aggregated_version(accept)
    match parts:
        case ["version"]:
            return _json(_SERVER_VERSION)
        case ["api"]:
            return _aggregated(registry, version, core=True) if version else _json(_core_versions(registry))
        case ["apis"]:
            return _aggregated(registry, version, core=False) if version else _json(_groups(registry))
        case ["api", version_name]:
            return _resources(registry, "", version_name)
        case ["apis", group]:
            document = _group(registry, group)
            return _json({"kind": "APIGroup", "apiVersion": "v1", **document}) if document else None
        case ["apis", group, version_name]:
            return _resources(registry, group, version_name)
        case _:
            return None


def _json(document: JsonObject, content_type: str = JSON) -> Response:
    headers = {"content-type": content_type, "cache-control": "no-cache, private"}
    return Response(200, headers, msgspec.json.encode(document))


def _aggregated_version(accept: str) -> str:
    """The aggregated discovery version that the client accepts; empty for none."""
    for clause in accept.split(","):
        parameters = {part.strip() for part in clause.split(";")}
        if JSON not in parameters:
            continue
        if {"g=apidiscovery.k8s.io", "as=APIGroupDiscoveryList"} <= parameters:
            return next((parameter[2:] for parameter in parameters if parameter in ("v=v2", "v=v2beta1")), "")
        return ""
    return ""


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A sort key for versions, the preferred one last. Descending order: v2, v1, v1beta2, v1alpha1, then others."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0, version)
    return (_STABILITY[match[2] or ""], int(match[1]), int(match[3] or 0), "")


def _by_group(registry: ResourceRegistry) -> dict[str, dict[str, list[ResourceType]]]:
    """Types by group and version; the preferred version of a group comes first."""
    groups: dict[str, dict[str, list[ResourceType]]] = {}
    for resource_type in registry.all():
        groups.setdefault(resource_type.resource.group, {}).setdefault(resource_type.resource.version, []).append(resource_type)
    return {
        group: {version: versions[version] for version in sorted(versions, key=version_priority, reverse=True)}
        for group, versions in groups.items()
    }


def _core_versions(registry: ResourceRegistry) -> JsonObject:
    versions = list(_by_group(registry).get("", {}))
    return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}


def _groups(registry: ResourceRegistry) -> JsonObject:
    names = [group for group in _by_group(registry) if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(registry, name) for name in names]}


def _group(registry: ResourceRegistry, group: str) -> JsonObject | None:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _by_group(registry).get(group, {})]
    if not group or not versions:
        return None
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(registry: ResourceRegistry, group: str, version: str) -> Response | None:
    types = _by_group(registry).get(group, {}).get(version)
    if types is None:
        return None
    resources = [entry for resource_type in _sorted(types) for entry in _resource_entries(resource_type)]
    group_version = f"{group}/{version}" if group else version
    return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})


def _sorted(types: Sequence[ResourceType]) -> list[ResourceType]:
    return sorted(types, key=lambda resource_type: resource_type.resource.plural)


def _resource_entries(resource_type: ResourceType) -> list[JsonObject]:
    resource = resource_type.resource
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": resource_type.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
    }
    entries = [{**entry, "verbs": list(resource_type.verbs), **_other_names(resource_type)}]
    for sub in _subresources(resource_type):
        names: JsonObject = {"name": f"{resource.plural}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
        # Only subresources with a response of another group name the group.
        other_group = {"group": sub.group, "version": sub.version} if sub.group != resource.group else {}
        entries.append({**names, **other_group, "kind": sub.kind, "verbs": list(sub.verbs)})
    return entries


class _Subresource(NamedTuple):
    """A subresource and the kind of its response."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")


_SPECIAL_SUBRESOURCES = {
    "namespaces": (_Subresource("finalize", "", "v1", "Namespace", ("update",)),),
    "pods": (
        _Subresource("attach", "", "v1", "PodAttachOptions", ("create", "get")),
        _Subresource("binding", "", "v1", "Binding", ("create",)),
        _Subresource("eviction", "policy", "v1", "Eviction", ("create",)),
        _Subresource("exec", "", "v1", "PodExecOptions", ("create", "get")),
        _Subresource("log", "", "v1", "Pod", ("get",)),
        _Subresource("portforward", "", "v1", "PodPortForwardOptions", ("create", "get")),
    ),
    "serviceaccounts": (_Subresource("token", "authentication.k8s.io", "v1", "TokenRequest", ("create",)),),
}


def _subresources(resource_type: ResourceType) -> list[_Subresource]:
    resource = resource_type.resource
    subresources = list(_SPECIAL_SUBRESOURCES.get(resource_type.storage, ()))
    if resource_type.has_status:
        subresources.append(_Subresource("status", resource.group, resource.version, resource.kind))
    if resource_type.scale is not None:
        subresources.append(_Subresource("scale", "autoscaling", "v1", "Scale"))
    return subresources


def _other_names(resource_type: ResourceType) -> JsonObject:
    names = {"shortNames": list(resource_type.short_names), "categories": list(resource_type.categories)}
    return {name: values for name, values in names.items() if values}


def _aggregated(registry: ResourceRegistry, version: str, *, core: bool) -> Response:
    items = []
    for group, versions in _by_group(registry).items():
        if bool(group) == core:
            continue
        version_entries = [
            {"version": name, "resources": [_aggregated_entry(resource_type) for resource_type in _sorted(types)], "freshness": "Current"}
            for name, types in versions.items()
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": version_entries})
    document = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}, "items": items}
    return _json(document, _AGGREGATED.format(version=version))


def _aggregated_entry(resource_type: ResourceType) -> JsonObject:
    resource = resource_type.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for sub in _subresources(resource_type)
    ]
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource_type.singular,
        "verbs": list(resource_type.verbs),
        **_other_names(resource_type),
    }
    return {**entry, "subresources": subresources} if subresources else entry
