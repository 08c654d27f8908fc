"""What a structural schema refuses, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from dlop.kube.errors import InvalidError
from dlop.kube.types import JsonObject
from tests.conformance.bodies import custom
from tests.conformance.definitions import FORMS
from tests.conformance.support import Api, refused


async def created(api: Api, **spec: Any) -> JsonObject:
    return await api.create(FORMS, custom(FORMS, "a", spec=spec))


@pytest.mark.parametrize(
    ("field", "value", "reason", "message"),
    [
        ("text", "x", "Invalid", 'Invalid value: "x": spec.text in body should be at least 2 chars long'),
        ("text", "x" * 6, "TooLong", "Too long: may not be more than 5 bytes"),
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
async def test_a_value_is_refused(api: Api, field: str, value: Any, reason: str, message: str) -> None:
    error = await refused(created(api, **{field: value}), InvalidError)
    assert error.causes == [{"reason": f"FieldValue{reason}", "message": message, "field": f"spec.{field}"}]
    assert str(error) == f'Form.schema.dlop.dev "a" is invalid: spec.{field}: {message}'


async def test_a_null_where_none_is_allowed_is_dropped(api: Api) -> None:
    assert (await created(api, text=None, count=None))["spec"] == {}


async def test_values_within_their_bounds_are_kept_as_they_are(api: Api) -> None:
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
    assert (await created(api, **spec))["spec"] == spec


async def test_a_value_deep_inside_is_named_by_its_path(api: Api) -> None:
    error = await refused(created(api, keyed=[{"key": "a"}, {"key": "b", "value": "x"}]), InvalidError)
    message = 'Invalid value: "string": spec.keyed[1].value in body must be of type integer: "string"'
    assert error.causes == [{"reason": "FieldValueTypeInvalid", "message": message, "field": "spec.keyed[1].value"}]


async def test_a_value_of_a_map_is_named_by_its_key(api: Api) -> None:
    error = await refused(created(api, map={"a": "x"}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["spec.map.a"]


async def test_a_required_field_must_be_there(api: Api) -> None:
    error = await refused(created(api, needed={}), InvalidError)
    assert error.causes == [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.needed.x"}]


async def test_a_set_holds_each_item_once(api: Api) -> None:
    error = await refused(created(api, unique=["a", "b", "a"]), InvalidError)
    assert error.causes == [{"reason": "FieldValueDuplicate", "message": 'Duplicate value: "a"', "field": "spec.unique[2]"}]


async def test_a_keyed_list_holds_each_key_once(api: Api) -> None:
    error = await refused(created(api, keyed=[{"key": "a"}, {"key": "a"}]), InvalidError)
    assert error.causes == [{"reason": "FieldValueDuplicate", "message": 'Duplicate value: {"key":"a"}', "field": "spec.keyed[1]"}]


async def test_exactly_one_of_two_must_be_given(api: Api) -> None:
    error = await refused(created(api, choice={"a": "x", "b": "y"}), InvalidError)
    assert '"spec.choice" must validate one and only one schema (oneOf). Found 2 valid alternatives' in str(error)


async def test_an_int_or_string_takes_both_and_nothing_else(api: Api) -> None:
    assert (await created(api, quantity=5))["spec"] == {"quantity": 5}
    error = await refused(created(api, quantity=[1]), InvalidError)
    assert "spec.quantity" in {cause["field"] for cause in error.causes}


async def test_every_mistake_is_told(api: Api) -> None:
    error = await refused(created(api, count=99, mode="Maybe", flag="yes"), InvalidError)
    assert {cause["field"] for cause in error.causes} == {"spec.count", "spec.mode", "spec.flag"}


async def test_a_patch_is_checked_as_a_create_is(api: Api) -> None:
    before = await created(api, count=5)
    error = await refused(api.patch(FORMS, "a", {"spec": {"count": 50}}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["spec.count"]
    assert await api.get(FORMS, "a") == before
