"""Fields of the built-in Go types.

`go_types.json` is generated from k8s.io/api by hack/lib/go_types.py. It describes a field by its Go type, optionally
followed by `omitempty` or `omitzero`, and by `merge=<key>` for lists that strategic merge patch merges by that key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import msgspec

from dlop.embedded.apiserver.resource_type import MergeList, MergeSchema
from dlop.kube.types import JsonObject

_SCALARS: Mapping[str, JsonObject] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "Quantity": {"anyOf": [{"type": "string"}, {"type": "number"}]},
    "IntOrString": {"format": "int-or-string", "anyOf": [{"type": "integer"}, {"type": "string"}]},
    "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}
_BYTES = "[]byte"


@dataclass(frozen=True, slots=True)
class GoField:
    """One field of a struct. `go_type` includes the prefixes `*`, `[]` and `map:`."""

    go_type: str
    omit_empty: bool
    omit_zero: bool
    merge: MergeList | None
    """Set for lists that strategic merge patch merges. `merge_schema` adds the schema of the items."""


@cache
def _definitions() -> Mapping[str, str | Mapping[str, str]]:
    text = files(__package__).joinpath("go_types.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, str | dict[str, str]])


@cache
def struct_fields(name: str) -> Mapping[str, GoField] | None:
    """The fields of a struct such as `core.v1.Pod`; None if the name is not a struct."""
    fields = _definitions().get(name)
    if not isinstance(fields, dict):
        return None
    return {field: _parse_field(text) for field, text in fields.items()}


def underlying_type(go_type: str) -> str:
    """The underlying type of a named type such as `core.v1.PodPhase`."""
    definition = _definitions().get(go_type)
    return underlying_type(definition) if isinstance(definition, str) else go_type


def _parse_field(text: str) -> GoField:
    go_type, *options = text.split()
    merges = [option for option in options if option.startswith("merge")]
    merge = MergeList(key=merges[0].partition("=")[2] or None) if merges else None
    return GoField(go_type, "omitempty" in options, "omitzero" in options, merge)


@cache
def merge_schema(name: str) -> MergeSchema:
    """The lists of a struct, at any depth, that strategic merge patch merges instead of replacing."""
    schema: dict[str, MergeSchema | MergeList] = {}
    for field, spec in (struct_fields(name) or {}).items():
        items = merge_schema(_item_type(spec.go_type))
        if spec.merge is not None:
            schema[field] = MergeList(key=spec.merge.key, items=items)
        elif items and not spec.go_type.startswith(("[]", "map:")):
            schema[field] = items
    return schema


def _item_type(go_type: str) -> str:
    stripped = underlying_type(go_type.removeprefix("*"))
    return stripped.removeprefix("[]").removeprefix("*")


@cache
def openapi_schema(go_type: str) -> JsonObject:
    """The OpenAPI schema of a type without references and descriptions."""
    go_type = underlying_type(go_type.removeprefix("*"))
    if go_type == _BYTES:
        return {"type": "string", "format": "byte"}
    if go_type.startswith("[]"):
        return {"type": "array", "items": openapi_schema(go_type.removeprefix("[]"))}
    if go_type.startswith("map:"):
        return {"type": "object", "additionalProperties": openapi_schema(go_type.removeprefix("map:"))}
    fields = struct_fields(go_type)
    if fields is None:
        return _SCALARS[go_type]
    return {"type": "object", "properties": {name: _property(spec) for name, spec in fields.items()}}


def _property(spec: GoField) -> JsonObject:
    schema = openapi_schema(spec.go_type)
    if spec.merge is None:
        return schema
    key = {} if spec.merge.key is None else {"x-kubernetes-patch-merge-key": spec.merge.key}
    return {**schema, "x-kubernetes-patch-strategy": "merge", **key}
