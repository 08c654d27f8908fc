"""Manifests in files: what they say, and in which line they say it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

_STEP = re.compile(r"\[(\d+)\]|[^.\[]+")
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManifestError(Exception):
    """A file is no YAML. The message names the file and the line."""


class _Loader(_SafeLoader):  # type: ignore[misc]
    """Reads what JSON can say. A date stays the text that it is, as kubectl has it."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}


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


def documents(text: str, *, name: str) -> Iterator[Document]:
    """The objects of a file; empty ones are left out.

    Raises:
        ManifestError: it is no YAML.
    """
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            content = loader.construct_document(node)
            if content is not None:
                yield Document(name, content, node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise ManifestError(f"{name}:{line}: this is no YAML: {error.problem or error.context}.") from error
    except yaml.YAMLError as error:
        raise ManifestError(f"{name}: this is no YAML: {error}") from error
    except RecursionError as error:
        raise ManifestError(f"{name}: this is nested too deeply, or contains itself.") from error
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
    if step[1] is not None:
        items = node.value if isinstance(node, yaml.SequenceNode) else []
        index = int(step[1])
        return (items[index].start_mark.line, items[index]) if index < len(items) else None
    fields = node.value if isinstance(node, yaml.MappingNode) else []
    return next(((key.start_mark.line, value) for key, value in fields if key.value == step[0]), None)
