"""Reads what the specs of both kinds have in common.

Zeros and empty values count as unset, because the old operators stored them for fields that the user had not set.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from dlop import JsonObject, ManifestField

DEFAULT_PORT = 7164
MAX_PORTS = 1_000
"""Of one kind. Limits the size of pods and services if a user mistypes the number."""
MAX_REPLICAS = 10_000
_MAX_PORT = 65_535
_SPELLED_DIFFERENTLY = frozenset({"hostnetwork", "imagepullsecrets", "mountpath", "nodeselector", "volumemounts"})
"""Fields that published manifests spell in several ways."""


def find_any(field: ManifestField, name: str) -> ManifestField:
    """A field that manifests spell in several ways: case and underscores do not matter."""
    key = next((key for key, value in field.entries() if fold(key) == fold(name) and not value.is_absent), name)
    return field.get(key)


def fold(name: str) -> str:
    """The name without case and underscores if it is spelled in several ways; otherwise the name itself."""
    folded = name.replace("_", "").lower()
    return folded if folded in _SPELLED_DIFFERENTLY else name


def is_set(value: Any) -> bool:
    """Whether a value, or a value in it, is neither zero nor empty."""
    if isinstance(value, dict):
        return any(is_set(part) for part in value.values())
    return bool(value)


def read_objects(field: ManifestField) -> list[JsonObject]:
    """The objects of a list."""
    return [item.object() for item in field.items() if not item.is_absent]


def read_strings(field: ManifestField) -> list[str]:
    """The strings of a list, such as a command."""
    if any(item.is_absent for item in field.items()):
        field.error("must not contain null; remove it")
    return [item.string() for item in field.items()]


def read_string_map(field: ManifestField) -> dict[str, str]:
    """The strings of an object, sorted by key."""
    field.object()
    return {name: value.string() for name, value in sorted(field.entries(), key=lambda entry: entry[0])}


def read_command(field: ManifestField, default: Sequence[str]) -> list[str]:
    """A command line, split like a shell does it. No shell runs it."""
    try:
        return shlex.split(field.string()) or list(default)
    except ValueError as error:
        reason = str(error)
        field.error(f"cannot be split into words: {reason[:1].lower()}{reason[1:]}; close all quotes, and escape quotes with a backslash")
        return list(default)


def read_port(spec: ManifestField) -> int:
    """The first port."""
    return spec.get("port").integer(0, maximum=_MAX_PORT) or DEFAULT_PORT


def read_ports(spec: ManifestField) -> range:
    """The ports for dense and sparse parameters."""
    counts = (spec.get(name).integer(0, maximum=MAX_PORTS) or 1 for name in ("ports_num", "ports_num_for_sparse"))
    return port_range(spec.get("port"), first=read_port(spec), count=sum(counts))


def read_trainer_ports(spec: ManifestField) -> range:
    """The ports for trainers that reach each other; empty by default."""
    field, count = spec.get("trainer_port"), spec.get("trainer_ports_num").integer(0, maximum=MAX_PORTS)
    first = field.integer(0, maximum=_MAX_PORT)
    if count and not first:
        field.error(f"is missing; set it to the first of the {count} ports (trainer_ports_num) of the trainers")
    return port_range(field, first=first, count=count)


def port_range(field: ManifestField, *, first: int, count: int) -> range:
    """Consecutive ports. `field` is the one that sets the first."""
    last = first + count - 1
    if last > _MAX_PORT:
        field.error(f"must leave room for all ports; the last one would be {last}, above {_MAX_PORT}")
    return range(first, first + count)


def read_passes(spec: ManifestField) -> int:
    """The number of passes. The published examples have it in the trainer."""
    return spec.get("passes").integer(0) or spec.get("trainer").get("passes").integer(0) or 1


def read_limits(role: ManifestField) -> tuple[int, int]:
    """Minimum and maximum number of pods of a role. Both default to the minimum, and the minimum to 1."""
    minimum = role.get("min-instance").integer(1, maximum=MAX_REPLICAS)
    return minimum, role.get("max-instance").integer(0, maximum=MAX_REPLICAS) or minimum
