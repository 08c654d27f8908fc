"""Structural schemas: validation, pruning and defaulting."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.apiextensions.list_types import embedded_errors, list_errors
from dlop.embedded.apiserver.apiextensions.schema import MISSING, SchemaNode
from dlop.embedded.apiserver.apiextensions.schema_formats import go_pattern
from dlop.kube.types import JsonObject


def format_errors(errors: list[FieldError]) -> list[str]:
    return [f"{error.path}: {error.message}" for error in errors]


def errors_of(schema: JsonObject, value: Any, *, old: Any = MISSING) -> list[str]:
    """The errors of a schema for a value at `spec.a`."""
    errors: list[FieldError] = []
    root = SchemaNode({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": schema}}}})
    before = old if old is MISSING else {"spec": {"a": old}}
    root.check({"spec": {"a": value}}, before, "", errors)
    return format_errors(errors)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "x", 'Invalid value: "string": spec.a in body must be of type integer: "string"'),
        ({"type": "integer"}, True, 'Invalid value: "boolean": spec.a in body must be of type integer: "boolean"'),
        ({"type": "string"}, None, 'Invalid value: "null": spec.a in body must be of type string: "null"'),
        ({"type": "string", "maxLength": 2}, "abc", "Too long: may not be more than 2 bytes"),
        ({"type": "string", "maxLength": 2, "pattern": "^x$"}, "abc", "Too long: may not be more than 2 bytes"),
        ({"type": "string", "minLength": 2}, "a", 'Invalid value: "a": spec.a in body should be at least 2 chars long'),
        ({"type": "string", "pattern": "^[a-z]+$"}, "A", "Invalid value: \"A\": spec.a in body should match '^[a-z]+$'"),
        ({"type": "string", "enum": ["r", "g"]}, "b", 'Unsupported value: "b": supported values: "r", "g"'),
        ({"type": "integer", "enum": [1, 2]}, 3, 'Unsupported value: 3: supported values: "1", "2"'),
        ({"type": "integer", "maximum": 3}, 4, "Invalid value: 4: spec.a in body should be less than or equal to 3"),
        ({"type": "integer", "minimum": 3}, 2, "Invalid value: 2: spec.a in body should be greater than or equal to 3"),
        ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, 1, "Invalid value: 1: spec.a in body should be greater than 1"),
        ({"type": "number", "maximum": 1e6}, 2.5e6, "Invalid value: 2.5e+06: spec.a in body should be less than or equal to 1e+06"),
        ({"type": "integer", "multipleOf": 5}, 2**40, f"Invalid value: {2**40}: spec.a in body should be a multiple of 5"),
        ({"type": "string", "format": "date-time"}, 5, 'Invalid value: "int64": spec.a in body must be of type date-time: "int64"'),
        ({"type": "integer", "multipleOf": 5}, 7, "Invalid value: 7: spec.a in body should be a multiple of 5"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a", "b"], "Too many: 2: must have at most 1 items"),
        (
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
            [],
            "Invalid value: 0: spec.a in body should have at least 1 items",
        ),
        ({"type": "object", "maxProperties": 1, "additionalProperties": True}, {"b": 1, "c": 2}, "Too many: 2: must have at most 1 items"),
        ({"type": "string", "format": "date-time"}, "now", 'Invalid value: "now": spec.a in body must be of type date-time: "now"'),
        (
            {"x-kubernetes-int-or-string": True},
            1.5,
            'Invalid value: "number": spec.a in body must be of type integer,string: "number"',
        ),
    ],
)
def test_an_invalid_value_is_reported_with_the_message_of_kube_apiserver(schema: JsonObject, value: Any, message: str) -> None:
    assert errors_of(schema, value) == [f"spec.a: {message}"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 3.0),
        ({"type": "number"}, 3),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "no-such-format"}, "anything"),
        ({"type": "string", "format": "date-time"}, "2024-02-29T12:00:00.5+02:00"),
        ({"type": "string", "maxLength": 3}, "äöü"),
        ({"type": "number", "multipleOf": 0.1}, 0.3),
        ({"x-kubernetes-int-or-string": True}, "80%"),
        ({"x-kubernetes-preserve-unknown-fields": True}, [1, {"any": "thing"}]),
    ],
)
def test_a_valid_value_is_not_reported(schema: JsonObject, value: Any) -> None:
    assert errors_of(schema, value) == []


def test_a_missing_required_field_is_reported_with_its_path() -> None:
    schema = {"type": "array", "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}}
    assert errors_of(schema, [{"name": "x"}, {}]) == ["spec.a[1].name: Required value"]


def test_a_fraction_for_an_integer_gives_two_errors() -> None:
    assert errors_of({"type": "integer"}, 1.5) == [
        'spec.a: Invalid value: "number": spec.a in body must be of type integer: "number"',
        '<nil>: Invalid value: "": Checked value must be of type integer (default format) in spec.a',
    ]


def test_an_int32_out_of_range_is_reported_without_a_field() -> None:
    message = 'Invalid value: "": Checked value must be of type integer with format int32 in spec.a'
    assert errors_of({"type": "integer", "format": "int32"}, 2**31) == [f"<nil>: {message}"]


def test_one_of_reports_the_failures_of_its_first_alternative() -> None:
    schema = {"type": "object", "additionalProperties": True, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert errors_of(schema, {}) == [
        '<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found none valid',
        "spec.a.a: Required value",
    ]
    assert errors_of(schema, {"a": 1, "b": 2}) == [
        '<nil>: Invalid value: "": "spec.a" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    ]
    assert errors_of(schema, {"b": 2}) == []


def test_errors_of_any_of_all_of_and_not_name_the_keyword() -> None:
    assert errors_of({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": 1}]}, 3)[0].endswith("at least one schema (anyOf)")
    assert errors_of({"type": "integer", "allOf": [{"minimum": 5}, {"maximum": 9}]}, 3)[-1].endswith("all the schemas (allOf)")
    assert errors_of({"type": "integer", "not": {"enum": [3]}}, 3)[0].endswith("must not validate the schema (not)")


def test_unchanged_values_are_not_validated_again() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 1}, "y": {"type": "integer", "maximum": 1}}}
    assert errors_of(schema, {"x": 5, "y": 0}, old={"x": 5, "y": 1}) == []
    assert len(errors_of(schema, {"x": 6, "y": 0}, old={"x": 5, "y": 1})) == 1


def test_pruning_drops_and_reports_unknown_fields_at_any_depth() -> None:
    root = SchemaNode(
        {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {
                        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                }
            },
        }
    )
    body = {
        "apiVersion": "v1",
        "metadata": {"anything": 1},
        "spec": {"list": [{"a": "1", "b": 2}], "map": {"k": {"c": 1}}, "open": {"x": {"y": 1}}, "d": 1},
        "e": 1,
    }
    unknown: list[str] = []
    pruned = root.prune(body, "", unknown)
    assert unknown == ["spec.list[0].b", "spec.map.k.c", "spec.d", "e"]
    assert pruned == {
        "apiVersion": "v1",
        "metadata": {"anything": 1},
        "spec": {"list": [{"a": "1"}], "map": {"k": {}}, "open": {"x": {"y": 1}}},
    }
    assert body["e"] == 1, "the input is not modified"


def test_an_unchanged_value_is_not_copied() -> None:
    root = SchemaNode(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}}}
    )
    body = {"spec": {"a": "b"}}
    assert root.prune(body, "", []) is body
    assert root.with_defaults(body) is body


def test_defaults_apply_inside_defaults_and_lists() -> None:
    inner = {"type": "object", "default": {}, "properties": {"b": {"type": "integer", "default": 3}}}
    root = SchemaNode({"type": "object", "properties": {"a": inner, "list": {"type": "array", "items": inner}}})
    body = {"list": [{}, {"b": 1}]}
    assert root.with_defaults(body) == {"list": [{"b": 3}, {"b": 1}], "a": {"b": 3}}
    assert body == {"list": [{}, {"b": 1}]}


def test_a_null_is_defaulted_or_dropped_unless_nullable() -> None:
    kinds = {"a": {"type": "string", "default": "x"}, "b": {"type": "string"}, "c": {"type": "string", "nullable": True}}
    root = SchemaNode({"type": "object", "properties": kinds})
    assert root.with_defaults({"a": None, "b": None, "c": None}) == {"a": "x", "c": None}


def test_lists_of_type_set_and_map_must_not_have_duplicates() -> None:
    items = {"type": "object", "properties": {"name": {"type": "string"}, "port": {"type": "integer", "default": 1}}}
    keyed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "port"], "items": items}
    tags = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    root = SchemaNode({"type": "object", "properties": {"keyed": keyed, "tags": tags}})
    body = {"keyed": [{"name": "a"}, {"name": "a", "port": 1}, {"name": "a", "port": 2}], "tags": ["x", "y", "x", "x"]}
    assert format_errors(list_errors(root, body, "")) == [
        'keyed[1]: Duplicate value: {"name":"a","port":1}',
        'tags[2]: Duplicate value: "x"',
    ]


def test_an_embedded_resource_needs_a_kind() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    root = SchemaNode({"type": "object", "properties": {"template": embedded}})
    assert format_errors(embedded_errors(root, {"template": {"apiVersion": "v1"}}, "")) == ["template.kind: Required value"]


@pytest.mark.parametrize(
    ("pattern", "text", "matches"), [("^a$", "a\n", False), ("^[[:digit:]]+$", "42", True), (r"^a\z", "a", True), ("[$]", "$", True)]
)
def test_patterns_match_as_in_go(pattern: str, text: str, *, matches: bool) -> None:
    assert (go_pattern(pattern).search(text) is not None) is matches
