"""Converts pydantic models to structural schemas, the subset of JSON Schema that CRDs use.

A structural schema has exactly one type per node, no references and no unions. A model that cannot be expressed this way
raises SchemaError when the CRD is generated. Nothing is dropped silently.

    open model (extra="allow")  ->  x-kubernetes-preserve-unknown-fields
    X | None                    ->  X; the field is optional, but null is not a value
    int | str                   ->  x-kubernetes-int-or-string
    Any                         ->  any value, preserved
    with_default(value=x)       ->  default
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlop.kube.types import JsonObject

if TYPE_CHECKING:
    from pydantic import BaseModel

ANYTHING: JsonObject = {"x-kubernetes-preserve-unknown-fields": True}
OPEN_OBJECT: JsonObject = {"type": "object", **ANYTHING}
INT_OR_STRING: JsonObject = {"x-kubernetes-int-or-string": True}

_LIMITS = frozenset(f"{bound}{what}" for bound in ("min", "max") for what in ("imum", "Length", "Items", "Properties"))
_KEPT = frozenset({"description", "type", "format", "enum", "pattern", "required", "multipleOf"}) | _LIMITS
# Defaults belong to the operator. The API server does not write them into a spec unless the model uses `with_default`.
_DROPPED = frozenset({"title", "default", "examples", "$defs"})
_TRANSLATED = frozenset({"const", "properties", "items", "additionalProperties", "exclusiveMinimum", "exclusiveMaximum"})
_STORED_DEFAULT = "x-stored-default"
_KNOWN = _KEPT | _DROPPED | _TRANSLATED | {_STORED_DEFAULT}


class SchemaError(Exception):
    """A model cannot be expressed as a structural schema. The message names the field."""


def rule(
    expression: str, message: str, *, field_path: str | None = None, reason: str | None = None, message_expression: str | None = None
) -> JsonObject:
    """A CEL rule for `x-kubernetes-validations`. `self` is the value that the schema describes.

    The error is reported for the field at `field_path`, relative to `self`. `reason` is FieldValueRequired, FieldValueForbidden
    or FieldValueDuplicate; None means FieldValueInvalid. The API server falls back to `message` if `message_expression`
    does not evaluate to a message.
    """
    optional = {"messageExpression": message_expression, "fieldPath": field_path, "reason": reason}
    return {"rule": expression, "message": message, **{name: value for name, value in optional.items() if value is not None}}


def with_rules(*rules: JsonObject) -> JsonObject:
    """CEL rules, in the form of `json_schema_extra` of a model or a field."""
    return {"x-kubernetes-validations": list(rules)}


def with_default(*, value: Any) -> JsonObject:
    """A default that the API server writes into the spec, in the form of `json_schema_extra` of a field."""
    return {_STORED_DEFAULT: value}


def structural_schema(model: type[BaseModel]) -> JsonObject:
    """The structural schema of a model.

    Raises:
        SchemaError: the model cannot be expressed as a structural schema.
    """
    schema = model.model_json_schema(by_alias=True, mode="validation")
    return _Node(schema, definitions=schema.get("$defs", {}), path="spec").convert()


class _Node:
    """One node of a pydantic schema. `within` are the names of the enclosing definitions."""

    def __init__(self, schema: Mapping[str, Any], *, definitions: Mapping[str, Any], path: str, within: tuple[str, ...] = ()) -> None:
        self._definitions = definitions
        self._path = path
        self._within = within
        self._schema = self._resolve(schema)

    def convert(self) -> JsonObject:
        schema = self._schema
        if _is_int_or_string(schema):
            return {keyword: schema[keyword] for keyword in schema if keyword == "description"} | INT_OR_STRING
        self._check_supported()
        converted = {keyword: schema[keyword] for keyword in schema if keyword in _KEPT or keyword.startswith("x-kubernetes-")}
        converted |= _constant(schema) | _bounds(schema) | _default(schema) | self._children()
        return converted if "type" in converted else converted | ANYTHING

    def _resolve(self, schema: Mapping[str, Any]) -> JsonObject:
        """Inlines references and removes the null of optional fields. Keywords next to a reference override the referenced ones."""
        siblings = {keyword: value for keyword, value in schema.items() if keyword not in ("$ref", "allOf", "anyOf")}
        if "$ref" in schema:
            name = schema["$ref"].removeprefix("#/$defs/")
            if name in self._within:
                raise SchemaError(f"{self._path} is recursive, which a structural schema does not support: use `Any`")
            self._within = (*self._within, name)
            return self._resolve(self._definitions[name]) | siblings
        choices = [choice for choice in schema.get("anyOf", schema.get("allOf", ())) if choice.get("type") != "null"]
        if len(choices) == 1:
            return self._resolve(choices[0]) | siblings
        return dict(schema)

    def _check_supported(self) -> None:
        schema = self._schema
        if "anyOf" in schema or "allOf" in schema:
            raise SchemaError(f"{self._path} is a union, which a structural schema does not support: use one type, or `Any`")
        if schema.get("properties") and isinstance(schema.get("additionalProperties"), Mapping):
            raise SchemaError(
                f"{self._path} has named and typed additional fields, which a structural schema does not support: use one of them"
            )
        unknown = {keyword for keyword in schema if keyword not in _KNOWN and not keyword.startswith("x-kubernetes-")}
        if unknown:
            raise SchemaError(f"{self._path} uses {', '.join(sorted(unknown))}, which a structural schema does not support")

    def _children(self) -> JsonObject:
        children: JsonObject = {}
        properties = self._schema.get("properties", {})
        if properties:
            children["properties"] = {name: self._child(child, f".{name}") for name, child in properties.items()}
        if "items" in self._schema:
            children["items"] = self._child(self._schema["items"], "[]")
        additional = self._schema.get("additionalProperties")
        if additional is True:
            children |= ANYTHING
        elif isinstance(additional, Mapping):
            children["additionalProperties"] = self._child(additional, ".*")
        return children

    def _child(self, schema: Mapping[str, Any], step: str) -> JsonObject:
        return _Node(schema, definitions=self._definitions, path=self._path + step, within=self._within).convert()


def _is_int_or_string(schema: Mapping[str, Any]) -> bool:
    return {choice.get("type") for choice in schema.get("anyOf", ()) if choice.get("type") != "null"} == {"integer", "string"}


def _constant(schema: Mapping[str, Any]) -> JsonObject:
    return {"enum": [schema["const"]]} if "const" in schema else {}


def _default(schema: Mapping[str, Any]) -> JsonObject:
    return {"default": schema[_STORED_DEFAULT]} if _STORED_DEFAULT in schema else {}


def _bounds(schema: Mapping[str, Any]) -> JsonObject:
    """Exclusive bounds. They are numbers in pydantic's schema, and booleans next to `minimum` and `maximum` in a CRD."""
    bounds: JsonObject = {}
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if exclusive in schema:
            bounds |= {bound: schema[exclusive], exclusive: True}
    return bounds
