"""Plain values of the built-in types: how each Go type reads JSON, and what it says when it cannot."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from dlop.kube.quantity import canonical_quantity

ScalarReader = Callable[[Any], Any]
"""Makes the kept value from a given one."""

ZEROS: dict[str, Any] = {"string": "", "bool": False, "int32": 0, "int64": 0, "IntOrString": 0, "Quantity": "0"}
"""What Go writes for a value that was never set."""

_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")


class WrongTypeError(ValueError):
    """The body cannot be read as the type; the message is the real decoder's."""


class MismatchError(Exception):
    """A value of the wrong type; the field around it knows where."""

    def __init__(self, value: Any, go_type: str) -> None:
        super().__init__()
        self.value = value
        self.go_type = go_type

    def sentence(self, where: str) -> str:
        """What Go says about it."""
        given = _JSON_NAMES[type(self.value)]
        if given == "number" and self.go_type in ("int32", "int64"):
            given = f"number {self.value}"
        return f"json: cannot unmarshal {given} into Go struct field {where} of type {self.go_type}"


def go_name(go_type: str) -> str:
    """The type as Go's messages name it."""
    if go_type.startswith("[]"):
        return "[]" + go_name(go_type.removeprefix("[]"))
    if go_type.startswith("map:"):
        return "map[string]" + go_name(go_type.removeprefix("map:"))
    return ".".join(go_type.split(".")[-2:])


def scalar_reader(go_type: str, base: str) -> ScalarReader:
    """The reader of a type that is no struct, list or map."""
    special: dict[str, ScalarReader] = {
        "Time": _read_time,
        "MicroTime": _read_micro_time,
        "Quantity": _read_quantity,
        "IntOrString": _read_int_or_string,
        "[]byte": _read_bytes,
    }
    if base in special:
        return special[base]
    if base == "any":
        return lambda value: value
    if base in ("int32", "int64"):
        return _integer_reader(base)
    python_type, shown = (str if base == "string" else bool), go_name(go_type)

    def read_scalar(value: Any) -> Any:
        if type(value) is not python_type:
            raise MismatchError(value, shown)
        return value

    return read_scalar


def _integer_reader(base: str) -> ScalarReader:
    limit = 2 ** (31 if base == "int32" else 63)

    def read_integer(value: Any) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise MismatchError(value, base)
        return value

    return read_integer


def _read_int_or_string(value: Any) -> Any:
    if type(value) is str:
        return value
    if type(value) is not int or not -(2**31) <= value < 2**31:
        raise MismatchError(value, "int32")
    return value


def _read_quantity(value: Any) -> Any:
    try:
        return canonical_quantity(str(value))
    except ValueError as error:
        raise WrongTypeError(str(error)) from None


def _read_time(value: Any) -> Any:
    if type(value) is not str:
        raise MismatchError(value, "string")
    match = _TIME.fullmatch(value)
    if match is None:
        raise WrongTypeError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"')
    return f"{match[1]}T{match[2]}{match[4]}"


def _read_micro_time(value: Any) -> Any:
    if type(value) is not str:
        raise MismatchError(value, "string")
    if _MICRO_TIME.fullmatch(value) is None:
        rest = value[19:] if _TIME.fullmatch(value) else value
        expected = ".000000" if _TIME.fullmatch(value) else "2006"
        raise WrongTypeError(f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "{rest}" as "{expected}"')
    return value


def _read_bytes(value: Any) -> Any:
    if type(value) is not str:
        raise MismatchError(value, "[]uint8")
    bad = _NOT_BASE64.search(value)
    try:
        decoded = base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except binascii.Error:
        raise WrongTypeError(f"illegal base64 data at input byte {bad.start() if bad else max(len(value) - 1, 0)}") from None
    return base64.b64encode(decoded).decode()
