"""Read manifest files, with the line number of every field.

The accepted YAML is the subset that maps to JSON. As in kubectl, dates stay strings and keys become strings. Recursive documents
and documents with excessive aliases are rejected before they are expanded.
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

# An index, a key in brackets, which may contain dots, or a field name.
_STEP = re.compile(r"\[(?P<index>\d+)\]|\[(?P<key>[^\]]+)\]|[^.\[\]]+")


class ManifestError(Exception):
    """A file cannot be read or is not valid YAML. The message has the file and the line."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document of a file."""

    name: str
    """The name of the file."""
    content: Any
    node: yaml.Node

    def location(self, path: str = "") -> str:
        """`file:line` of a field, or of its nearest ancestor in the file."""
        return f"{self.name}:{_line(self.node, path)}"

    def nested(self, path: str, content: Any) -> Document:
        """A document with this content, which comes from a field of this one. Locations are those of the field."""
        return Document(self.name, content, _find(self.node, path)[1])


def read_documents(name: str) -> list[Document]:
    """The documents of a file; `-` is standard input.

    Raises:
        ManifestError: the file cannot be read, is not valid YAML, or is empty.
    """
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text()
    except OSError as error:
        raise ManifestError(f"{name} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise ManifestError(f"{name} is not a text file: {error}.") from error
    parsed = list(parse_documents(text, name=name))
    if not parsed:
        raise ManifestError(f"{name} is empty; it must contain a manifest.")
    return parsed


def parse_documents(text: str, *, name: str) -> Iterator[Document]:
    """The documents of a file without the empty ones.

    Raises:
        ManifestError: the text is not valid YAML.
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
        prefix = "" if isinstance(error, UnsupportedYamlError) else "invalid YAML: "
        raise ManifestError(f"{name}:{line}: {prefix}{error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{name}: invalid YAML: {error}") from error
    except RecursionError as error:
        raise ManifestError(f"{name}: nested too deeply.") from error
    finally:
        loader.dispose()


def _line(node: yaml.Node, path: str) -> int:
    return _find(node, path)[0] + 1


def _find(node: yaml.Node, path: str) -> tuple[int, yaml.Node]:
    """The line, counted from 0, and the value of a field, or of its nearest ancestor."""
    line = node.start_mark.line
    for step in _STEP.finditer(path):
        child = _child(node, step)
        if child is None:
            break
        line, node = child
    return line, node


def _child(node: yaml.Node, step: re.Match[str]) -> tuple[int, yaml.Node] | None:
    """The line on which a field or item starts, and its value."""
    if step["index"] is not None:
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        index = int(step["index"])
        return (items[index].start_mark.line, items[index]) if index < len(items) else None
    name = step["key"] or step[0]
    fields = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key.start_mark.line, value) for key, value in fields if key.value == name), None)


_MAX_NODES = 1_000_000
_TAG = "tag:yaml.org,2002:"
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class UnsupportedYamlError(yaml.MarkedYAMLError):
    """Valid YAML that has no JSON equivalent."""


class JsonLoader(_SafeLoader):  # type: ignore[misc]
    """Loads the subset of YAML that maps to JSON."""

    def construct_document(self, node: yaml.Node) -> Any:
        _count_values(node, {})
        return super().construct_document(node)

    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the signature of PyYAML
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        return {_key_to_string(key, node): value for key, value in mapping.items()}


JsonLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}


def _construct_float(loader: Any, node: yaml.ScalarNode) -> float:
    number: float = loader.construct_yaml_float(node)
    if not math.isfinite(number):
        raise _error(f"{node.value} is not a JSON number", node)
    return number


def _reject(_: Any, node: yaml.Node) -> None:
    raise _error(f"{node.tag.replace(_TAG, '!!')} has no JSON equivalent", node)


JsonLoader.add_constructor(f"{_TAG}float", _construct_float)
for _name in ("binary", "set", "omap", "pairs", "timestamp"):
    JsonLoader.add_constructor(f"{_TAG}{_name}", _reject)


def _key_to_string(key: Hashable, node: yaml.Node) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise _error(f"a key must be a string, got {key!r:.60}", node)


def _count_values(node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values with all aliases expanded. Visits each node once."""
    known = sizes.get(id(node))
    if known == 0:
        raise _error("recursive alias", node)
    if known is not None:
        return known
    sizes[id(node)] = 0
    size = 1 + sum(_count_values(child, sizes) for child in _children(node))
    if size > _MAX_NODES:
        raise _error(f"more than {_MAX_NODES} values after the expansion of aliases", node)
    sizes[id(node)] = size
    return size


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _error(problem: str, node: yaml.Node) -> UnsupportedYamlError:
    return UnsupportedYamlError(problem=problem, problem_mark=node.start_mark)
