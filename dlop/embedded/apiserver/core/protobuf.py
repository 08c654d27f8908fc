"""Decodes protobuf request bodies, which `kubectl create configmap` and similar commands send for built-in types.

Responses are never encoded as protobuf, because clients that send protobuf also accept JSON. `protobuf.json` has the
field numbers of the Go structs of k8s.io/api. A number like `2.1` means field 1 of the message in field 2, which is
inlined in JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from dlop.embedded.apiserver.core.go_types import struct_fields, underlying_type
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Field numbers of runtime.Unknown and its TypeMeta, which wrap every object.
_TYPE_META, _RAW, _API_VERSION, _KIND = 1, 2, 1, 2


class ProtobufDecodeError(ValueError):
    """The message is malformed or of an unknown type."""


def decode(body: bytes) -> JsonObject:
    """Decode an object.

    Raises:
        ProtobufDecodeError: the message is malformed or of an unknown type.
    """
    if not body.startswith(_MAGIC):
        raise ProtobufDecodeError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        envelope = dict(_fields(body[len(_MAGIC) :]))
        meta = dict(_fields(envelope.get(_TYPE_META, b"")))
        api_version, kind = meta.get(_API_VERSION, b"").decode(), meta.get(_KIND, b"").decode()
        return {"apiVersion": api_version, "kind": kind, **_message(_go_type(api_version, kind), envelope.get(_RAW, b""))}
    except ProtobufDecodeError:
        raise
    except (IndexError, AttributeError, TypeError, ValueError, OSError, RecursionError, OverflowError) as error:
        raise ProtobufDecodeError(f"malformed protobuf message: {error}") from error


def _go_type(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    name = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else f"{group.split('.')[0] or 'core'}.{version}.{kind}"
    if name not in _numbers():
        raise ProtobufDecodeError(f"{api_version}, Kind={kind} is not known in protobuf")
    return name


@cache
def _numbers() -> Mapping[str, Mapping[str, str]]:
    text = files(__package__).joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The field numbers and raw values (integers or bytes) of a message."""
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
                raise ProtobufDecodeError("unexpected EOF")
            yield number, data[position : position + length]
            position += length
        elif wire_type in (_FIXED64, _FIXED32):
            position += 8 if wire_type == _FIXED64 else 4
        else:
            raise ProtobufDecodeError(f"illegal wireType {wire_type}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


@dataclass(frozen=True, slots=True)
class _ProtobufField:
    """The meaning of a field number: a JSON field, or a message that is inlined in JSON."""

    field: str = ""
    go_type: str = ""
    inline: Mapping[int, _ProtobufField] | None = None


@cache
def _protobuf_fields(go_type: str) -> Mapping[int, _ProtobufField]:
    fields: dict[int, Any] = {}
    for field, spec in (struct_fields(go_type) or {}).items():
        number = _numbers()[go_type].get(field)
        if number is None:
            continue
        *outer, last = (int(part) for part in number.split("."))
        target = fields
        for part in outer:
            target = target.setdefault(part, _ProtobufField(inline={})).inline
        target[last] = _ProtobufField(field, spec.go_type)
    return fields


def _message(go_type: str, data: bytes) -> JsonObject:
    return _decode_fields({}, _protobuf_fields(go_type), data)


def _decode_fields(result: JsonObject, fields: Mapping[int, _ProtobufField], data: bytes) -> JsonObject:
    for number, value in _fields(data):
        field = fields.get(number)
        if field is None:
            continue
        if field.inline is not None:
            _decode_fields(result, field.inline, value)
        else:
            _set_field(result, field, value)
    return result


def _set_field(result: JsonObject, field: _ProtobufField, value: Any) -> None:
    base = underlying_type(field.go_type.removeprefix("*"))
    if base.startswith("map:"):
        entry = dict(_fields(value))
        key = entry.get(1, b"").decode()
        result.setdefault(field.field, {})[key] = _value(base.removeprefix("map:"), entry.get(2, b""))
    elif base.startswith("[]") and base != "[]byte":
        result.setdefault(field.field, []).append(_value(base.removeprefix("[]"), value))
    else:
        result[field.field] = _value(base, value)


def _value(go_type: str, value: Any) -> Any:
    base = underlying_type(go_type.removeprefix("*"))
    if struct_fields(base) is not None:
        return _message(base, value)
    return _SCALARS[base](value)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _time(value: bytes) -> str | None:
    parts = dict(_fields(value))
    if not parts:
        return None
    return format_time(_signed(parts.get(1, 0)))


def _micro_time(value: bytes) -> str | None:
    parts = dict(_fields(value))
    time = _time(value)
    return time and f"{time[:-1]}.{parts.get(2, 0) // 1000:06d}Z"


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
    # managedFields, which are dropped.
    "any": lambda _: None,
}
