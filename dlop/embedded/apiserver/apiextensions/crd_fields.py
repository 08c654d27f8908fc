"""Decodes CustomResourceDefinitions.

Unknown fields are dropped and reported, nulls are dropped, and values of the wrong type are rejected, so that later
code can rely on the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlop.embedded.apiserver.core.go_decoder import decode
from dlop.kube.types import JsonObject

FieldDecoder = Callable[[Any, str, list[str]], Any]
"""Decodes a value at a path and appends the paths of unknown fields to the list."""

_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class CrdTypeError(ValueError):
    """A value has the wrong type."""


def decode_crd(body: JsonObject) -> tuple[JsonObject, list[str]]:
    """The decoded body, and the paths of unknown fields.

    Raises:
        CrdTypeError: a value has the wrong type.
    """
    unknown: list[str] = []
    decoded = _struct(_CRD, "CustomResourceDefinition")(body, "", unknown)
    return decoded, unknown


def _mismatch(value: Any, path: str, go_type: str) -> CrdTypeError:
    json_type = _JSON_NAMES.get(type(value), "value")
    return CrdTypeError(f"json: cannot unmarshal {json_type} into Go struct field {path} of type {go_type}")


def _scalar(kind: type | tuple[type, ...], go_type: str) -> FieldDecoder:
    def decode_field(value: Any, path: str, unknown: list[str]) -> Any:  # noqa: ARG001
        if not isinstance(value, kind) or (isinstance(value, bool) and go_type != "bool"):
            raise _mismatch(value, path, go_type)
        return value

    return decode_field


def _list(item: FieldDecoder, go_type: str) -> FieldDecoder:
    def decode_field(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, list):
            raise _mismatch(value, path, f"[]{go_type}")
        return [item(element, f"{path}[{index}]", unknown) for index, element in enumerate(value)]

    return decode_field


def _map(item: FieldDecoder) -> FieldDecoder:
    def decode_field(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, path, "map[string]v1.JSONSchemaProps")
        return {name: item(element, f"{path}.{name}", unknown) for name, element in value.items() if element is not None}

    return decode_field


def _struct(fields: Mapping[str, FieldDecoder], name: str) -> FieldDecoder:
    def decode_field(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, path, f"v1.{name}")
        decoded = {}
        for field, raw in value.items():
            child_path = f"{path}.{field}" if path else field
            field_decoder = fields.get(field)
            if field_decoder is None:
                unknown.append(child_path)
            elif raw is not None:
                decoded[field] = field_decoder(raw, child_path, unknown)
        return decoded

    return decode_field


def _anything(value: Any, path: str, unknown: list[str]) -> Any:  # noqa: ARG001
    return value


def _schema(value: Any, path: str, unknown: list[str]) -> Any:
    return _struct(_JSON_SCHEMA, "JSONSchemaProps")(value, path, unknown)


def _schema_or_boolean(value: Any, path: str, unknown: list[str]) -> Any:
    return value if isinstance(value, bool) else _schema(value, path, unknown)


def _schema_or_list(value: Any, path: str, unknown: list[str]) -> Any:
    return _list(_schema, "v1.JSONSchemaProps")(value, path, unknown) if isinstance(value, list) else _schema(value, path, unknown)


def _metadata(value: Any, path: str, unknown: list[str]) -> Any:
    known, unknown_metadata = decode("meta.v1.ObjectMeta", value)
    unknown += [f"{path}.{child_path}" for child_path in unknown_metadata]
    return known


_STRING = _scalar(str, "string")
_BOOLEAN = _scalar(bool, "bool")
_INTEGER = _scalar(int, "int64")
_NUMBER = _scalar((int, float), "float64")
_STRINGS = _list(_STRING, "string")

_RULE = {
    **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), _STRING),
    "optionalOldSelf": _BOOLEAN,
}
_JSON_SCHEMA: dict[str, FieldDecoder] = {
    **dict.fromkeys(("id", "$schema", "$ref", "description", "type", "format", "title", "pattern"), _STRING),
    **dict.fromkeys(("x-kubernetes-list-type", "x-kubernetes-map-type"), _STRING),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"), _BOOLEAN),
    **dict.fromkeys(("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"), _BOOLEAN),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), _INTEGER),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _STRINGS),
    **dict.fromkeys(("default", "example", "externalDocs", "dependencies"), _anything),
    **dict.fromkeys(("allOf", "oneOf", "anyOf"), _list(_schema, "v1.JSONSchemaProps")),
    **dict.fromkeys(("properties", "patternProperties", "definitions"), _map(_schema)),
    **dict.fromkeys(("additionalProperties", "additionalItems"), _schema_or_boolean),
    "enum": _list(_anything, "v1.JSON"),
    "items": _schema_or_list,
    "not": _schema,
    "x-kubernetes-validations": _list(_struct(_RULE, "ValidationRule"), "v1.ValidationRule"),
}
_SCALE = dict.fromkeys(("specReplicasPath", "statusReplicasPath", "labelSelectorPath"), _STRING)
_COLUMN: dict[str, FieldDecoder] = {**dict.fromkeys(("name", "type", "format", "description", "jsonPath"), _STRING), "priority": _INTEGER}
_SUBRESOURCES: dict[str, FieldDecoder] = {
    "status": _struct({}, "CustomResourceSubresourceStatus"),
    "scale": _struct(_SCALE, "CustomResourceSubresourceScale"),
}
_VERSION: dict[str, FieldDecoder] = {
    **dict.fromkeys(("name", "deprecationWarning"), _STRING),
    **dict.fromkeys(("served", "storage", "deprecated"), _BOOLEAN),
    "schema": _struct({"openAPIV3Schema": _schema}, "CustomResourceValidation"),
    "subresources": _struct(_SUBRESOURCES, "CustomResourceSubresources"),
    "additionalPrinterColumns": _list(_struct(_COLUMN, "CustomResourceColumnDefinition"), "v1.CustomResourceColumnDefinition"),
    "selectableFields": _list(_struct({"jsonPath": _STRING}, "SelectableField"), "v1.SelectableField"),
}
_NAMES: dict[str, FieldDecoder] = {
    **dict.fromkeys(("plural", "singular", "kind", "listKind"), _STRING),
    **dict.fromkeys(("shortNames", "categories"), _STRINGS),
}
_SPEC: dict[str, FieldDecoder] = {
    **dict.fromkeys(("group", "scope"), _STRING),
    "names": _struct(_NAMES, "CustomResourceDefinitionNames"),
    "versions": _list(_struct(_VERSION, "CustomResourceDefinitionVersion"), "v1.CustomResourceDefinitionVersion"),
    "conversion": _struct({"strategy": _STRING, "webhook": _anything}, "CustomResourceConversion"),
    "preserveUnknownFields": _BOOLEAN,
}
_CRD: dict[str, FieldDecoder] = {
    **dict.fromkeys(("apiVersion", "kind"), _STRING),
    "metadata": _metadata,
    "spec": _struct(_SPEC, "CustomResourceDefinitionSpec"),
    "status": _anything,
}
