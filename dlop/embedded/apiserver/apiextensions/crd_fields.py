"""The fields of a CustomResourceDefinition: what a body may hold, and of what type.

Unknown fields are dropped and named; a value of the wrong type is refused, so that everything behind this can rely on
the types. Nulls are dropped as if they were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlop.embedded.apiserver.core.go_decoder import read
from dlop.kube.types import JsonObject

Reader = Callable[[Any, str, list[str]], Any]
"""Makes the kept value from a given one; the list takes the paths of unknown fields."""

_JSON_NAMES = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


class WrongTypeError(ValueError):
    """A value is of another type than its field."""


def read_crd(body: JsonObject) -> tuple[JsonObject, list[str]]:
    """The body with what is known, and the paths of what is not.

    Raises:
        WrongTypeError: when a value is of another type than its field.
    """
    unknown: list[str] = []
    kept = _struct(_CRD, "CustomResourceDefinition")(body, "", unknown)
    return kept, unknown


def _mismatch(value: Any, path: str, wanted: str) -> WrongTypeError:
    given = _JSON_NAMES.get(type(value), "value")
    return WrongTypeError(f"json: cannot unmarshal {given} into Go struct field {path} of type {wanted}")


def _scalar(kind: type | tuple[type, ...], wanted: str) -> Reader:
    def reader(value: Any, path: str, unknown: list[str]) -> Any:  # noqa: ARG001
        if not isinstance(value, kind) or (isinstance(value, bool) and wanted != "bool"):
            raise _mismatch(value, path, wanted)
        return value

    return reader


def _list(item: Reader, wanted: str) -> Reader:
    def reader(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, list):
            raise _mismatch(value, path, f"[]{wanted}")
        return [item(one, f"{path}[{index}]", unknown) for index, one in enumerate(value)]

    return reader


def _map(item: Reader) -> Reader:
    def reader(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, path, "map[string]v1.JSONSchemaProps")
        return {name: item(one, f"{path}.{name}", unknown) for name, one in value.items() if one is not None}

    return reader


def _struct(fields: Mapping[str, Reader], name: str) -> Reader:
    def reader(value: Any, path: str, unknown: list[str]) -> Any:
        if not isinstance(value, dict):
            raise _mismatch(value, path, f"v1.{name}")
        kept = {}
        for field, given in value.items():
            below = f"{path}.{field}" if path else field
            field_reader = fields.get(field)
            if field_reader is None:
                unknown.append(below)
            elif given is not None:
                kept[field] = field_reader(given, below, unknown)
        return kept

    return reader


def _anything(value: Any, path: str, unknown: list[str]) -> Any:  # noqa: ARG001
    return value


def _schema(value: Any, path: str, unknown: list[str]) -> Any:
    return _struct(_JSON_SCHEMA, "JSONSchemaProps")(value, path, unknown)


def _schema_or_flag(value: Any, path: str, unknown: list[str]) -> Any:
    return value if isinstance(value, bool) else _schema(value, path, unknown)


def _schema_or_list(value: Any, path: str, unknown: list[str]) -> Any:
    return _list(_schema, "v1.JSONSchemaProps")(value, path, unknown) if isinstance(value, list) else _schema(value, path, unknown)


def _metadata(value: Any, path: str, unknown: list[str]) -> Any:
    known, unknown_below = read("meta.v1.ObjectMeta", value)
    unknown += [f"{path}.{below}" for below in unknown_below]
    return known


_TEXT = _scalar(str, "string")
_FLAG = _scalar(bool, "bool")
_WHOLE = _scalar(int, "int64")
_NUMBER = _scalar((int, float), "float64")
_TEXTS = _list(_TEXT, "string")

_RULE = {
    **dict.fromkeys(("rule", "message", "messageExpression", "reason", "fieldPath"), _TEXT),
    "optionalOldSelf": _FLAG,
}
_JSON_SCHEMA: dict[str, Reader] = {
    **dict.fromkeys(("id", "$schema", "$ref", "description", "type", "format", "title", "pattern"), _TEXT),
    **dict.fromkeys(("x-kubernetes-list-type", "x-kubernetes-map-type"), _TEXT),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "uniqueItems", "nullable"), _FLAG),
    **dict.fromkeys(("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"), _FLAG),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties", "minProperties"), _WHOLE),
    **dict.fromkeys(("maximum", "minimum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("required", "x-kubernetes-list-map-keys"), _TEXTS),
    **dict.fromkeys(("default", "example", "externalDocs", "dependencies"), _anything),
    **dict.fromkeys(("allOf", "oneOf", "anyOf"), _list(_schema, "v1.JSONSchemaProps")),
    **dict.fromkeys(("properties", "patternProperties", "definitions"), _map(_schema)),
    **dict.fromkeys(("additionalProperties", "additionalItems"), _schema_or_flag),
    "enum": _list(_anything, "v1.JSON"),
    "items": _schema_or_list,
    "not": _schema,
    "x-kubernetes-validations": _list(_struct(_RULE, "ValidationRule"), "v1.ValidationRule"),
}
_SCALE = dict.fromkeys(("specReplicasPath", "statusReplicasPath", "labelSelectorPath"), _TEXT)
_COLUMN: dict[str, Reader] = {**dict.fromkeys(("name", "type", "format", "description", "jsonPath"), _TEXT), "priority": _WHOLE}
_SUBRESOURCES: dict[str, Reader] = {
    "status": _struct({}, "CustomResourceSubresourceStatus"),
    "scale": _struct(_SCALE, "CustomResourceSubresourceScale"),
}
_VERSION: dict[str, Reader] = {
    **dict.fromkeys(("name", "deprecationWarning"), _TEXT),
    **dict.fromkeys(("served", "storage", "deprecated"), _FLAG),
    "schema": _struct({"openAPIV3Schema": _schema}, "CustomResourceValidation"),
    "subresources": _struct(_SUBRESOURCES, "CustomResourceSubresources"),
    "additionalPrinterColumns": _list(_struct(_COLUMN, "CustomResourceColumnDefinition"), "v1.CustomResourceColumnDefinition"),
    "selectableFields": _list(_struct({"jsonPath": _TEXT}, "SelectableField"), "v1.SelectableField"),
}
_NAMES: dict[str, Reader] = {
    **dict.fromkeys(("plural", "singular", "kind", "listKind"), _TEXT),
    **dict.fromkeys(("shortNames", "categories"), _TEXTS),
}
_SPEC: dict[str, Reader] = {
    **dict.fromkeys(("group", "scope"), _TEXT),
    "names": _struct(_NAMES, "CustomResourceDefinitionNames"),
    "versions": _list(_struct(_VERSION, "CustomResourceDefinitionVersion"), "v1.CustomResourceDefinitionVersion"),
    "conversion": _struct({"strategy": _TEXT, "webhook": _anything}, "CustomResourceConversion"),
    "preserveUnknownFields": _FLAG,
}
_CRD: dict[str, Reader] = {
    **dict.fromkeys(("apiVersion", "kind"), _TEXT),
    "metadata": _metadata,
    "spec": _struct(_SPEC, "CustomResourceDefinitionSpec"),
    "status": _anything,
}
