"""Environment variables and argument expansion of containers. Pure; the caller reads config maps and secrets.

The order is that of the kubelet: `envFrom` in list order, then `env`, where each value may refer to earlier variables with `$(NAME)`.
An unresolvable reference is left unchanged, and `$$` is a literal dollar sign.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlop.kube.quantity import value_in_units
from dlop.kube.types import JsonObject

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_SUBSCRIPTED_FIELD = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
_NODE_LIMITED_RESOURCES = ("cpu", "memory", "ephemeral-storage")


class ContainerConfigError(Exception):
    """A container refers to a missing object or an invalid field. The message is that of the kubelet."""


@dataclass(frozen=True, slots=True)
class DownwardValues:
    """Values of the downward API that only the node knows."""

    host_ip: str
    pod_ip: str
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """Used as the limits of containers without limits."""


@dataclass(frozen=True, slots=True)
class ConfigSources:
    """The config maps and secrets that a pod refers to, by name. None if an object does not exist."""

    config_maps: Mapping[str, JsonObject | None] = field(default_factory=dict)
    secrets: Mapping[str, JsonObject | None] = field(default_factory=dict)


# --- references -----------------------------------------------------------------------------------------------------------


def referenced_sources(container: JsonObject) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the config maps and of the secrets that a container's variables refer to."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for entry in container.get("envFrom") or ():
        config_maps |= _referenced_name(entry.get("configMapRef"))
        secrets |= _referenced_name(entry.get("secretRef"))
    for entry in container.get("env") or ():
        source = entry.get("valueFrom") or {}
        config_maps |= _referenced_name(source.get("configMapKeyRef"))
        secrets |= _referenced_name(source.get("secretKeyRef"))
    return frozenset(config_maps), frozenset(secrets)


def _referenced_name(reference: JsonObject | None) -> set[str]:
    return {reference.get("name", "")} if reference else set()


# --- variables ------------------------------------------------------------------------------------------------------------


def build_environment(pod: JsonObject, container: JsonObject, *, downward: DownwardValues, sources: ConfigSources) -> dict[str, str]:
    """All variables that the pod's spec defines.

    Raises:
        ContainerConfigError: a required reference is missing.
    """
    environment: dict[str, str] = {}
    for entry in container.get("envFrom") or ():
        environment |= _env_from(entry, sources)
    for entry in container.get("env") or ():
        value = _env_value(pod, container, entry, environment, downward=downward, sources=sources)
        if value is not None:
            environment[entry["name"]] = value
    return environment


def _env_from(entry: JsonObject, sources: ConfigSources) -> dict[str, str]:
    if reference := entry.get("configMapRef"):
        data = _config_map_data(reference, sources)
    elif reference := entry.get("secretRef"):
        data = _secret_data(reference, sources)
    else:
        return {}
    return {f"{entry.get('prefix') or ''}{key}": value for key, value in (data or {}).items()}


def _env_value(
    pod: JsonObject,
    container: JsonObject,
    entry: JsonObject,
    environment: Mapping[str, str],
    *,
    downward: DownwardValues,
    sources: ConfigSources,
) -> str | None:
    """The value of a variable. None if its reference is optional and missing."""
    if entry.get("value"):
        return expand(entry["value"], environment)
    source = entry.get("valueFrom") or {}
    if reference := source.get("fieldRef"):
        return resolve_field_ref(pod, reference["fieldPath"], downward=downward)
    if reference := source.get("resourceFieldRef"):
        return resolve_resource_field_ref(pod, container, reference, downward=downward)
    if reference := source.get("configMapKeyRef"):
        return _key_value(_config_map_data(reference, sources), reference, f"ConfigMap {_source_path(pod, reference)}")
    if reference := source.get("secretKeyRef"):
        return _key_value(_secret_data(reference, sources), reference, f"Secret {_source_path(pod, reference)}")
    return ""


def _key_value(data: Mapping[str, str] | None, reference: JsonObject, where: str) -> str | None:
    if data is None:
        return None
    if reference["key"] in data:
        return data[reference["key"]]
    if reference.get("optional"):
        return None
    raise ContainerConfigError(f"couldn't find key {reference['key']} in {where}")


def _source_path(pod: JsonObject, reference: JsonObject) -> str:
    return f"{pod['metadata']['namespace']}/{reference.get('name', '')}"


def _config_map_data(reference: JsonObject, sources: ConfigSources) -> dict[str, str] | None:
    config_map = sources.config_maps.get(reference.get("name", ""))
    if config_map is None and not reference.get("optional"):
        raise ContainerConfigError(f'configmap "{reference.get("name", "")}" not found')
    return None if config_map is None else config_map.get("data") or {}


def _secret_data(reference: JsonObject, sources: ConfigSources) -> dict[str, str] | None:
    secret = sources.secrets.get(reference.get("name", ""))
    if secret is None and not reference.get("optional"):
        raise ContainerConfigError(f'secret "{reference.get("name", "")}" not found')
    if secret is None:
        return None
    # Variables are bytes. Python represents those that are not UTF-8 with surrogate escapes.
    return {key: base64.b64decode(value).decode(errors="surrogateescape") for key, value in (secret.get("data") or {}).items()}


# --- fields and resources of the pod --------------------------------------------------------------------------------------


def resolve_field_ref(pod: JsonObject, path: str, *, downward: DownwardValues) -> str:
    """The value of a field of the pod, by its path in the downward API.

    Raises:
        ContainerConfigError: the downward API has no such field.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPTED_FIELD.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        return _format_labels(metadata.get(path.partition(".")[2]) or {})
    values: dict[str, Any] = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.hostIP": downward.host_ip,
        "status.hostIPs": downward.host_ip,
        "status.podIP": downward.pod_ip,
        "status.podIPs": downward.pod_ip,
    }
    if path not in values:
        raise ContainerConfigError(f"unsupported fieldPath: {path}")
    return values[path] or ""


def _format_labels(labels: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={_quote(labels[key])}" for key in sorted(labels))


def _quote(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{inner}"'


def resolve_resource_field_ref(pod: JsonObject, container: JsonObject | None, reference: JsonObject, *, downward: DownwardValues) -> str:
    """A request or limit in units of the divisor, rounded up. A missing limit is that of the node."""
    name = reference.get("containerName")
    if name:
        containers = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
        container = next((item for item in containers if item["name"] == name), None)
        if container is None:
            raise ContainerConfigError(f"container {name} not found")
    kind, _, resource = reference["resource"].partition(".")
    quantity = (((container or {}).get("resources") or {}).get(kind) or {}).get(resource)
    if quantity is None and kind == "limits" and resource in _NODE_LIMITED_RESOURCES:
        quantity = downward.allocatable.get(resource)
    return str(value_in_units(quantity or "0", divisor=str(reference.get("divisor") or "1")))


# --- $(NAME) --------------------------------------------------------------------------------------------------------------


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the value of a known variable, and `$$` by a dollar sign."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return environment.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def expand_all(texts: Iterable[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(expand(text, environment) for text in texts)
