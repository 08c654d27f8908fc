"""JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.embedded.apiserver.patches.patch import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, apply_merge_patch, decode_patch
from dlop.embedded.apiserver.resource_type import MergeList, ResourceType
from dlop.kube.errors import BadRequestError, InvalidError, ServerError, UnsupportedMediaTypeError
from dlop.kube.resources import Resource
from dlop.kube.types import JsonObject

_THINGS = Resource("example.org", "v1", "things", "Thing")
CUSTOM = ResourceType(resource=_THINGS, storage="things", singular="thing")
BUILT_IN = ResourceType(
    resource=_THINGS,
    storage="things",
    singular="thing",
    merge_schema={
        "spec": {
            "containers": MergeList(key="name", items={"env": MergeList(key="name"), "ports": MergeList(key="containerPort")}),
            "groups": MergeList(),
        }
    },
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.sampled_from("abc"), json_values, max_size=3)


def apply(body: JsonObject, patch: Any, *, kind: str, type: ResourceType = BUILT_IN) -> JsonObject:
    before = copy.deepcopy(body)
    result = decode_patch(type, kind, msgspec.json.encode(patch))(body)
    assert body == before, "a patch must not modify its input"
    return result


# --- merge patch -----------------------------------------------------------------------------------------------------


# The cases of RFC 7386, appendix A, that are about objects.
@pytest.mark.parametrize(
    ("body", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_merges_objects_replaces_the_rest_and_removes_nulls(body: JsonObject, patch: JsonObject, result: JsonObject) -> None:
    assert apply(body, patch, kind=MERGE_PATCH) == result


@given(json_objects, json_objects)
def test_a_merge_patch_is_idempotent(body: JsonObject, patch: JsonObject) -> None:
    once = apply_merge_patch(body, patch)
    assert apply_merge_patch(once, patch) == once


def test_unchanged_parts_are_shared() -> None:
    body: JsonObject = {"spec": {"deep": {"x": 1}}, "status": {"big": [1, 2, 3]}}
    assert apply_merge_patch(body, {"spec": {"y": 2}})["status"] is body["status"]
    assert apply_merge_patch(body, {"spec": {"y": 2}})["spec"]["deep"] is body["spec"]["deep"]


# --- JSON patch ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "operations", "result"),
    [
        ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2]}),
        ({"a": {"b": 1}}, [{"op": "remove", "path": "/a/b"}], {"a": {}}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/-1"}], {"a": [1]}),
        ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
        ({"a": {}}, [{"op": "replace", "path": "/a/b", "value": 1}], {"a": {"b": 1}}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/1", "value": 3}], {"a": [1, 3]}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": {"x": [1]}}, [{"op": "copy", "from": "/a/x", "path": "/b"}], {"a": {"x": [1]}, "b": [1]}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}, {"op": "remove", "path": "/a"}], {}),
        ({"a": 1}, [{"op": "test", "path": "/none", "value": None}], {"a": 1}),
        ({"a/b": 1, "c~d": 2}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], {}),
        ({"a": {"b": [{"c": 1}]}}, [{"op": "add", "path": "/a/b/0/d", "value": 2}], {"a": {"b": [{"c": 1, "d": 2}]}}),
        ({"a": 1}, [], {"a": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
    ],
)
def test_the_operations_of_a_json_patch_are_applied_in_order(body: JsonObject, operations: list[JsonObject], result: JsonObject) -> None:
    assert apply(body, operations, kind=JSON_PATCH) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "test", "path": "/none/deep", "value": None},
        {"op": "remove", "path": "/none"},
        {"op": "remove", "path": "/list/2"},
        {"op": "remove", "path": "/list/x"},
        {"op": "add", "path": "/list/3", "value": 1},
        {"op": "add", "path": "/none/deep", "value": 1},
        {"op": "add", "path": "/a/deep", "value": 1},
        {"op": "replace", "path": "/list/2", "value": 1},
        {"op": "move", "from": "/none", "path": "/b"},
        {"op": "copy", "from": "/none/deep", "path": "/b"},
        {"op": "move", "path": "/b"},
        {"op": "frob", "path": "/a"},
        {"op": "add", "value": 1},
        {"op": "replace", "path": "", "value": 1},
        {"path": "/a"},
    ],
)
def test_a_json_patch_that_cannot_be_applied_is_invalid(operation: JsonObject) -> None:
    with pytest.raises(InvalidError):
        apply({"a": 1, "list": [1, 2]}, [operation], kind=JSON_PATCH)


# --- strategic merge patch -------------------------------------------------------------------------------------------


def containers(*items: JsonObject) -> JsonObject:
    return {"spec": {"containers": list(items)}}


_A, _B, _C = {"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}


@pytest.mark.parametrize(
    ("body", "patch", "result"),
    [
        pytest.param(containers(_A, _B), containers({"name": "b", "image": "2"}), containers(_A, {"name": "b", "image": "2"}), id="by key"),
        pytest.param(containers(_A), containers(_B), containers(_B, _A), id="a new item comes before items that only the server has"),
        pytest.param(containers(_A, _B), containers({"name": "a", "$patch": "delete"}), containers(_B), id="delete an item"),
        pytest.param(containers(_A), containers({"name": "z", "$patch": "delete"}), containers(_A), id="delete a missing item"),
        pytest.param(containers(_A, _B), containers({"$patch": "replace"}, _C), containers(_C), id="replace the list"),
        pytest.param(
            containers(_A), containers({"name": "a", "$patch": "replace", "x": 1}), containers(), id="replace in an item replaces the list"
        ),
        pytest.param(
            containers({"name": "a", "env": [{"name": "X", "value": "1"}]}),
            containers({"name": "a", "env": [{"name": "Y", "value": "2"}]}),
            containers({"name": "a", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]}),
            id="lists within lists",
        ),
        pytest.param(
            containers({"name": "a", "args": [1, 2]}),
            containers({"name": "a", "args": [3]}),
            containers({"name": "a", "args": [3]}),
            id="other lists are replaced",
        ),
        pytest.param({"spec": {"groups": [1, 2]}}, {"spec": {"groups": [2, 3]}}, {"spec": {"groups": [1, 2, 3]}}, id="a set grows"),
        pytest.param(
            {"spec": {"groups": [1, 2, 3]}},
            {"spec": {"$deleteFromPrimitiveList/groups": [2]}},
            {"spec": {"groups": [1, 3]}},
            id="a set shrinks",
        ),
        pytest.param({"spec": {"x": 1, "y": 2}}, {"spec": {"$patch": "replace", "z": 3}}, {"spec": {"z": 3}}, id="replace a map"),
        pytest.param({"spec": {"x": 1}, "a": 1}, {"spec": {"$patch": "delete"}}, {"a": 1}, id="delete a map"),
        pytest.param(
            {"spec": {"x": 1, "y": 2}}, {"spec": {"x": None, "z": {"q": None, "r": 1}}}, {"spec": {"y": 2, "z": {"r": 1}}}, id="nulls"
        ),
        pytest.param(
            {"spec": {"x": 1, "y": 2}}, {"spec": {"$retainKeys": ["y", "z"], "z": 3}}, {"spec": {"y": 2, "z": 3}}, id="retain keys"
        ),
        pytest.param(
            containers(_A, _B, _C),
            {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}], "containers": [{"name": "c", "image": "2"}]}},
            containers(_B, {"name": "c", "image": "2"}, _A),
            id="an order, with an item that only the server has",
        ),
        pytest.param(
            containers(_A, _B),
            {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
            containers(_B, _A),
            id="an order alone",
        ),
        pytest.param({}, containers(_A), containers(_A), id="a new list"),
        pytest.param({"a": 1}, {}, {"a": 1}, id="empty patch"),
    ],
)
def test_a_strategic_patch_merges_lists_by_key(body: JsonObject, patch: JsonObject, result: JsonObject) -> None:
    assert apply(body, patch, kind=STRATEGIC_PATCH) == result


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"$patch": "frob"}},
        {"spec": {"$retainKeys": 1}},
        {"spec": {"$retainKeys": ["x"], "y": 1}},
        {"spec": {"$setElementOrder/containers": 1}},
    ],
)
def test_an_invalid_directive_is_rejected(patch: JsonObject) -> None:
    with pytest.raises((BadRequestError, ServerError)):
        apply({"spec": {}}, patch, kind=STRATEGIC_PATCH)


@pytest.mark.parametrize("item", [{"image": "2"}, "a", 1, [], None])
def test_an_item_without_its_merge_key_is_rejected(item: Any) -> None:
    with pytest.raises(ServerError, match="does not contain declared merge key: name"):
        apply(containers(_A), {"spec": {"containers": [item]}}, kind=STRATEGIC_PATCH)


@given(json_objects, st.dictionaries(st.sampled_from(["spec", "a", "$patch", "$retainKeys"]), json_values, max_size=3))
def test_no_strategic_patch_raises_an_unexpected_error(body: JsonObject, patch: JsonObject) -> None:
    with suppress(BadRequestError, ServerError):
        apply({"spec": body}, patch, kind=STRATEGIC_PATCH)


# --- invalid patches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"1", b'"text"', b"\xff\xfe", b"[" * 5000])
def test_a_body_that_is_not_a_patch_is_a_bad_request(kind: str, body: bytes) -> None:
    with pytest.raises(BadRequestError):
        decode_patch(BUILT_IN, kind, body)


@pytest.mark.parametrize("kind", ["application/apply-patch+yaml", "application/json", "text/plain", ""])
@pytest.mark.parametrize("resource_type", [BUILT_IN, CUSTOM])
def test_an_unsupported_patch_type_is_an_unsupported_media_type(kind: str, resource_type: ResourceType) -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        decode_patch(resource_type, kind, b"{}")


def test_custom_resources_do_not_support_strategic_patches() -> None:
    with pytest.raises(UnsupportedMediaTypeError):
        decode_patch(CUSTOM, STRATEGIC_PATCH, b"{}")
