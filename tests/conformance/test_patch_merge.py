"""JSON merge patch (RFC 7386)."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import BadRequestError, InvalidError, NotFoundError, UnsupportedMediaTypeError
from dlop.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.bodies import config_map, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, failure, refused


async def test_a_merge_patch_sets_and_keeps_and_removes(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"keep": "1", "change": "2", "drop": "3"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"change": "two", "drop": None, "add": "4"}})
    assert patched["data"] == {"keep": "1", "change": "two", "add": "4"}


async def test_a_merge_patch_replaces_lists_whole(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"items": [1, 2, 3], "deep": {"items": ["x"], "other": True}}))
    patched = await api.patch(WIDGETS, "a", {"spec": {"items": [4], "deep": {"items": []}}})
    assert patched["spec"] == {"items": [4], "deep": {"items": [], "other": True}}


async def test_a_merge_patch_turns_a_value_into_a_map_and_back(api: Api) -> None:
    await api.create(WIDGETS, widget("a", {"value": 1}))
    assert (await api.patch(WIDGETS, "a", {"spec": {"value": {"x": 1, "gone": None}}}))["spec"] == {"value": {"x": 1}}
    assert (await api.patch(WIDGETS, "a", {"spec": {"value": "text"}}))["spec"] == {"value": "text"}


async def test_a_merge_patch_replaces_the_containers_of_a_pod_by_the_given_list(api: Api) -> None:
    await api.create(PODS, pod("a"))
    patch = {"spec": {"containers": [{"name": "main", "image": "new"}]}}
    patched = await api.patch(PODS, "a", patch)
    assert [(each["name"], each["image"]) for each in patched["spec"]["containers"]] == [("main", "new")]
    assert patched["metadata"]["generation"] == 2


async def test_a_merge_patch_that_changes_the_name_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.patch(CONFIG_MAPS, "a", {"metadata": {"name": "b"}}), BadRequestError)
    assert error.status == failure(400, "BadRequest", "the name of the object (b) does not match the name on the URL (a)")


async def test_a_merge_patch_that_is_a_list_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.patch(CONFIG_MAPS, "a", b"[]"), BadRequestError)
    assert str(error).startswith("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}")


async def test_a_merge_patch_that_is_no_json_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.patch(CONFIG_MAPS, "a", b"{"), BadRequestError)
    assert (error.status_code, error.status_reason) == (400, "BadRequest")
    assert str(error).startswith("error decoding patch: ")


async def test_a_patch_of_what_is_not_there_is_not_found(api: Api) -> None:
    error = await refused(api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}), NotFoundError)
    assert error.status == failure(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


async def test_a_patch_whose_result_has_a_wrong_type_is_invalid(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    error = await refused(api.patch(CONFIG_MAPS, "a", {"data": {"k": 5}}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["patch"]
    assert "json: cannot unmarshal number into Go struct field ConfigMap.data of type string" in str(error)
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_patch_cannot_turn_an_object_into_another_kind(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await refused(api.patch(WIDGETS, "a", {"kind": "Gadget"}), InvalidError)
    assert error.causes == [{"reason": "FieldValueInvalid", "message": 'Invalid value: "Gadget": must be Widget', "field": "kind"}]


async def test_a_custom_object_has_no_strategic_patch(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    patch = api.patch(WIDGETS, "a", {"spec": {"replicas": 2}}, patch_type=PatchType.STRATEGIC)
    error = await refused(patch, UnsupportedMediaTypeError)
    assert (error.status_code, error.status_reason) == (415, "UnsupportedMediaType")
    assert str(error).startswith("the body of the request was in an unknown format - accepted media types include: ")
