"""Manifests in files: what they say, and in which line they say it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dlop.jobs.yaml_loader import JsonLoader, NotJsonError

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
