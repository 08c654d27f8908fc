"""Values as expressions see them: escaped names, times and durations as such, numbers as doubles."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from dlop.embedded.apiserver.age import parse_time
from dlop.embedded.apiserver.apiextensions.cel_parser import escaped
from dlop.embedded.apiserver.apiextensions.schema import Node

Shape = Callable[[Any], Any]
"""Makes the value that an expression sees."""

_DURATION = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_MICROSECONDS = {"ns": 0.001, "us": 1, "µs": 1, "μs": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


def parse_duration(text: str) -> timedelta:
    """A duration as Go writes it, e.g. `1h30m`."""
    sign = -1 if text.startswith("-") else 1
    parts = _DURATION.findall(text)
    return timedelta(microseconds=sign * sum(float(number) * _MICROSECONDS[unit] for number, unit in parts))


def _day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_BY_FORMAT: dict[str, Shape] = {
    "date-time": lambda text: datetime.fromtimestamp(parse_time(text), UTC),
    "datetime": lambda text: datetime.fromtimestamp(parse_time(text), UTC),
    "date": _day,
    "duration": parse_duration,
    "byte": base64.b64decode,
}


def shape_of(node: Node) -> Shape | None:
    """How values of a node are shown to expressions; None: just as they are."""
    kind = node.schema.get("type")
    if kind == "number":
        return lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if kind == "string":
        by_format = _BY_FORMAT.get(node.schema.get("format", ""))
        return None if by_format is None else _only_strings(by_format)
    if kind == "array":
        return _list_shape(node)
    return _object_shape(node)


def _only_strings(parse: Shape) -> Shape:
    def shaped(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except (ValueError, binascii.Error):
            # The schema's own checks report it; rules then do not run, or see the text.
            return value

    return shaped


def _list_shape(node: Node) -> Shape | None:
    item = shape_of(node.items) if node.items is not None else None
    if item is None:
        return None
    shape = item
    return lambda value: [shape(one) for one in value] if isinstance(value, list) else value


def _object_shape(node: Node) -> Shape | None:
    names = {name: escaped(name) for name in node.properties if escaped(name) != name}
    shapes = {name: shape for name, child in node.properties.items() if (shape := shape_of(child)) is not None}
    rest = shape_of(node.additional) if node.additional is not None else None
    if not names and not shapes and rest is None:
        return None

    def shaped(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        seen = {}
        for name, child in value.items():
            shape = shapes.get(name, rest)
            seen[names.get(name, name)] = child if shape is None else shape(child)
        return seen

    return shaped
