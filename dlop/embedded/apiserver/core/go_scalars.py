"""Decoders of Go scalar types, with the error messages of Go."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from dlop.kube.quantity import canonical_quantity

ScalarDecoder = Callable[[Any], Any]
"""Decodes and normalizes a value."""

ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "IntOrString": 0, "Quantity": "0"}
"""What Go encodes for an unset value."""

_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


class GoTypeError(ValueError):
    """A value has the wrong type. The message is that of Go's decoder."""


class MismatchError(Exception):
    """A value has the wrong type. The decoder of the surrounding field turns it into a `GoTypeError`."""

    def __init__(self, value: Any, go_type: str) -> None:
        super().__init__()
        self.value = value
        self.go_type = go_type

    def message(self, field: str) -> str:
        json_type = _JSON_NAMES[type(self.value)]
        if json_type == "number" and self.go_type in ("int32", "int64"):
            json_type = f"number {self.value}"
        return f"json: cannot unmarshal {json_type} into Go struct field {field} of type {self.go_type}"


def go_name(go_type: str) -> str:
    """The name of the type in Go's messages."""
    if go_type.startswith("[]"):
        return "[]" + go_name(go_type.removeprefix("[]"))
    if go_type.startswith("map:"):
        return "map[string]" + go_name(go_type.removeprefix("map:"))
    return ".".join(go_type.split(".")[-2:])


def scalar_decoder(go_type: str, base: str) -> ScalarDecoder:
    """The decoder of a type that is not a struct, list or map."""
    special: dict[str, ScalarDecoder] = {
        "Time": _decode_time,
        "MicroTime": _decode_micro_time,
        "Quantity": _decode_quantity,
        "IntOrString": _decode_int_or_string,
        "[]byte": _decode_bytes,
    }
    if base in special:
        return special[base]
    if base == "any":
        return lambda value: value
    if base in ("int32", "int64"):
        return _integer_decoder(base)
    python_type, go_type_name = (str if base == "string" else bool), go_name(go_type)

    def decode_scalar(value: Any) -> Any:
        if type(value) is not python_type:
            raise MismatchError(value, go_type_name)
        return value

    return decode_scalar


def _integer_decoder(base: str) -> ScalarDecoder:
    limit = 2 ** (31 if base == "int32" else 63)

    def decode_integer(value: Any) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise MismatchError(value, base)
        return value

    return decode_integer


def _decode_int_or_string(value: Any) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise MismatchError(value, "int32")
    return value


def _decode_quantity(value: Any) -> Any:
    try:
        return canonical_quantity(str(value))
    except ValueError as error:
        raise GoTypeError(str(error)) from None


def _decode_time(value: Any) -> Any:
    if type(value) is not str:
        raise MismatchError(value, "string")
    match = _TIME.fullmatch(value)
    if match is None:
        raise GoTypeError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"')
    return f"{match[1]}T{match[2]}{match[4]}"


def _decode_micro_time(value: Any) -> Any:
    if type(value) is not str:
        raise MismatchError(value, "string")
    if _MICRO_TIME.fullmatch(value) is None:
        rest = value[19:] if _TIME.fullmatch(value) else value
        expected = ".000000" if _TIME.fullmatch(value) else "2006"
        raise GoTypeError(f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "{rest}" as "{expected}"')
    return value


def _decode_bytes(value: Any) -> Any:
    if type(value) is not str:
        raise MismatchError(value, "[]uint8")
    invalid = _NOT_BASE64.search(value)
    try:
        decoded = base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except binascii.Error:
        raise GoTypeError(f"illegal base64 data at input byte {invalid.start() if invalid else max(len(value) - 1, 0)}") from None
    return base64.b64encode(decoded).decode()
