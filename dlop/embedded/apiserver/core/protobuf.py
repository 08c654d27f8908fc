"""Bodies in protobuf: `kubectl create configmap` and its like send nothing else for built-in types.

Only reading is needed: every client that sends protobuf also takes JSON as the answer. `protobuf.json` holds the field
numbers from the Go structs of k8s.io/api; a number like `2.1` means field 1 of the message in field 2, which JSON does
not show.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from dlop.embedded.apiserver.core.go_types import struct, underlying
from dlop.kube.timestamps import to_the_second
from dlop.kube.types import JsonObject

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# The numbers of the envelope around every object, and of what stands in it.
_TYPE_META, _RAW, _API_VERSION, _KIND = 1, 2, 1, 2


class NotReadableError(ValueError):
    """The bytes are not what they claim to be, or of a type that is not known here."""


def decode(body: bytes) -> JsonObject:
    """The object in a body.

    Raises:
        NotReadableError: when it cannot be read.
    """
    if not body.startswith(_MAGIC):
        raise NotReadableError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        meta = dict(_fields(envelope.get(_TYPE_META, b"")))
        api_version, kind = meta.get(_API_VERSION, b"").decode(), meta.get(_KIND, b"").decode()
        return {"apiVersion": api_version, "kind": kind, **_message(_shape(api_version, kind), envelope.get(_RAW, b""))}
    except NotReadableError:
        raise
    except (IndexError, AttributeError, TypeError, ValueError, OSError, RecursionError, OverflowError) as problem:
        raise NotReadableError(f"the protobuf message is broken: {problem}") from problem


def _shape(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    name = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else f"{group.split('.')[0] or 'core'}.{version}.{kind}"
    if name not in _numbers():
        raise NotReadableError(f"{api_version}, Kind={kind} is not known in protobuf")
    return name


@cache
def _numbers() -> Mapping[str, Mapping[str, str]]:
    text = files(__package__).joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The numbers and raw values of a message: integers, or bytes."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif wire_type == _BYTES:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise NotReadableError("unexpected EOF")
            yield number, data[position : position + length]
            position += length
        elif wire_type in (_FIXED64, _FIXED32):
            position += 8 if wire_type == _FIXED64 else 4
        else:
            raise NotReadableError(f"illegal wireType {wire_type}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


@dataclass(frozen=True, slots=True)
class _Slot:
    """What one field number of a message stands for: a field of the JSON, or a message that JSON does not show."""

    field: str = ""
    go_type: str = ""
    inline: Mapping[int, _Slot] | None = None


@cache
def _slots(shape: str) -> Mapping[int, _Slot]:
    slots: dict[int, Any] = {}
    for field, spec in (struct(shape) or {}).items():
        number = _numbers()[shape].get(field)
        if number is None:
            continue
        *outer, last = (int(part) for part in number.split("."))
        place = slots
        for part in outer:
            place = place.setdefault(part, _Slot(inline={})).inline
        place[last] = _Slot(field, spec.go_type)
    return slots


def _message(shape: str, data: bytes) -> JsonObject:
    return _filled({}, _slots(shape), data)


def _filled(result: JsonObject, slots: Mapping[int, _Slot], data: bytes) -> JsonObject:
    for number, value in _fields(data):
        slot = slots.get(number)
        if slot is None:
            continue
        if slot.inline is not None:
            _filled(result, slot.inline, value)
        else:
            _put(result, slot, value)
    return result


def _put(result: JsonObject, slot: _Slot, value: Any) -> None:
    base = underlying(slot.go_type.removeprefix("*"))
    if base.startswith("map:"):
        entry = dict(_fields(value))
        key = entry.get(1, b"").decode()
        result.setdefault(slot.field, {})[key] = _value(base.removeprefix("map:"), entry.get(2, b""))
    elif base.startswith("[]") and base != "[]byte":
        result.setdefault(slot.field, []).append(_value(base.removeprefix("[]"), value))
    else:
        result[slot.field] = _value(base, value)


def _value(go_type: str, value: Any) -> Any:
    base = underlying(go_type.removeprefix("*"))
    if struct(base) is not None:
        return _message(base, value)
    return _SCALARS[base](value)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _time(value: bytes) -> str | None:
    parts = dict(_fields(value))
    if not parts:
        return None
    return to_the_second(_signed(parts.get(1, 0)))


def _micro_time(value: bytes) -> str | None:
    parts = dict(_fields(value))
    whole = _time(value)
    return whole and f"{whole[:-1]}.{parts.get(2, 0) // 1000:06d}Z"


def _int_or_string(value: bytes) -> int | str:
    parts = dict(_fields(value))
    return parts.get(3, b"").decode() if parts.get(1) else _signed(parts.get(2, 0))


_SCALARS: Mapping[str, Callable[[Any], Any]] = {
    "string": lambda value: value.decode(),
    "bool": bool,
    "int32": _signed,
    "int64": _signed,
    "[]byte": lambda value: base64.b64encode(value).decode(),
    "Time": _time,
    "MicroTime": _micro_time,
    "Quantity": lambda value: dict(_fields(value)).get(1, b"0").decode(),
    "IntOrString": _int_or_string,
    # Which fields somebody manages: not kept here in any form.
    "any": lambda _: None,
}
