"""Decodes built-in objects as Go does.

kube-apiserver decodes objects into Go structs and encodes them again. That drops nulls and empty values, adds zero
values that Go does not omit, normalizes quantities and rejects values of the wrong type. Clients can observe this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from dlop.embedded.apiserver.core.go_scalars import ZEROS, GoTypeError, MismatchError, ScalarDecoder, go_name, scalar_decoder
from dlop.embedded.apiserver.core.go_types import GoField, struct_fields, underlying_type
from dlop.kube.types import JsonObject

Path = tuple["Path", str | int] | None
"""Path of a value as a linked list, innermost element last. It is only formatted for errors."""


Decoder = Callable[[Any, Path, list[str]], Any]
"""Decodes a value at a path and adds the paths of unknown fields to the list. It is not called with null."""


def decode(go_type: str, body: JsonObject) -> tuple[JsonObject, list[str]]:
    """The decoded body, and the paths of unknown fields.

    Raises:
        GoTypeError: a value has the wrong type.
    """
    unknown: list[str] = []
    return _decoder(go_type)(body, None, unknown), unknown


@cache
def _decoder(go_type: str) -> Decoder:
    """The decoder of a struct, list or map."""
    base = _base(go_type)
    if base.startswith("[]"):
        return _list_decoder(base)
    if base.startswith("map:"):
        return _map_decoder(base)
    fields = struct_fields(base)
    if fields is None:
        raise LookupError(f"unknown struct {base}")
    return _struct_decoder(base, fields)


@cache
def _scalar_decoder(go_type: str) -> ScalarDecoder | None:
    """The decoder of a scalar; None if the type is a struct, list or map."""
    base = _base(go_type)
    if base != "[]byte" and (base.startswith(("[]", "map:")) or struct_fields(base) is not None):
        return None
    return scalar_decoder(go_type.removeprefix("*"), base)


def _base(go_type: str) -> str:
    return underlying_type(go_type.removeprefix("*"))


def _struct_decoder(name: str, fields: Mapping[str, GoField]) -> Decoder:
    struct_name, go_type_name = name.rpartition(".")[2], go_name(name)
    decoders = {field: _FieldDecoder(spec) for field, spec in fields.items()}
    with_zero_value = [(field, decoder) for field, decoder in decoders.items() if decoder.has_zero_value]

    def decode_struct(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise MismatchError(value, go_type_name)
        result: JsonObject = {}
        for field, raw in value.items():
            decoder = decoders.get(field)
            if decoder is None:
                unknown.append(_format_path((path, field)))
            elif raw is not None:
                try:
                    decoded = decoder.scalar(raw) if decoder.scalar is not None else decoder.decoder(raw, (path, field), unknown)
                except MismatchError as mismatch:
                    raise GoTypeError(mismatch.message(f"{struct_name}.{_format_without_indexes((path, field))}")) from None
                if decoded or decoder.keeps_empty:
                    result[field] = decoded
        for field, decoder in with_zero_value:
            if field not in result:
                result[field] = decoder.zero_value()
        return result

    return decode_struct


class _FieldDecoder:
    """Decoder of one struct field, and its zero value."""

    __slots__ = ("_decoder", "_go_type", "has_zero_value", "keeps_empty", "scalar")

    def __init__(self, spec: GoField) -> None:
        self._go_type = spec.go_type
        self._decoder: Decoder | None = None
        self.scalar = _scalar_decoder(spec.go_type)
        pointer = spec.go_type.startswith("*")
        base = _base(spec.go_type)
        is_struct = struct_fields(base) is not None or base in ("Time", "MicroTime", "IntOrString", "Quantity")
        # Go's omitempty omits empty scalars, lists and maps, but never a struct that is not a pointer.
        self.keeps_empty = pointer or is_struct
        self.has_zero_value = not pointer and not spec.omit_zero and (is_struct or not spec.omit_empty)

    @property
    def decoder(self) -> Decoder:
        """The decoder of the field's type. Created on first use, because some types are deeply nested."""
        if self._decoder is None:
            self._decoder = _decoder(self._go_type)
        return self._decoder

    def zero_value(self) -> Any:
        """What Go encodes for an unset field."""
        base = _base(self._go_type)
        return ZEROS.get(base) if struct_fields(base) is None else self.decoder({}, None, [])


def _list_decoder(base: str) -> Decoder:
    item_type = base.removeprefix("[]")
    scalar, go_type_name = _scalar_decoder(item_type), f"[]{go_name(item_type)}"
    zero_value: Any = ZEROS.get(_base(item_type), {})

    def decode_list(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise MismatchError(value, go_type_name)
        if scalar is not None:
            return [scalar(zero_value if item is None else item) for item in value]
        decoder = _decoder(item_type)
        return [decoder(zero_value if item is None else item, (path, index), unknown) for index, item in enumerate(value)]

    return decode_list


def _map_decoder(base: str) -> Decoder:
    item_type = base.removeprefix("map:")
    scalar, go_type_name = _scalar_decoder(item_type), f"map[string]{go_name(item_type)}"
    zero_value: Any = ZEROS.get(_base(item_type), "")

    def decode_map(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise MismatchError(value, go_type_name)
        if scalar is not None:
            return {key: scalar(zero_value if item is None else item) for key, item in value.items()}
        decoder = _decoder(item_type)
        return {key: decoder(item or {}, path, unknown) for key, item in value.items()}

    return decode_map


def _format_path(path: Path) -> str:
    text = ""
    for name in _elements(path):
        text += f"[{name}]" if isinstance(name, int) else f".{name}"
    return text.removeprefix(".")


def _format_without_indexes(path: Path) -> str:
    return ".".join(name for name in _elements(path) if isinstance(name, str))


def _elements(path: Path) -> list[str | int]:
    names: list[str | int] = []
    while path is not None:
        path, name = path
        names.append(name)
    return names[::-1]
