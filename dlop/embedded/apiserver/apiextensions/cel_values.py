"""Converts JSON values for CEL: escaped field names, timestamps, durations and doubles."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from dlop.embedded.apiserver.age import parse_time
from dlop.embedded.apiserver.apiextensions.cel_parser import escape_name
from dlop.embedded.apiserver.apiextensions.schema import SchemaNode

ToCelValue = Callable[[Any], Any]
"""Converts a JSON value to a CEL value."""

_DURATION = re.compile(r"([0-9.]+)(ns|us|µs|μs|ms|s|m|h)")
_MICROSECONDS = {"ns": 0.001, "us": 1, "µs": 1, "μs": 1, "ms": 1000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000}


def parse_duration(text: str) -> timedelta:
    """Parse a Go duration such as `1h30m`."""
    sign = -1 if text.startswith("-") else 1
    parts = _DURATION.findall(text)
    return timedelta(microseconds=sign * sum(float(number) * _MICROSECONDS[unit] for number, unit in parts))


def _parse_date(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_BY_FORMAT: dict[str, ToCelValue] = {
    "date-time": lambda text: datetime.fromtimestamp(parse_time(text), UTC),
    "datetime": lambda text: datetime.fromtimestamp(parse_time(text), UTC),
    "date": _parse_date,
    "duration": parse_duration,
    "byte": base64.b64decode,
}


def cel_converter(node: SchemaNode) -> ToCelValue | None:
    """The conversion of the values of a node; None if they need none."""
    kind = node.schema.get("type")
    if kind == "number":
        return lambda value: float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if kind == "string":
        by_format = _BY_FORMAT.get(node.schema.get("format", ""))
        return None if by_format is None else _only_strings(by_format)
    if kind == "array":
        return _list_converter(node)
    return _object_converter(node)


def _only_strings(parse: ToCelValue) -> ToCelValue:
    def convert(value: Any) -> Any:
        try:
            return parse(value) if isinstance(value, str) else value
        except (ValueError, binascii.Error):
            # The schema validation reports it. Rules then do not run, or get the string.
            return value

    return convert


def _list_converter(node: SchemaNode) -> ToCelValue | None:
    item_converter = cel_converter(node.items) if node.items is not None else None
    if item_converter is None:
        return None
    convert_item = item_converter
    return lambda value: [convert_item(item) for item in value] if isinstance(value, list) else value


def _object_converter(node: SchemaNode) -> ToCelValue | None:
    names = {name: escape_name(name) for name in node.properties if escape_name(name) != name}
    converters = {name: converter for name, child in node.properties.items() if (converter := cel_converter(child)) is not None}
    rest = cel_converter(node.additional) if node.additional is not None else None
    if not names and not converters and rest is None:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        converted = {}
        for name, child in value.items():
            converter = converters.get(name, rest)
            converted[names.get(name, name)] = child if converter is None else converter(child)
        return converted

    return convert
