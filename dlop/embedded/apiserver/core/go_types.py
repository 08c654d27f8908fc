"""The fields of the built-in types: which there are, of what type, and how strategic merge patch treats them.

`shapes.json` is made from the Go structs of k8s.io/api. Each field is one line in words: its Go type, then `omitempty`
or `omitzero` when an empty value is not written, then `merge=<key>` for a list that patches merge by that key.
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
    """One field of a struct: `go_type` with its `*`, `[]` and `map:` in front."""

    go_type: str
    omit_empty: bool
    omit_zero: bool
    merge: MergeList | None
    """How strategic merge patch treats a list; its items are filled in by `merge_schema`."""


@cache
def _texts() -> Mapping[str, str | Mapping[str, str]]:
    text = files(__package__).joinpath("shapes.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, str | dict[str, str]])


@cache
def struct(name: str) -> Mapping[str, GoField] | None:
    """The fields of a struct such as `core.v1.Pod`; None when the name is not a struct."""
    fields = _texts().get(name)
    if not isinstance(fields, dict):
        return None
    return {field: _field(words) for field, words in fields.items()}


def underlying(go_type: str) -> str:
    """What a named type such as `core.v1.PodPhase` is made of."""
    named = _texts().get(go_type)
    return underlying(named) if isinstance(named, str) else go_type


def _field(words: str) -> GoField:
    go_type, *rest = words.split()
    merges = [word for word in rest if word.startswith("merge")]
    merge = MergeList(key=merges[0].partition("=")[2] or None) if merges else None
    return GoField(go_type, "omitempty" in rest, "omitzero" in rest, merge)


@cache
def merge_schema(name: str) -> MergeSchema:
    """How strategic merge patch treats a struct: every list of it, at any depth, that is merged rather than replaced."""
    schema: dict[str, MergeSchema | MergeList] = {}
    for field, spec in (struct(name) or {}).items():
        items = merge_schema(_innermost(spec.go_type))
        if spec.merge is not None:
            schema[field] = MergeList(key=spec.merge.key, items=items)
        elif items and not spec.go_type.startswith(("[]", "map:")):
            schema[field] = items
    return schema


def _innermost(go_type: str) -> str:
    stripped = underlying(go_type.removeprefix("*"))
    return stripped.removeprefix("[]").removeprefix("*")


@cache
def openapi(go_type: str) -> JsonObject:
    """The OpenAPI schema of a type, complete in itself, without descriptions."""
    go_type = underlying(go_type.removeprefix("*"))
    if go_type == _BYTES:
        return {"type": "string", "format": "byte"}
    if go_type.startswith("[]"):
        return {"type": "array", "items": openapi(go_type.removeprefix("[]"))}
    if go_type.startswith("map:"):
        return {"type": "object", "additionalProperties": openapi(go_type.removeprefix("map:"))}
    fields = struct(go_type)
    if fields is None:
        return _SCALARS[go_type]
    return {"type": "object", "properties": {name: _property(spec) for name, spec in fields.items()}}


def _property(spec: GoField) -> JsonObject:
    schema = openapi(spec.go_type)
    if spec.merge is None:
        return schema
    key = {} if spec.merge.key is None else {"x-kubernetes-patch-merge-key": spec.merge.key}
    return {**schema, "x-kubernetes-patch-strategy": "merge", **key}
