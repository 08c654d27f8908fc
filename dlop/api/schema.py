"""Pydantic models as structural schemas, the dialect of JSON Schema that CRDs are written in.

Structural means: one type a place, no references, no unions. What a model says that cannot be said so is an error when
the CRD is made, never a silent loss.

    open model (extra="allow")  ->  x-kubernetes-preserve-unknown-fields
    X | None                    ->  X: a field is there or it is not, and null is neither
    int | str                   ->  x-kubernetes-int-or-string
    Any                         ->  anything, kept as it is
    with_default(value=x)       ->  default
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from dlop.kube.types import JsonObject

ANYTHING: JsonObject = {"x-kubernetes-preserve-unknown-fields": True}
OPEN_OBJECT: JsonObject = {"type": "object", **ANYTHING}
INT_OR_STRING: JsonObject = {"x-kubernetes-int-or-string": True}

_LIMITS = frozenset(f"{bound}{what}" for bound in ("min", "max") for what in ("imum", "Length", "Items", "Properties"))
_KEPT = frozenset({"description", "type", "format", "enum", "pattern", "required", "multipleOf"}) | _LIMITS
# Names for people and for Python; defaults are the operator's, and not written into a spec unless `with_default` says so.
_DROPPED = frozenset({"title", "default", "examples", "$defs"})
_TRANSLATED = frozenset({"const", "properties", "items", "additionalProperties", "exclusiveMinimum", "exclusiveMaximum"})
_STORED_DEFAULT = "x-stored-default"
_KNOWN = _KEPT | _DROPPED | _TRANSLATED | {_STORED_DEFAULT}


class SchemaError(Exception):
    """A model says something that a structural schema cannot say."""


def rule(expression: str, message: str, *, field_path: str | None = None, reason: str | None = None, told: str | None = None) -> JsonObject:
    """A CEL rule for `x-kubernetes-validations`. `self` is the value that the schema describes.

    The refusal names the field at `field_path` from there, and calls it invalid, or what `reason` says: FieldValueRequired,
    FieldValueForbidden, FieldValueDuplicate. `told` is an expression for the message; `message` is told where that says nothing.
    """
    optional = {"messageExpression": told, "fieldPath": field_path, "reason": reason}
    return {"rule": expression, "message": message, **{name: value for name, value in optional.items() if value is not None}}


def with_rules(*rules: JsonObject) -> JsonObject:
    """Rules as `json_schema_extra` of a model or a field takes them."""
    return {"x-kubernetes-validations": list(rules)}


def with_default(*, value: Any) -> JsonObject:
    """What the API server writes into a spec that leaves a field out, as `json_schema_extra` of the field takes it."""
    return {_STORED_DEFAULT: value}


def structural(model: type[BaseModel]) -> JsonObject:
    """The structural schema of a model.

    Raises:
        SchemaError: the model says something that such a schema cannot say; names the field.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _Place(schema, definitions=schema.get("$defs", {}), path="spec").structural()


class _Place:
    """One place of a schema in pydantic's dialect. `within` are the definitions that it is a part of."""

    def __init__(self, schema: Mapping[str, Any], *, definitions: Mapping[str, Any], path: str, within: tuple[str, ...] = ()) -> None:
        self._definitions = definitions
        self._path = path
        self._within = within
        self._schema = self._without_detours(schema)

    def structural(self) -> JsonObject:
        schema = self._schema
        if _is_int_or_string(schema):
            return {word: schema[word] for word in schema if word == "description"} | INT_OR_STRING
        self._refuse_what_cannot_be_said()
        found = {word: schema[word] for word in schema if word in _KEPT or word.startswith("x-kubernetes-")}
        found |= _constant(schema) | _bounds(schema) | _default(schema) | self._children()
        return found if "type" in found else found | ANYTHING

    def _without_detours(self, schema: Mapping[str, Any]) -> JsonObject:
        """The same without references and without the null of optional fields; what stands beside them wins."""
        beside = {word: value for word, value in schema.items() if word not in ("$ref", "allOf", "anyOf")}
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name in self._within:
                raise SchemaError(f"{self._path} contains itself, which a structural schema cannot say: use `Any` there")
            self._within = (*self._within, name)
            return self._without_detours(self._definitions[name]) | beside
        choices = [choice for choice in schema.get("anyOf", schema.get("allOf", ())) if choice.get("type") != "null"]
        if len(choices) == 1:
            return self._without_detours(choices[0]) | beside
        return dict(schema)

    def _refuse_what_cannot_be_said(self) -> None:
        schema = self._schema
        if "anyOf" in schema or "allOf" in schema:
            raise SchemaError(f"{self._path} may be of several types, which a structural schema cannot say: use one type, or `Any`")
        if schema.get("properties") and isinstance(schema.get("additionalProperties"), Mapping):
            raise SchemaError(f"{self._path} has named fields and a type for all others: a structural schema has either")
        unknown = {word for word in schema if word not in _KNOWN and not word.startswith("x-kubernetes-")}
        if unknown:
            raise SchemaError(f"{self._path} uses {', '.join(sorted(unknown))}, which a structural schema does not have")

    def _children(self) -> JsonObject:
        found: JsonObject = {}
        properties = self._schema.get("properties", {})
        if properties:
            found["properties"] = {name: self._child(child, f".{name}") for name, child in properties.items()}
        if "items" in self._schema:
            found["items"] = self._child(self._schema["items"], "[]")
        values = self._schema.get("additionalProperties")
        if values is True:
            found |= ANYTHING
        elif isinstance(values, Mapping):
            found["additionalProperties"] = self._child(values, ".*")
        return found

    def _child(self, schema: Mapping[str, Any], step: str) -> JsonObject:
        return _Place(schema, definitions=self._definitions, path=self._path + step, within=self._within).structural()


def _is_int_or_string(schema: Mapping[str, Any]) -> bool:
    return {choice.get("type") for choice in schema.get("anyOf", ()) if choice.get("type") != "null"} == {"integer", "string"}


def _constant(schema: Mapping[str, Any]) -> JsonObject:
    return {"enum": [schema["const"]]} if "const" in schema else {}


def _default(schema: Mapping[str, Any]) -> JsonObject:
    return {"default": schema[_STORED_DEFAULT]} if _STORED_DEFAULT in schema else {}


def _bounds(schema: Mapping[str, Any]) -> JsonObject:
    """Open bounds: a number of their own in pydantic's dialect, a remark on the other bound in that of CRDs."""
    found: JsonObject = {}
    for open_bound, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if open_bound in schema:
            found |= {bound: schema[open_bound], open_bound: True}
    return found
