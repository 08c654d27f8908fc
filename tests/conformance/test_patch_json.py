"""JSON patch (RFC 6902)."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import BadRequestError, InvalidError
from dlop.kube.resources import CONFIG_MAPS
from tests.conformance.bodies import config_map, json_patch_operation
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status

REJECTED = failure_status(422, "Invalid", "the server rejected our request due to an error in our request", {})


async def test_a_json_patch_adds_replaces_and_removes_fields(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"one": 1, "two": 2}))
    operations = (
        json_patch_operation("add", "/spec/three", 3),
        json_patch_operation("replace", "/spec/one", "I"),
        json_patch_operation("remove", "/spec/two"),
    )
    assert (await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON))["spec"] == {"one": "I", "three": 3}


async def test_a_json_patch_inserts_and_appends_list_items(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"items": ["a", "b"]}))
    operations = (
        json_patch_operation("add", "/spec/items/1", "between"),
        json_patch_operation("add", "/spec/items/-", "last"),
        json_patch_operation("remove", "/spec/items/0"),
    )
    assert (await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON))["spec"] == {"items": ["between", "b", "last"]}


async def test_a_json_patch_moves_and_copies_fields(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"old": {"x": 1}, "kept": 2}))
    operations = (
        json_patch_operation("move", "/spec/new", **{"from": "/spec/old"}),
        json_patch_operation("copy", "/spec/twin", **{"from": "/spec/kept"}),
    )
    assert (await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON))["spec"] == {"new": {"x": 1}, "kept": 2, "twin": 2}


async def test_a_json_patch_unescapes_field_names(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"with/slash": 1, "with~tilde": 2}))
    operations = (json_patch_operation("replace", "/spec/with~1slash", 10), json_patch_operation("replace", "/spec/with~0tilde", 20))
    assert (await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON))["spec"] == {"with/slash": 10, "with~tilde": 20}


async def test_a_json_patch_is_applied_if_its_test_succeeds(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"phase": "old"}))
    operations = (json_patch_operation("test", "/spec/phase", "old"), json_patch_operation("replace", "/spec/phase", "new"))
    assert (await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON))["spec"] == {"phase": "new"}


async def test_a_json_patch_with_a_failed_test_changes_nothing(api: Api) -> None:
    before = await api.create(WIDGETS, widget("a", {"phase": "old"}))
    operations = (json_patch_operation("replace", "/spec/phase", "new"), json_patch_operation("test", "/spec/phase", "old"))
    error = await expect_error(api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON), InvalidError)
    assert error.status == REJECTED
    assert await api.get(WIDGETS, "a") == before


async def test_a_json_patch_of_a_missing_path_is_invalid(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"one": 1}))
    for operation in (
        json_patch_operation("replace", "/spec/nope/deep", 1),
        json_patch_operation("remove", "/spec/nope"),
        json_patch_operation("add", "/spec/nope/deep", 1),
    ):
        assert (await expect_error(api.patch(WIDGETS, "a", [operation], patch_type=PatchType.JSON), InvalidError)).status == REJECTED


async def test_a_json_patch_with_an_unknown_operation_is_invalid(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"one": 1}))
    operations = [json_patch_operation("bogus", "/spec/one", 2)]
    error = await expect_error(api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON), InvalidError)
    assert error.status == REJECTED


async def test_a_json_patch_that_is_not_a_list_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {}, patch_type=PatchType.JSON), BadRequestError)
    assert str(error).startswith("error decoding patch: json: cannot unmarshal object into Go value of type []")
