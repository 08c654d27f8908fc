"""What the server tells clients about itself: its groups, versions and resources, and the version it stands in for.

Both forms are there: the old documents, one a group and version, and the aggregated one that `kubectl` asks for first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from dlop.embedded.apiserver.registry import Registry
from dlop.embedded.apiserver.resource_type import ResourceType
from dlop.kube.transport import JSON, Response
from dlop.kube.types import JsonObject

_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_STABILITY = {"": 2, "beta": 1, "alpha": 0}


_ABOUT = {
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


def answer(path: str, accept: str, registry: Registry) -> Response | None:
    """The document at a path, or None when the path is none of discovery's."""
    parts = path.strip("/").split("/")
    version = _aggregated_version(accept)
    match parts:
        case ["version"]:
            return _json(_ABOUT)
        case ["api"]:
            return _aggregated(registry, version, core=True) if version else _json(_core_versions(registry))
        case ["apis"]:
            return _aggregated(registry, version, core=False) if version else _json(_groups(registry))
        case ["api", version_name]:
            return _resources(registry, "", version_name)
        case ["apis", group]:
            found = _group(registry, group)
            return _json({"kind": "APIGroup", "apiVersion": "v1", **found}) if found else None
        case ["apis", group, version_name]:
            return _resources(registry, group, version_name)
        case _:
            return None


def _json(document: JsonObject, content_type: str = JSON) -> Response:
    headers = {"content-type": content_type, "cache-control": "no-cache, private"}
    return Response(200, headers, msgspec.json.encode(document))


def _aggregated_version(accept: str) -> str:
    """Which version of the aggregated form is the best that the client takes and this server has; empty for none."""
    for clause in accept.split(","):
        words = {part.strip() for part in clause.split(";")}
        if JSON not in words:
            continue
        if {"g=apidiscovery.k8s.io", "as=APIGroupDiscoveryList"} <= words:
            return next((word[2:] for word in words if word in ("v=v2", "v=v2beta1")), "")
        return ""
    return ""


def version_priority(version: str) -> tuple[int, int, int, str]:
    """A key that sorts versions as Kubernetes does, the preferred one last: v2, v1, v1beta2, v1alpha1, then others."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1, 0, 0, version)
    return (_STABILITY[found[2] or ""], int(found[1]), int(found[3] or 0), "")


def _by_group(registry: Registry) -> dict[str, dict[str, list[ResourceType]]]:
    """Types by group and version; the preferred version of a group comes first."""
    groups: dict[str, dict[str, list[ResourceType]]] = {}
    for one in registry.all():
        groups.setdefault(one.resource.group, {}).setdefault(one.resource.version, []).append(one)
    return {
        group: {version: versions[version] for version in sorted(versions, key=version_priority, reverse=True)}
        for group, versions in groups.items()
    }


def _core_versions(registry: Registry) -> JsonObject:
    versions = list(_by_group(registry).get("", {}))
    return {"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": []}


def _groups(registry: Registry) -> JsonObject:
    names = [group for group in _by_group(registry) if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(registry, name) for name in names]}


def _group(registry: Registry, group: str) -> JsonObject | None:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _by_group(registry).get(group, {})]
    if not group or not versions:
        return None
    return {"name": group, "versions": versions, "preferredVersion": versions[0]}


def _resources(registry: Registry, group: str, version: str) -> Response | None:
    types = _by_group(registry).get(group, {}).get(version)
    if types is None:
        return None
    resources = [entry for one in _sorted(types) for entry in _resource_entries(one)]
    group_version = f"{group}/{version}" if group else version
    return _json({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources})


def _sorted(types: Sequence[ResourceType]) -> list[ResourceType]:
    return sorted(types, key=lambda one: one.resource.plural)


def _resource_entries(one: ResourceType) -> list[JsonObject]:
    resource = one.resource
    entry: JsonObject = {"name": resource.plural, "singularName": one.singular, "namespaced": resource.namespaced, "kind": resource.kind}
    entries = [{**entry, "verbs": list(one.verbs), **_other_names(one)}]
    for sub in _subresources(one):
        names: JsonObject = {"name": f"{resource.plural}/{sub.name}", "singularName": "", "namespaced": resource.namespaced}
        # Only what answers with an object of another group says which.
        elsewhere = {"group": sub.group, "version": sub.version} if sub.group != resource.group else {}
        entries.append({**names, **elsewhere, "kind": sub.kind, "verbs": list(sub.verbs)})
    return entries


class _Subresource(NamedTuple):
    """A path below an object, and what it answers with."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")


_MORE_SUBRESOURCES = {
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


def _subresources(one: ResourceType) -> list[_Subresource]:
    resource = one.resource
    found = list(_MORE_SUBRESOURCES.get(one.storage, ()))
    if one.has_status:
        found.append(_Subresource("status", resource.group, resource.version, resource.kind))
    if one.scale is not None:
        found.append(_Subresource("scale", "autoscaling", "v1", "Scale"))
    return found


def _other_names(one: ResourceType) -> JsonObject:
    named = {"shortNames": list(one.short_names), "categories": list(one.categories)}
    return {name: values for name, values in named.items() if values}


def _aggregated(registry: Registry, version: str, *, core: bool) -> Response:
    items = []
    for group, versions in _by_group(registry).items():
        if bool(group) == core:
            continue
        listed = [
            {"version": name, "resources": [_aggregated_entry(one) for one in _sorted(types)], "freshness": "Current"}
            for name, types in versions.items()
        ]
        items.append({"metadata": {"name": group} if group else {}, "versions": listed})
    document = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}", "metadata": {}, "items": items}
    return _json(document, _AGGREGATED.format(version=version))


def _aggregated_entry(one: ResourceType) -> JsonObject:
    resource = one.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": {"group": sub.group, "version": sub.version, "kind": sub.kind},
            "verbs": list(sub.verbs),
        }
        for sub in _subresources(one)
    ]
    entry: JsonObject = {
        "resource": resource.plural,
        "responseKind": kind,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": one.singular,
        "verbs": list(one.verbs),
        **_other_names(one),
    }
    return {**entry, "subresources": subresources} if subresources else entry
