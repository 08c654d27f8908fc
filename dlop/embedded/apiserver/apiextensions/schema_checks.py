"""The single checks that a schema is compiled into, each with the words of the real server.

A check is made once, from one keyword of the schema, and called with every value found at that place. It looks only at
values of its own type: a wrong type is reported by the type check alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import msgspec

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType, go_number
from dlop.embedded.apiserver.apiextensions.schema_formats import FORMATS, go_pattern
from dlop.kube.types import JsonObject

Check = Callable[[Any, str, list[FieldError]], None]
"""Called with the value, its path and the list that takes the errors."""

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


def type_name(value: Any) -> str:
    """The JSON type of a value, as the schema names it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int():
            return "integer"
        case float():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


def is_number(value: Any) -> bool:
    """Whether the value is a number; booleans are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def wrong(path: str, value: Any, words: str) -> FieldError:
    """An error about a value at a path."""
    return FieldError(FieldErrorType.INVALID, path or "<nil>", f"{path} in body {words}", value)


_GO_FORMATS = {"integer": "int64", "number": "float64"}
_FORMATS_OF_NUMBERS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def known_format(schema: JsonObject) -> str:
    """The format of a schema if the server knows it for the type, else nothing."""
    kind, name = schema.get("type"), str(schema.get("format", ""))
    if kind in (None, "string"):
        return name if name.replace("-", "") in FORMATS else ""
    return name if name in _FORMATS_OF_NUMBERS.get(kind, ()) else ""


def type_check(types: tuple[str, ...], format_name: str) -> Check:
    """The value is of one of the types; a whole float passes as an integer, and an integer as a number.

    A format changes what is said, and with one a list passes for a string: so it is on the real server.
    """
    wanted = {*types, "integer"} if "number" in types else set(types)
    takes_numbers = bool(wanted & {"number", "integer"})
    words = ",".join(types)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        actual = type_name(value)
        if actual in wanted or (actual == "number" and "integer" in wanted and float(value).is_integer()):
            return
        if not format_name or (takes_numbers and actual in ("string", "array")):
            errors.append(type_error(path, words, actual))
        elif actual not in ("string", "array"):
            errors.append(type_error(path, format_name, _GO_FORMATS.get(actual, "")))

    return check


def type_error(path: str, wanted: str, actual: str) -> FieldError:
    """An error about a value of the wrong type or format; `actual` is what was found."""
    return FieldError(FieldErrorType.TYPE_INVALID, path or "<nil>", f'{path} in body must be of type {wanted}: "{actual}"', actual)


def string_checks(schema: JsonObject) -> Iterator[Check]:
    """maxLength, minLength, pattern and format."""
    makers = (("maxLength", _max_length), ("minLength", _min_length), ("pattern", _pattern))
    found = [make(schema[word]) for word, make in makers if schema.get(word) not in (None, "")]
    if found:
        yield _first_failing(found)
    format_name = known_format(schema)
    if format_name and schema.get("type") in (None, "string"):
        yield _format(format_name, FORMATS[format_name.replace("-", "")])


def _first_failing(checks: list[Check]) -> Check:
    """Only the first complaint counts: a text that is too long is not also compared with the pattern."""

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        before = len(errors)
        for one in checks:
            one(value, path, errors)
            if len(errors) > before:
                return

    return checks[0] if len(checks) == 1 else check


def _max_length(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and len(value) > limit:
            errors.append(FieldError(FieldErrorType.TOO_LONG, path, f"may not be more than {limit} bytes", value))

    return check


def _min_length(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and len(value) < limit:
            errors.append(wrong(path, value, f"should be at least {limit} chars long"))

    return check


def _pattern(pattern: str) -> Check:
    compiled = go_pattern(pattern)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and compiled.search(value) is None:
            errors.append(wrong(path, value, f"should match '{pattern}'"))

    return check


def _format(name: str, is_valid: Callable[[str], bool]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and not is_valid(value):
            errors.append(type_error(path, name, value))

    return check


def number_checks(schema: JsonObject) -> Iterator[Check]:
    """The range of int32 and int64, multipleOf, minimum and maximum."""
    if schema.get("type") == "integer":
        yield _integer_range(str(schema.get("format", "")))
    if "multipleOf" in schema:
        yield _multiple_of(schema["multipleOf"])
    if "minimum" in schema:
        yield _bound(schema["minimum"], exclusive=bool(schema.get("exclusiveMinimum")), words="greater", sign=1)
    if "maximum" in schema:
        yield _bound(schema["maximum"], exclusive=bool(schema.get("exclusiveMaximum")), words="less", sign=-1)


def _integer_range(format_name: str) -> Check:
    low, high = _INT32 if format_name == "int32" else _INT64
    known = format_name in ("int32", "int64")
    words = f"with format {format_name}" if known else "(default format)"

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if is_number(value) and not (low <= value <= high and float(value).is_integer()):
            errors.append(FieldError(FieldErrorType.INVALID, "<nil>", f"Checked value must be of type integer {words} in {path}", ""))

    return check


def _multiple_of(factor: float) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        # Through decimals: 0.3 is a multiple of 0.1, which binary fractions do not know.
        if is_number(value) and Decimal(repr(value)) % Decimal(repr(factor)) != 0:
            errors.append(wrong(path, value, f"should be a multiple of {go_number(factor)}"))

    return check


def _bound(limit: float, *, exclusive: bool, words: str, sign: int) -> Check:
    sentence = f"should be {words} than" + ("" if exclusive else " or equal to")

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not is_number(value):
            return
        distance = (value - limit) * sign
        if distance < 0 or (exclusive and distance == 0):
            shown = str(int(limit)) if isinstance(value, int) else go_number(limit)
            errors.append(wrong(path, value, f"{sentence} {shown}"))

    return check


def array_checks(schema: JsonObject) -> Iterator[Check]:
    """MinItems and maxItems."""
    if "minItems" in schema:
        yield _min_items(schema["minItems"])
    if "maxItems" in schema:
        yield _too_many(list, schema["maxItems"])


def object_checks(schema: JsonObject) -> Iterator[Check]:
    """MinProperties and maxProperties."""
    if "minProperties" in schema:
        yield _min_properties(schema["minProperties"])
    if "maxProperties" in schema:
        yield _too_many(dict, schema["maxProperties"])


def _min_items(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, list) and len(value) < limit:
            errors.append(wrong(path, len(value), f"should have at least {limit} items"))

    return check


def _min_properties(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, dict) and len(value) < limit:
            errors.append(wrong(path, len(value), f"should have at least {limit} properties"))

    return check


def _too_many(kind: type[list[Any] | JsonObject], limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, kind) and len(value) > limit:
            errors.append(FieldError(FieldErrorType.TOO_MANY, path, f"must have at most {limit} items", len(value)))

    return check


def enum_check(allowed: list[Any]) -> Check:
    """The value is one of a list."""
    shown = ", ".join(f'"{value if isinstance(value, str) else msgspec.json.encode(value).decode()}"' for value in allowed)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not any(_is_same(value, one) for one in allowed):
            errors.append(FieldError(FieldErrorType.NOT_SUPPORTED, path, f"supported values: {shown}", value))

    return check


def _is_same(value: Any, allowed: Any) -> bool:
    if isinstance(value, float) and isinstance(allowed, int):
        # Go makes the number an integer before it compares.
        return int(value) == allowed
    return bool(value == allowed) and type_name(value) == type_name(allowed)
