"""Checks of single schema keywords, with the messages of kube-apiserver.

A check is created once per keyword of a schema node. It ignores values of other types, which the type check reports.
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
"""Called with a value and its path; appends its errors to the list."""

_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)


def type_name(value: Any) -> str:
    """The JSON schema type of a value."""
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
    """Whether the value is a number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def invalid_in_body(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(FieldErrorType.INVALID, path or "<nil>", f"{path} in body {detail}", value)


_GO_FORMATS = {"integer": "int64", "number": "float64"}
_NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def known_format(schema: JsonObject) -> str:
    """The format of a schema if it is supported for the type, else an empty string."""
    kind, name = schema.get("type"), str(schema.get("format", ""))
    if kind in (None, "string"):
        return name if name.replace("-", "") in FORMATS else ""
    return name if name in _NUMBER_FORMATS.get(kind, ()) else ""


def type_check(types: tuple[str, ...], format_name: str) -> Check:
    """Check that the value has one of the types. Integral floats are integers, and integers are numbers.

    As in kube-apiserver, a format changes the message, and with a format an array is accepted as a string.
    """
    allowed = {*types, "integer"} if "number" in types else set(types)
    takes_numbers = bool(allowed & {"number", "integer"})
    type_names = ",".join(types)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        actual = type_name(value)
        if actual in allowed or (actual == "number" and "integer" in allowed and float(value).is_integer()):
            return
        if not format_name or (takes_numbers and actual in ("string", "array")):
            errors.append(type_error(path, type_names, actual))
        elif actual not in ("string", "array"):
            errors.append(type_error(path, format_name, _GO_FORMATS.get(actual, "")))

    return check


def type_error(path: str, expected: str, actual: str) -> FieldError:
    """The error of a value with the wrong type or format."""
    return FieldError(FieldErrorType.TYPE_INVALID, path or "<nil>", f'{path} in body must be of type {expected}: "{actual}"', actual)


def string_checks(schema: JsonObject) -> Iterator[Check]:
    """The keywords maxLength, minLength, pattern and format."""
    factories = (("maxLength", _max_length), ("minLength", _min_length), ("pattern", _pattern))
    checks = [make_check(schema[keyword]) for keyword, make_check in factories if schema.get(keyword) not in (None, "")]
    if checks:
        yield _first_failing(checks)
    format_name = known_format(schema)
    if format_name and schema.get("type") in (None, "string"):
        yield _format(format_name, FORMATS[format_name.replace("-", "")])


def _first_failing(checks: list[Check]) -> Check:
    """Report only the first error. A string that is too long is not matched against the pattern."""

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        before = len(errors)
        for single_check in checks:
            single_check(value, path, errors)
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
            errors.append(invalid_in_body(path, value, f"should be at least {limit} chars long"))

    return check


def _pattern(pattern: str) -> Check:
    compiled = go_pattern(pattern)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and compiled.search(value) is None:
            errors.append(invalid_in_body(path, value, f"should match '{pattern}'"))

    return check


def _format(name: str, is_valid: Callable[[str], bool]) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, str) and not is_valid(value):
            errors.append(type_error(path, name, value))

    return check


def number_checks(schema: JsonObject) -> Iterator[Check]:
    """The ranges of int32 and int64, and the keywords multipleOf, minimum and maximum."""
    if schema.get("type") == "integer":
        yield _integer_range(str(schema.get("format", "")))
    if "multipleOf" in schema:
        yield _multiple_of(schema["multipleOf"])
    if "minimum" in schema:
        yield _bound(schema["minimum"], exclusive=bool(schema.get("exclusiveMinimum")), detail="greater", sign=1)
    if "maximum" in schema:
        yield _bound(schema["maximum"], exclusive=bool(schema.get("exclusiveMaximum")), detail="less", sign=-1)


def _integer_range(format_name: str) -> Check:
    low, high = _INT32 if format_name == "int32" else _INT64
    known = format_name in ("int32", "int64")
    detail = f"with format {format_name}" if known else "(default format)"

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if is_number(value) and not (low <= value <= high and float(value).is_integer()):
            errors.append(FieldError(FieldErrorType.INVALID, "<nil>", f"Checked value must be of type integer {detail} in {path}", ""))

    return check


def _multiple_of(factor: float) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        # Use decimals, because 0.3 is not a multiple of 0.1 in binary floating point.
        if is_number(value) and Decimal(repr(value)) % Decimal(repr(factor)) != 0:
            errors.append(invalid_in_body(path, value, f"should be a multiple of {go_number(factor)}"))

    return check


def _bound(limit: float, *, exclusive: bool, detail: str, sign: int) -> Check:
    message = f"should be {detail} than" + ("" if exclusive else " or equal to")

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not is_number(value):
            return
        distance = (value - limit) * sign
        if distance < 0 or (exclusive and distance == 0):
            formatted_limit = str(int(limit)) if isinstance(value, int) else go_number(limit)
            errors.append(invalid_in_body(path, value, f"{message} {formatted_limit}"))

    return check


def array_checks(schema: JsonObject) -> Iterator[Check]:
    """The keywords minItems and maxItems."""
    if "minItems" in schema:
        yield _min_items(schema["minItems"])
    if "maxItems" in schema:
        yield _too_many(list, schema["maxItems"])


def object_checks(schema: JsonObject) -> Iterator[Check]:
    """The keywords minProperties and maxProperties."""
    if "minProperties" in schema:
        yield _min_properties(schema["minProperties"])
    if "maxProperties" in schema:
        yield _too_many(dict, schema["maxProperties"])


def _min_items(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, list) and len(value) < limit:
            errors.append(invalid_in_body(path, len(value), f"should have at least {limit} items"))

    return check


def _min_properties(limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, dict) and len(value) < limit:
            errors.append(invalid_in_body(path, len(value), f"should have at least {limit} properties"))

    return check


def _too_many(kind: type[list[Any] | JsonObject], limit: int) -> Check:
    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if isinstance(value, kind) and len(value) > limit:
            errors.append(FieldError(FieldErrorType.TOO_MANY, path, f"must have at most {limit} items", len(value)))

    return check


def enum_check(allowed: list[Any]) -> Check:
    quoted = ", ".join(f'"{value if isinstance(value, str) else msgspec.json.encode(value).decode()}"' for value in allowed)

    def check(value: Any, path: str, errors: list[FieldError]) -> None:
        if not any(_is_same(value, option) for option in allowed):
            errors.append(FieldError(FieldErrorType.NOT_SUPPORTED, path, f"supported values: {quoted}", value))

    return check


def _is_same(value: Any, allowed: Any) -> bool:
    if isinstance(value, float) and isinstance(allowed, int):
        # Go converts the number to an integer before the comparison.
        return int(value) == allowed
    return bool(value == allowed) and type_name(value) == type_name(allowed)
