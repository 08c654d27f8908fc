"""The variables and the command line of a container. Pure: what has to be looked up is handed in.

The order is the kubelet's: `envFrom` in the order of the list, then `env`, in which each value may refer to what came
before it with `$(NAME)`. A reference to nothing stays as it is, and `$$` is a dollar.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dlop.kube.quantity import in_units
from dlop.kube.types import JsonObject

_REFERENCE = re.compile(r"\$(?:\$|\(([^()]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")
_LIMITED_BY_NODE = ("cpu", "memory", "ephemeral-storage")


class ConfigurationProblem(Exception):  # noqa: N818 - it is the user's to solve
    """Something that a container refers to is not there. The message is the kubelet's."""


@dataclass(frozen=True, slots=True)
class DownwardValues:
    """Where a pod runs: the values of fields that only the node knows."""

    host_address: str
    pod_address: str
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """What the node has: the limit of who has none."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The config maps and secrets of the pod's namespace that it names; None for one that does not exist."""

    config_maps: Mapping[str, JsonObject | None] = field(default_factory=dict)
    secrets: Mapping[str, JsonObject | None] = field(default_factory=dict)


# --- what has to be looked up ---------------------------------------------------------------------------------------------


def named_sources(container: JsonObject) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the config maps and of the secrets that a container's variables come from."""
    config_maps: set[str] = set()
    secrets: set[str] = set()
    for each in container.get("envFrom") or ():
        config_maps |= _name(each.get("configMapRef"))
        secrets |= _name(each.get("secretRef"))
    for each in container.get("env") or ():
        source = each.get("valueFrom") or {}
        config_maps |= _name(source.get("configMapKeyRef"))
        secrets |= _name(source.get("secretKeyRef"))
    return frozenset(config_maps), frozenset(secrets)


def _name(reference: JsonObject | None) -> set[str]:
    return {reference.get("name", "")} if reference else set()


# --- variables ------------------------------------------------------------------------------------------------------------


def variables(pod: JsonObject, container: JsonObject, *, place: DownwardValues, sources: Sources) -> dict[str, str]:
    """All variables that the pod asks for.

    Raises:
        ConfigurationProblem: when something that is not optional is missing.
    """
    found: dict[str, str] = {}
    for each in container.get("envFrom") or ():
        found |= _whole_source(each, sources)
    for each in container.get("env") or ():
        value = _value(pod, container, each, found, place=place, sources=sources)
        if value is not None:
            found[each["name"]] = value
    return found


def _whole_source(entry: JsonObject, sources: Sources) -> dict[str, str]:
    if reference := entry.get("configMapRef"):
        data = _config_map(reference, sources)
    elif reference := entry.get("secretRef"):
        data = _secret(reference, sources)
    else:
        return {}
    return {f"{entry.get('prefix') or ''}{key}": value for key, value in (data or {}).items()}


def _value(
    pod: JsonObject, container: JsonObject, entry: JsonObject, known: Mapping[str, str], *, place: DownwardValues, sources: Sources
) -> str | None:
    """The value of a variable; None if it is optional and there is none."""
    if entry.get("value"):
        return expanded(entry["value"], known)
    source = entry.get("valueFrom") or {}
    if reference := source.get("fieldRef"):
        return field_value(pod, reference["fieldPath"], place=place)
    if reference := source.get("resourceFieldRef"):
        return resource_value(pod, container, reference, place=place)
    if reference := source.get("configMapKeyRef"):
        return _key(_config_map(reference, sources), reference, f"ConfigMap {_path(pod, reference)}")
    if reference := source.get("secretKeyRef"):
        return _key(_secret(reference, sources), reference, f"Secret {_path(pod, reference)}")
    return ""


def _key(data: Mapping[str, str] | None, reference: JsonObject, where: str) -> str | None:
    if data is None:
        return None
    if reference["key"] in data:
        return data[reference["key"]]
    if reference.get("optional"):
        return None
    raise ConfigurationProblem(f"couldn't find key {reference['key']} in {where}")


def _path(pod: JsonObject, reference: JsonObject) -> str:
    return f"{pod['metadata']['namespace']}/{reference.get('name', '')}"


def _config_map(reference: JsonObject, sources: Sources) -> dict[str, str] | None:
    found = sources.config_maps.get(reference.get("name", ""))
    if found is None and not reference.get("optional"):
        raise ConfigurationProblem(f'configmap "{reference.get("name", "")}" not found')
    return None if found is None else found.get("data") or {}


def _secret(reference: JsonObject, sources: Sources) -> dict[str, str] | None:
    found = sources.secrets.get(reference.get("name", ""))
    if found is None and not reference.get("optional"):
        raise ConfigurationProblem(f'secret "{reference.get("name", "")}" not found')
    if found is None:
        return None
    # Variables are bytes; what is no UTF-8 is carried through as Python carries such variables.
    return {key: base64.b64decode(value).decode(errors="surrogateescape") for key, value in (found.get("data") or {}).items()}


# --- fields and resources of the pod --------------------------------------------------------------------------------------


def field_value(pod: JsonObject, path: str, *, place: DownwardValues) -> str:
    """The value of a field of the pod, by the paths of the downward API.

    Raises:
        ConfigurationProblem: no such field can be asked for.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match[1]) or {}).get(match[2], ""))
    if path in ("metadata.labels", "metadata.annotations"):
        return _as_lines(metadata.get(path.partition(".")[2]) or {})
    known: dict[str, Any] = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.hostIP": place.host_address,
        "status.hostIPs": place.host_address,
        "status.podIP": place.pod_address,
        "status.podIPs": place.pod_address,
    }
    if path not in known:
        raise ConfigurationProblem(f"unsupported fieldPath: {path}")
    return known[path] or ""


def _as_lines(labels: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={_quoted(labels[key])}" for key in sorted(labels))


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r")
    return f'"{inner}"'


def resource_value(pod: JsonObject, container: JsonObject | None, reference: JsonObject, *, place: DownwardValues) -> str:
    """A request or limit in units of the divisor, rounded up. Without a limit, the node's own size is the limit."""
    name = reference.get("containerName")
    if name:
        every = [*(pod["spec"].get("containers") or ()), *(pod["spec"].get("initContainers") or ())]
        container = next((each for each in every if each["name"] == name), None)
        if container is None:
            raise ConfigurationProblem(f"container {name} not found")
    kind, _, resource = reference["resource"].partition(".")
    given = (((container or {}).get("resources") or {}).get(kind) or {}).get(resource)
    if given is None and kind == "limits" and resource in _LIMITED_BY_NODE:
        given = place.allocatable.get(resource)
    return str(in_units(given or "0", divisor=str(reference.get("divisor") or "1")))


# --- $(NAME) --------------------------------------------------------------------------------------------------------------


def expanded(text: str, known: Mapping[str, str]) -> str:
    """The text with `$(NAME)` replaced by the variable where there is one, and `$$` by a dollar."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return known.get(match[1], match[0])

    return _REFERENCE.sub(replacement, text)


def all_expanded(texts: Iterable[str], known: Mapping[str, str]) -> tuple[str, ...]:
    """Every text expanded: a command or its arguments."""
    return tuple(expanded(text, known) for text in texts)
