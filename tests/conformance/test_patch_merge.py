"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import BadRequestError, InvalidError, NotFoundError, UnsupportedMediaTypeError
from dlop.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.bodies import config_map, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status


async def test_a_merge_patch_sets_keeps_and_removes_fields(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"keep": "1", "change": "2", "drop": "3"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"change": "two", "drop": None, "add": "4"}})
    assert patched["data"] == {"keep": "1", "change": "two", "add": "4"}


async def test_a_merge_patch_replaces_lists(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"items": [1, 2, 3], "deep": {"items": ["x"], "other": True}}))
    patched = await api.patch(WIDGETS, "a", {"spec": {"items": [4], "deep": {"items": []}}})
    assert patched["spec"] == {"items": [4], "deep": {"items": [], "other": True}}


async def test_a_merge_patch_can_replace_a_value_by_a_map_and_a_map_by_a_value(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"value": 1}))
    assert (await api.patch(WIDGETS, "a", {"spec": {"value": {"x": 1, "gone": None}}}))["spec"] == {"value": {"x": 1}}
    assert (await api.patch(WIDGETS, "a", {"spec": {"value": "text"}}))["spec"] == {"value": "text"}


async def test_a_merge_patch_replaces_the_containers_of_a_pod(api: Api) -> None:
    await api.create(PODS, pod("a"))
    patch = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
    patched = await api.patch(PODS, "a", patch)
    assert [(container["name"], container["image"]) for container in patched["spec"]["containers"]] == [("main", "new")]


async def test_a_merge_patch_that_changes_the_name_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {"metadata": {"name": "b"}}), BadRequestError)
    assert error.status == failure_status(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)")


async def test_a_merge_patch_that_is_a_list_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", b"[]"), BadRequestError)
    assert str(error).startswith("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}")


async def test_a_merge_patch_that_is_not_json_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", b"{"), BadRequestError)
    assert (error.status_code, error.status_reason) == (400, "BadRequest")
    assert str(error).startswith("error decoding patch: ")


async def test_a_patch_of_a_missing_object_is_not_found(api: Api) -> None:
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}), NotFoundError)
    assert error.status == failure_status(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


async def test_a_patch_that_sets_a_value_of_a_wrong_type_is_invalid(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {"data": {"k": 5}}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["patch"]
    assert "json: cannot unmarshal number into Go struct field ConfigMap.data of type string" in str(error)
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_patch_cannot_change_the_kind(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.patch(WIDGETS, "a", {"kind": "Gadget"}), InvalidError)
    assert error.causes == [{"reason": "FieldValueInvalid", "message": 'Invalid value: "Gadget": must be Widget', "field": "kind"}]


async def test_custom_objects_do_not_support_strategic_merge_patch(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    patch = api.patch(WIDGETS, "a", {"spec": {"replicas": 2}}, patch_type=PatchType.STRATEGIC)
    error = await expect_error(patch, UnsupportedMediaTypeError)
    assert (error.status_code, error.status_reason) == (415, "UnsupportedMediaType")
    assert str(error).startswith("the body of the request was in an unknown format - accepted media types include: ")
