"""Lists: order, pages and resource versions."""

from __future__ import annotations

import msgspec

from dlop.kube.errors import BadRequestError, GoneError, InvalidError, ServerError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from tests.conformance.bodies import lease
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status, resource_version_of


async def test_a_list_is_sorted_by_name(api: Api) -> None:
    await api.create_leases("c", "a", "e", "b", "d")
    assert await api.list_names(LEASES) == ["a", "b", "c", "d", "e"]


async def test_a_list_is_split_into_pages_of_the_requested_size(api: Api) -> None:
    await api.create_leases("c", "a", "e", "b", "d")
    assert await api.list_pages(LEASES, page_size=2) == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_page_contains_the_remaining_item_count(api: Api) -> None:
    await api.create_leases("c", "a", "e", "b", "d")
    first = await api.get_json(api.path(LEASES), limit="2")
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (2, 3)
    second = await api.get_json(api.path(LEASES), **{"continue": first["metadata"]["continue"]})
    assert len(second["items"]) == 3
    assert not {"continue", "remainingItemCount"} & {key for key, value in second["metadata"].items() if value}


async def test_all_pages_have_the_resource_version_of_the_first(api: Api) -> None:
    await api.create_leases("c", "a", "e", "b", "d")
    pages = []
    async for page in api.client.pages(LEASES, namespace=api.namespace, page_size=2):
        pages.append(page)
        if len(pages) == 1:
            await api.delete(LEASES, "d")
            await api.create(LEASES, lease("dd"))
    names = [msgspec.json.decode(item)["metadata"]["name"] for page in pages for item in page.items]
    assert names == ["a", "b", "c", "d", "e"]
    assert len({page.resource_version for page in pages}) == 1


async def test_a_page_after_a_compaction_expires_with_a_new_continue_token(api: Api) -> None:
    await api.create_leases("c", "a", "e", "b", "d")
    first = (await api.get_json(api.path(LEASES), limit="2"))["metadata"]
    await api.create(LEASES, lease("f"))
    await api.compact()
    error = await expect_error(api.client.call("GET", api.path(LEASES), query=(("limit", "2"), ("continue", first["continue"]))), GoneError)
    assert (error.status_code, error.status_reason) == (410, "Expired")
    assert "The provided continue parameter is too old" in str(error)
    token = error.status["metadata"]["continue"]
    second = await api.get_json(api.path(LEASES), **{"continue": token})
    assert [item["metadata"]["name"] for item in second["items"]] == ["c", "d", "e", "f"]


async def test_a_list_at_an_exact_resource_version_returns_the_old_state(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    old_version = (await api.list(LEASES))["metadata"]["resourceVersion"]
    await api.create(LEASES, lease("b"))
    await api.delete(LEASES, "a")
    listed = await api.list(LEASES, resource_version=old_version, resource_version_match="Exact")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]
    assert listed["metadata"]["resourceVersion"] == old_version


async def test_a_list_not_older_than_a_resource_version_is_at_least_that_new(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    listed = await api.list(LEASES, resource_version=created["metadata"]["resourceVersion"], resource_version_match="NotOlderThan")
    assert resource_version_of(listed) >= resource_version_of(created)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a"]


async def test_a_list_at_any_resource_version_succeeds(api: Api) -> None:
    assert (await api.list(LEASES, resource_version="0"))["items"] == []


async def test_items_of_a_built_in_list_have_no_kind(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    listed = await api.get_json(api.path(LEASES))
    assert (listed["kind"], listed["apiVersion"]) == ("LeaseList", "coordination.k8s.io/v1")
    assert set(listed["items"][0]) == {"metadata", "spec"}


async def test_items_of_a_custom_list_have_a_kind(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    listed = await api.get_json(api.path(WIDGETS))
    assert (listed["kind"], listed["apiVersion"]) == ("WidgetList", "conformance.dlop.dev/v1")
    assert (listed["items"][0]["kind"], listed["items"][0]["apiVersion"]) == ("Widget", "conformance.dlop.dev/v1")


async def test_an_empty_list_has_an_items_field(api: Api) -> None:
    assert (await api.get_json(api.path(LEASES)))["items"] == []


async def test_an_invalid_continue_token_is_a_bad_request(api: Api) -> None:
    error = await expect_error(api.client.call("GET", api.path(CONFIG_MAPS), query=(("continue", "zzz"),)), BadRequestError)
    assert error.status_reason == "BadRequest"
    assert str(error).startswith("invalid continue token: ")


async def test_a_future_resource_version_is_a_timeout_with_a_retry_hint(api: Api) -> None:
    query = (("resourceVersion", "99999999999"),)
    error = await expect_error(api.client.call("GET", api.path(LEASES), query=query, timeout_seconds=4.0), ServerError)
    assert (error.status_code, error.status_reason) == (504, "Timeout")
    assert str(error).startswith("Timeout: Too large resource version: 99999999999, current: ")
    assert error.causes == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert (error.details["retryAfterSeconds"], error.retry_after_seconds) == (1, 1.0)


async def test_a_list_at_an_invalid_resource_version_is_a_bad_request(api: Api) -> None:
    error = await expect_error(api.list(LEASES, resource_version="abc"), BadRequestError)
    detail = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert error.status == failure_status(400, "BadRequest", f"invalid resource version: {detail}")


async def test_a_resource_version_match_without_a_resource_version_is_invalid(api: Api) -> None:
    error = await expect_error(api.list(LEASES, resource_version_match="Exact"), InvalidError)
    message = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "resourceVersionMatch"}]
    assert str(error).startswith('ListOptions.meta.k8s.io "" is invalid: ')


async def test_a_limit_that_is_not_a_number_is_a_bad_request(api: Api) -> None:
    error = await expect_error(api.client.call("GET", api.path(LEASES), query=(("limit", "x"),)), BadRequestError)
    assert error.status == failure_status(400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')


async def test_a_list_at_a_compacted_resource_version_expires(api: Api) -> None:
    old = (await api.create(LEASES, lease("a")))["metadata"]["resourceVersion"]
    await api.create(LEASES, lease("b"))
    await api.compact()
    error = await expect_error(api.list(LEASES, resource_version=old, resource_version_match="Exact"), GoneError)
    assert (error.status_code, error.status_reason) == (410, "Expired")
    assert str(error) == "The resourceVersion for the provided list is too old."
