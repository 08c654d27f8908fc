"""JSON patch (RFC 6902)."""

from __future__ import annotations

from typing import Any

from dlop.kube.client import PatchType
from dlop.kube.errors import BadRequestError, InvalidError
from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, failure, refused

REJECTED = failure(422, "Invalid", "the server rejected our request due to an error in our request", {})


async def patched(api: Api, *operations: JsonObject) -> JsonObject:
    return await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON)


async def created(api: Api, spec: JsonObject) -> JsonObject:
    return await api.create(WIDGETS, widget("a", spec))


def operation(op: str, path: str, *value: Any, **more: Any) -> JsonObject:
    return {"op": op, "path": path, **({"value": value[0]} if value else {}), **more}


async def test_a_json_patch_adds_replaces_and_removes_in_order(api: Api) -> None:
    await created(api, {"one": 1, "two": 2})
    steps = (operation("add", "/spec/three", 3), operation("replace", "/spec/one", "I"), operation("remove", "/spec/two"))
    assert (await patched(api, *steps))["spec"] == {"one": "I", "three": 3}


async def test_a_json_patch_inserts_into_lists_and_appends_to_them(api: Api) -> None:
    await created(api, {"items": ["a", "b"]})
    steps = (operation("add", "/spec/items/1", "between"), operation("add", "/spec/items/-", "last"), operation("remove", "/spec/items/0"))
    assert (await patched(api, *steps))["spec"] == {"items": ["between", "b", "last"]}


async def test_a_json_patch_moves_and_copies(api: Api) -> None:
    await created(api, {"old": {"x": 1}, "kept": 2})
    steps = (operation("move", "/spec/new", **{"from": "/spec/old"}), operation("copy", "/spec/twin", **{"from": "/spec/kept"}))
    assert (await patched(api, *steps))["spec"] == {"new": {"x": 1}, "kept": 2, "twin": 2}


async def test_a_json_patch_reads_escaped_names(api: Api) -> None:
    await created(api, {"with/slash": 1, "with~tilde": 2})
    steps = (operation("replace", "/spec/with~1slash", 10), operation("replace", "/spec/with~0tilde", 20))
    assert (await patched(api, *steps))["spec"] == {"with/slash": 10, "with~tilde": 20}


async def test_a_json_patch_whose_test_holds_is_done(api: Api) -> None:
    await created(api, {"phase": "old"})
    steps = (operation("test", "/spec/phase", "old"), operation("replace", "/spec/phase", "new"))
    assert (await patched(api, *steps))["spec"] == {"phase": "new"}


async def test_a_json_patch_is_all_or_nothing(api: Api) -> None:
    before = await created(api, {"phase": "old"})
    steps = (operation("replace", "/spec/phase", "new"), operation("test", "/spec/phase", "old"))
    error = await refused(patched(api, *steps), InvalidError)
    assert error.status == REJECTED
    assert await api.get(WIDGETS, "a") == before


async def test_a_json_patch_of_a_missing_path_is_invalid(api: Api) -> None:
    await created(api, {"one": 1})
    for step in (operation("replace", "/spec/nope/deep", 1), operation("remove", "/spec/nope"), operation("add", "/spec/nope/deep", 1)):
        assert (await refused(patched(api, step), InvalidError)).status == REJECTED


async def test_a_json_patch_with_an_unknown_operation_is_invalid(api: Api) -> None:
    await created(api, {"one": 1})
    assert (await refused(patched(api, operation("bogus", "/spec/one", 2)), InvalidError)).status == REJECTED


async def test_a_json_patch_that_is_a_map_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.patch(CONFIG_MAPS, "a", {}, patch_type=PatchType.JSON), BadRequestError)
    assert str(error).startswith("error decoding patch: json: cannot unmarshal object into Go value of type []")
