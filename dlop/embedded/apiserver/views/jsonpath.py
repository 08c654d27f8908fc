r"""The JSONPath of Kubernetes as far as printer columns and selectable fields use it.

Understood are fields (`.spec.replicas`, `['a.b']`, with dots escaped as `\.`), indexes and slices, `[*]`, `..name`, and
filters that compare a field with a literal or ask whether it is there. What leads nowhere is not an error: it finds nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Step = Callable[[Any], Iterator[Any]]

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
    """A path, parsed once."""

    def __init__(self, text: str) -> None:
        """Parse a path like `.spec.replicas`.

        Raises:
            ValueError: when it is not understood.
        """
        self._steps = tuple(_steps(text))

    def find(self, value: Any) -> list[Any]:
        """Everything the path leads to, in order."""
        found = [value]
        for step in self._steps:
            found = [below for one in found for below in step(one)]
        return found


def _steps(text: str) -> Iterator[Step]:
    position = 0
    while position < len(text):
        if text[position:] == ".":
            return
        if text.startswith("..", position):
            yield _everything_below
            position += 1
            continue
        found = _FIELD.match(text, position)
        if found is not None:
            name = re.sub(r"\\(.)", r"\1", found[1])
            yield _each if name == "*" else _field(name)
        else:
            found = _BRACKET.match(text, position)
            if found is None:
                raise ValueError(f"unrecognized path {text!r}")
            yield _bracket(found[1].strip())
        position = found.end()


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _each(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()


def _everything_below(value: Any) -> Iterator[Any]:
    yield value
    for below in _each(value):
        yield from _everything_below(below)


def _bracket(inside: str) -> Step:
    if inside == "*":
        return _each
    if inside.startswith("?"):
        return _filter(inside)
    if inside[:1] in ("'", '"'):
        return _field(inside[1:-1])
    return _slice(inside)


def _slice(inside: str) -> Step:
    parts = [int(part) if part.strip() else None for part in inside.split(":")]
    if len(parts) == 1 and parts[0] is not None:
        # One index is the slice that holds just that item; -1 has no end to name.
        parts = [parts[0], parts[0] + 1 or None]

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[slice(*parts)]

    return step


def _filter(inside: str) -> Step:
    parsed = _FILTER.fullmatch(inside)
    if parsed is None:
        raise ValueError(f"unrecognized filter {inside!r}")
    path = JsonPath(parsed["path"])
    compare = _OPERATORS.get(parsed["operator"] or "")
    literal = _literal(parsed["literal"]) if parsed["literal"] else None

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = path.find(item)
            if found and (compare is None or _holds(compare, found[0], literal)):
                yield item

    return step


def _holds(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    try:
        return compare(left, right)
    except TypeError:
        return False


def _literal(text: str) -> Any:
    if text[:1] == "'":
        return text[1:-1]
    return msgspec.json.decode(text)
