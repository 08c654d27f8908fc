"""Structural schema validation and its messages."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.kube.errors import InvalidError
from tests.conformance.crds import FORMS, form
from tests.conformance.support import Api, expect_error
from tests.kubernetes_versions import JSON_VALUES, LIMITS_IN_BYTES


@pytest.mark.parametrize(
    ("field", "value", "reason", "message"),
    [
        ("text", "x", "Invalid", 'Invalid value: "x": spec.text in body should be at least 2 chars long'),
        pytest.param("text", "x" * 6, "TooLong", "Too long: may not be more than 5 bytes", marks=LIMITS_IN_BYTES),
        ("text", 5, "TypeInvalid", 'Invalid value: "integer": spec.text in body must be of type string: "integer"'),
        ("code", "ABC", "Invalid", "Invalid value: \"ABC\": spec.code in body should match '^[a-z]+$'"),
        ("mode", "Maybe", "NotSupported", 'Unsupported value: "Maybe": supported values: "On", "Off"'),
        ("count", 0, "Invalid", "Invalid value: 0: spec.count in body should be greater than or equal to 1"),
        ("count", 11, "Invalid", "Invalid value: 11: spec.count in body should be less than or equal to 10"),
        ("count", "3", "TypeInvalid", 'Invalid value: "string": spec.count in body must be of type integer: "string"'),
        ("count", True, "TypeInvalid", 'Invalid value: "boolean": spec.count in body must be of type integer: "boolean"'),
        ("ratio", 0, "Invalid", "Invalid value: 0: spec.ratio in body should be greater than 0"),
        ("even", 3, "Invalid", "Invalid value: 3: spec.even in body should be a multiple of 2"),
        ("flag", "yes", "TypeInvalid", 'Invalid value: "string": spec.flag in body must be of type boolean: "string"'),
        ("list", [], "Invalid", "Invalid value: 0: spec.list in body should have at least 1 items"),
        ("list", ["a", "b", "c"], "TooMany", "Too many: 3: must have at most 2 items"),
        ("list", "a", "TypeInvalid", 'Invalid value: "string": spec.list in body must be of type array: "string"'),
        ("map", {"a": 1, "b": 2, "c": 3}, "TooMany", "Too many: 3: must have at most 2 items"),
        ("when", "yesterday", "TypeInvalid", 'Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday"'),
    ],
)
async def test_an_invalid_value_is_rejected(api: Api, field: str, value: Any, reason: str, message: str) -> None:
    error = await expect_error(api.create(FORMS, form("a", **{field: value})), InvalidError)
    assert error.causes == [{"reason": f"FieldValue{reason}", "message": message, "field": f"spec.{field}"}]
    assert str(error) == f'Form.schema.dlop.dev "a" is invalid: spec.{field}: {message}'


async def test_a_null_of_a_field_that_is_not_nullable_is_dropped(api: Api) -> None:
    assert (await api.create(FORMS, form("a", text=None, count=None)))["spec"] == {}


async def test_valid_values_are_stored_unchanged(api: Api) -> None:
    spec = {
        "text": "fine",
        "code": "abc",
        "mode": "On",
        "count": 10,
        "ratio": 0.5,
        "even": 4,
        "flag": False,
        "list": ["a"],
        "unique": ["a", "b"],
        "keyed": [{"key": "a", "value": 1}, {"key": "b"}],
        "map": {"a": 1},
        "quantity": "10%",
        "when": "2026-01-01T00:00:00Z",
        "maybe": None,
        "choice": {"a": "x"},
        "needed": {"x": 1},
    }
    assert (await api.create(FORMS, form("a", **spec)))["spec"] == spec


async def test_an_error_in_a_nested_value_names_its_path(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", keyed=[{"key": "a"}, {"key": "b", "value": "x"}])), InvalidError)
    message = 'Invalid value: "string": spec.keyed[1].value in body must be of type integer: "string"'
    assert error.causes == [{"reason": "FieldValueTypeInvalid", "message": message, "field": "spec.keyed[1].value"}]


async def test_an_error_in_a_map_value_names_its_key(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", map={"a": "x"})), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["spec.map.a"]


async def test_a_missing_required_field_is_rejected(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", needed={})), InvalidError)
    assert error.causes == [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.needed.x"}]


async def test_duplicate_items_of_a_set_are_rejected(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", unique=["a", "b", "a"])), InvalidError)
    assert error.causes == [{"reason": "FieldValueDuplicate", "message": 'Duplicate value: "a"', "field": "spec.unique[2]"}]


@JSON_VALUES
async def test_duplicate_keys_of_a_map_list_are_rejected(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", keyed=[{"key": "a"}, {"key": "a"}])), InvalidError)
    assert error.causes == [{"reason": "FieldValueDuplicate", "message": 'Duplicate value: {"key":"a"}', "field": "spec.keyed[1]"}]


async def test_one_of_accepts_exactly_one_alternative(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", choice={"a": "x", "b": "y"})), InvalidError)
    assert '"spec.choice" must validate one and only one schema (oneOf). Found 2 valid alternatives' in str(error)


async def test_an_int_or_string_rejects_other_types(api: Api) -> None:
    assert (await api.create(FORMS, form("a", quantity=5)))["spec"] == {"quantity": 5}
    error = await expect_error(api.create(FORMS, form("a", quantity=[1])), InvalidError)
    assert "spec.quantity" in {cause["field"] for cause in error.causes}


async def test_all_errors_are_reported(api: Api) -> None:
    error = await expect_error(api.create(FORMS, form("a", count=99, mode="Maybe", flag="yes")), InvalidError)
    assert {cause["field"] for cause in error.causes} == {"spec.count", "spec.mode", "spec.flag"}


async def test_a_patch_is_validated(api: Api) -> None:
    before = await api.create(FORMS, form("a", count=5))
    error = await expect_error(api.patch(FORMS, "a", {"spec": {"count": 50}}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["spec.count"]
    assert await api.get(FORMS, "a") == before
