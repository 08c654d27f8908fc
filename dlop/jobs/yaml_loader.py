"""YAML as far as JSON can say the same: what a server can be told. All else is an error at its line.

A date stays the text that it is and keys become texts, as kubectl has it. What contains itself, or grows beyond all measure
through its aliases, is refused before anybody walks through it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import yaml

_MOST_NODES = 1_000_000
_TAG = "tag:yaml.org,2002:"
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class NotJsonError(yaml.MarkedYAMLError):
    """It is YAML, and says something that JSON cannot say."""


class JsonLoader(_SafeLoader):  # type: ignore[misc]
    """Reads what JSON can say."""

    def construct_document(self, node: yaml.Node) -> Any:
        """Called for each document."""
        _measure(node, {})
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - as PyYAML has it
        """Called for each mapping."""
        found: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return {_key(key, node): value for key, value in found.items()}


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}


def _number(loader: Any, node: yaml.ScalarNode) -> float:
    found: float = loader.construct_yaml_float(node)
    if not math.isfinite(found):
        raise _error(f"{node.value} is no number that JSON can say", node)
    return found


def _refuse(_: Any, node: yaml.Node) -> None:
    raise _error(f"{node.tag.replace(_TAG, '!!')} is nothing that JSON can say", node)


JsonLoader.add_constructor(f"{_TAG}float", _number)
for _name in ("binary", "set", "omap", "pairs", "timestamp"):
    JsonLoader.add_constructor(f"{_TAG}{_name}", _refuse)


def _key(key: Hashable, node: yaml.Node) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise _error(f"a key must be a text, not {key!r:.60}", node)


def _measure(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node becomes when every alias is written out. Each node is looked at once."""
    known = sizes.get(id(node))
    if known == 0:
        raise _error("it contains itself", node)
    if known is not None:
        return known
    sizes[id(node)] = 0
    size = 1 + sum(_measure(child, sizes) for child in _children(node))
    if size > _MOST_NODES:
        raise _error(f"it has more than {_MOST_NODES} values, when its aliases are written out", node)
    sizes[id(node)] = size
    return size


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _error(problem: str, node: yaml.Node) -> NotJsonError:
    return NotJsonError(problem=problem, problem_mark=node.start_mark)
