"""Validation that the schema of a CRD is structural."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dlop.embedded.apiserver.api_errors import FieldError, FieldErrorType
from dlop.embedded.apiserver.apiextensions.schema_formats import go_pattern
from dlop.kube.types import JsonObject

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_MISSING_TYPE_MESSAGES = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_GO_REGEXP_ERRORS = {"unterminated character set": "missing closing ]", "missing ), unterminated subpattern": "missing closing )"}
_NESTED_FORBIDDEN = {
    "type": "must be empty to be structural",
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "title": "must be empty to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(FieldErrorType.REQUIRED, path, detail)


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(FieldErrorType.FORBIDDEN, path, detail)


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(FieldErrorType.INVALID, path, detail, value)


def structural_errors(schema: JsonObject, path: str) -> list[FieldError]:
    """The violations of the structural schema rules, in the order of kube-apiserver."""
    errors = list(_errors(schema, path, "root"))
    return sorted(errors, key=lambda error: f"{error.path}: {error.message}")


def _errors(schema: JsonObject, path: str, level: str) -> Iterator[FieldError]:
    yield from _child_errors(schema, path)
    if "additionalProperties" in schema and level == "root":
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    yield from _type_errors(schema, path, level)
    yield from _extension_errors(schema, path)
    yield from _combinator_errors(schema, path, skip_any=schema.get("anyOf") == _INT_OR_STRING, skip_all=_all_of_int_or_string(schema))
    if level == "root" or schema.get("x-kubernetes-embedded-resource"):
        yield from _meta_errors(schema, path)
    metadata = schema.get("properties", {}).get("metadata")
    if level == "root" and metadata is not None and not _is_plain_metadata(metadata):
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", detail)


def _child_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    items = schema.get("items")
    if schema.get("type") == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, dict):
        yield from _errors(items, f"{path}.items", "item")
    for name, child in schema.get("properties", {}).items():
        yield from _errors(child, f"{path}.properties[{name}]", "field")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _errors(schema["additionalProperties"], f"{path}.additionalProperties", "field")


def _type_errors(schema: JsonObject, path: str, level: str) -> Iterator[FieldError]:
    kind = schema.get("type", "")
    if schema.get("x-kubernetes-embedded-resource") and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail)
    elif not kind and not schema.get("x-kubernetes-int-or-string") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield required(f"{path}.type", _MISSING_TYPE_MESSAGES[level])
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")


def _extension_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                yield invalid(f"{path}.{name}", value=True, detail="must be false if x-kubernetes-int-or-string is true")
    if not schema.get("x-kubernetes-embedded-resource"):
        return
    if "additionalProperties" in schema:
        yield forbidden(f"{path}.additionalProperties", "must not be used if x-kubernetes-embedded-resource is set")
    if not schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        yield required(f"{path}.properties", detail)


def _meta_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    properties = schema.get("properties", {})
    for name, expected in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        if name in properties and properties[name].get("type", "") != expected:
            yield invalid(f"{path}.properties[{name}].type", properties[name].get("type", ""), f"must be {expected}")


def _is_plain_metadata(metadata: JsonObject) -> bool:
    rest = {name for name, value in metadata.items() if value and name not in ("type", "properties", "description", "default")}
    return not rest and set(metadata.get("properties", {})) <= {"name", "generateName"}


def _all_of_int_or_string(schema: JsonObject) -> bool:
    nested = schema.get("allOf") or [{}]
    return bool(nested[0].get("anyOf") == _INT_OR_STRING)


def _combinator_errors(schema: JsonObject, path: str, *, skip_any: bool = False, skip_all: bool = False) -> Iterator[FieldError]:
    for combinator in ("anyOf", "allOf", "oneOf"):
        for index, nested in enumerate(schema.get(combinator, ()) if not (combinator == "anyOf" and skip_any) else ()):
            skip = skip_all and combinator == "allOf" and index == 0
            yield from _nested_errors(nested, f"{path}.{combinator}[{index}]", skip_any=skip)
    if isinstance(schema.get("not"), dict):
        yield from _nested_errors(schema["not"], f"{path}.not")
    if schema.get("pattern"):
        yield from _pattern_errors(schema["pattern"], path)


def _pattern_errors(pattern: str, path: str) -> Iterator[FieldError]:
    try:
        go_pattern(pattern)
    except re.error as error:
        reason = _GO_REGEXP_ERRORS.get(error.msg, error.msg)
        detail = f"must be a valid regular expression, but isn't: error parsing regexp: {reason}: `{pattern}`"
        yield invalid(f"{path}.pattern", pattern, detail)


def _nested_errors(schema: JsonObject, path: str, *, skip_any: bool = False) -> Iterator[FieldError]:
    yield from _combinator_errors(schema, path, skip_any=skip_any)
    if isinstance(schema.get("items"), dict):
        yield from _nested_errors(schema["items"], f"{path}.items")
    for name, child in schema.get("properties", {}).items():
        yield from _nested_errors(child, f"{path}.properties[{name}]")
    for name, detail in _NESTED_FORBIDDEN.items():
        if schema.get(name):
            yield forbidden(f"{path}.{name}", detail)
    if "metadata" in schema.get("properties", {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
