r"""The subset of Kubernetes JSONPath for printer columns and selectable fields.

Supported are fields (`.spec.replicas`, `['a.b']`, with dots escaped as `\.`), indexes and slices, `[*]`, `..name`, and
filters that compare a field with a literal or test its existence. A path without a match is not an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

PathStep = Callable[[Any], Iterator[Any]]

_FIELD = re.compile(r"\.((?:\\.|[^.\[\]\\ ])+)")
_BRACKET = re.compile(r"\[((?:\"[^\"]*\"|'[^']*'|\[[^\]]*\]|[^\]\"'\[])*)\]")
_FILTER = re.compile(r"\?\(\s*@(?P<path>[^=!<>\s]*)\s*(?:(?P<operator>==|!=|<=|>=|<|>)\s*(?P<literal>.+?))?\s*\)")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JsonPath:
    def __init__(self, text: str) -> None:
        """Parse a path like `.spec.replicas`.

        Raises:
            ValueError: the path is not supported.
        """
        self._steps = tuple(_steps(text))

    def find(self, value: Any) -> list[Any]:
        """All values at the path, in order."""
        values = [value]
        for step in self._steps:
            values = [child for parent in values for child in step(parent)]
        return values


def _steps(text: str) -> Iterator[PathStep]:
    position = 0
    while position < len(text):
        if text[position:] == ".":
            return
        if text.startswith("..", position):
            yield _descendants
            position += 1
            continue
        match = _FIELD.match(text, position)
        if match is not None:
            name = re.sub(r"\\(.)", r"\1", match[1])
            yield _children if name == "*" else _field(name)
        else:
            match = _BRACKET.match(text, position)
            if match is None:
                raise ValueError(f"unrecognized path {text!r}")
            yield _bracket(match[1].strip())
        position = match.end()


def _field(name: str) -> PathStep:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _children(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _descendants(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _descendants(child)


def _bracket(content: str) -> PathStep:
    if content == "*":
        return _children
    if content.startswith("?"):
        return _filter(content)
    if content[:1] in ("'", '"'):
        return _field(content[1:-1])
    return _slice(content)


def _slice(content: str) -> PathStep:
    parts = [int(part) if part.strip() else None for part in content.split(":")]
    if len(parts) == 1 and parts[0] is not None:
        # An index is a slice of one item. The slice of -1 has no end.
        parts = [parts[0], parts[0] + 1 or None]

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[slice(*parts)]

    return step


def _filter(content: str) -> PathStep:
    parsed = _FILTER.fullmatch(content)
    if parsed is None:
        raise ValueError(f"unrecognized filter {content!r}")
    path = JsonPath(parsed["path"])
    compare = _OPERATORS.get(parsed["operator"] or "")
    literal = _literal(parsed["literal"]) if parsed["literal"] else None

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            values = path.find(item)
            if values and (compare is None or _compare(compare, values[0], literal)):
                yield item

    return step


def _compare(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    try:
        return compare(left, right)
    except TypeError:
        return False


def _literal(text: str) -> Any:
    if text[:1] == "'":
        return text[1:-1]
    return msgspec.json.decode(text)
