"""Manifests in files: what they say, and in which line they say it.

YAML as far as JSON can say the same: what a server can be told. All else is an error at its line.

A date stays the text that it is and keys become texts, as kubectl has it. What contains itself, or grows beyond all measure
through its aliases, is refused before anybody walks through it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

# An index, a key that stands in brackets because it may have dots, or a field.
_STEP = re.compile(r"\[(?P<index>\d+)\]|\[(?P<key>[^\]]+)\]|[^.\[\]]+")


class ManifestError(Exception):
    """A file cannot be read, or is no YAML. The message names the file and the line."""


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a file."""

    name: str
    """Of the file."""
    content: Any
    node: yaml.Node

    def place(self, path: str = "") -> str:
        """`file:line` of a field, or of the nearest thing around it that is written down."""
        return f"{self.name}:{_line(self.node, path)}"


def read_file(name: str) -> list[Document]:
    """The objects of a file; `-` is the standard input.

    Raises:
        ManifestError: it cannot be read, is no YAML, or has nothing in it.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except OSError as error:
        raise ManifestError(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name} is no text: {error}.") from error
    found = list(documents(text, name=name))
    if not found:
        raise ManifestError(f"{name} is empty; it must have the manifest of a job.")
    return found


def documents(text: str, *, name: str) -> Iterator[Document]:
    """The objects of a file; empty ones are left out.

    Raises:
        ManifestError: it is no YAML.
    """
    loader = JsonLoader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            content = loader.construct_document(node)
            if content is not None:
                yield Document(name, content, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        what = "" if isinstance(error, NotJsonError) else "this is no YAML: "
        raise ManifestError(f"{name}:{line}: {what}{error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{name}: this is no YAML: {error}") from error
    except RecursionError as error:
        raise ManifestError(f"{name}: this is nested too deeply.") from error
    finally:
        loader.dispose()


def _line(node: yaml.Node, path: str) -> int:
    line = node.start_mark.line
    for step in _STEP.finditer(path):
        child = _child(node, step)
        if child is None:
            break
        line, node = child
    return line + 1


def _child(node: yaml.Node, step: re.Match[str]) -> tuple[int, yaml.Node] | None:
    """The line where a field or an item begins, and its value."""
    if step["index"] is not None:
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        index = int(step["index"])
        return (items[index].start_mark.line, items[index]) if index < len(items) else None
    name = step["key"] or step[0]
    fields = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key.start_mark.line, value) for key, value in fields if key.value == name), None)


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
