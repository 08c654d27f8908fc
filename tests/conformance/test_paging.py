"""Lists: their order, their pages, and the version they are from."""

from __future__ import annotations

import msgspec

from dlop.kube.errors import BadRequestError, GoneError, InvalidError, ServerError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from tests.conformance.bodies import lease
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, decoded, failure, refused, version_of


async def five_leases(api: Api) -> None:
    for name in ("c", "a", "e", "b", "d"):
        await api.create(LEASES, lease(name))


async def pages(api: Api, *, size: int) -> list[list[str]]:
    found = api.client.pages(LEASES, namespace=api.namespace, page_size=size)
    return [[msgspec.json.decode(item)["metadata"]["name"] for item in page.items] async for page in found]


async def test_a_list_is_in_the_order_of_names(api: Api) -> None:
    await five_leases(api)
    assert await api.names(LEASES) == ["a", "b", "c", "d", "e"]


async def test_a_list_comes_in_pages_of_the_asked_for_size(api: Api) -> None:
    await five_leases(api)
    assert await pages(api, size=2) == [["a", "b"], ["c", "d"], ["e"]]


async def test_a_page_tells_how_many_objects_remain(api: Api) -> None:
    await five_leases(api)
    first = decoded(await api.client.call("GET", api.path(LEASES), query=(("limit", "2"),)))
    assert (len(first["items"]), first["metadata"]["remainingItemCount"]) == (2, 3)
    rest = decoded(await api.client.call("GET", api.path(LEASES), query=(("continue", first["metadata"]["continue"]),)))
    assert len(rest["items"]) == 3
    assert not {"continue", "remainingItemCount"} & {key for key, value in rest["metadata"].items() if value}


async def test_all_pages_are_from_the_version_of_the_first(api: Api) -> None:
    await five_leases(api)
    found = []
    async for page in api.client.pages(LEASES, namespace=api.namespace, page_size=2):
        found.append(page)
        if len(found) == 1:
            await api.delete(LEASES, "d")
            await api.create(LEASES, lease("dd"))
    names = [msgspec.json.decode(item)["metadata"]["name"] for page in found for item in page.items]
    assert names == ["a", "b", "c", "d", "e"]
    assert len({page.resource_version for page in found}) == 1


async def test_a_page_after_a_compaction_is_gone_with_a_way_to_go_on(api: Api) -> None:
    await five_leases(api)
    first = decoded(await api.client.call("GET", api.path(LEASES), query=(("limit", "2"),)))["metadata"]
    await api.create(LEASES, lease("f"))
    await api.compact()
    error = await refused(api.client.call("GET", api.path(LEASES), query=(("limit", "2"), ("continue", first["continue"]))), GoneError)
    assert (error.status_code, error.status_reason) == (410, "Expired")
    assert "The provided continue parameter is too old" in str(error)
    fresh = error.status["metadata"]["continue"]
    rest = decoded(await api.client.call("GET", api.path(LEASES), query=(("continue", fresh),)))
    assert [each["metadata"]["name"] for each in rest["items"]] == ["c", "d", "e", "f"]


async def test_a_list_of_an_exact_version_shows_the_past(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    then = (await api.list(LEASES))["metadata"]["resourceVersion"]
    await api.create(LEASES, lease("b"))
    await api.delete(LEASES, "a")
    past = await api.list(LEASES, resource_version=then, resource_version_match="Exact")
    assert [each["metadata"]["name"] for each in past["items"]] == ["a"]
    assert past["metadata"]["resourceVersion"] == then


async def test_a_list_not_older_than_a_version_is_at_least_that_new(api: Api) -> None:
    created = await api.create(LEASES, lease("a"))
    found = await api.list(LEASES, resource_version=created["metadata"]["resourceVersion"], resource_version_match="NotOlderThan")
    assert version_of(found) >= version_of(created)
    assert [each["metadata"]["name"] for each in found["items"]] == ["a"]


async def test_a_list_of_any_version_is_answered(api: Api) -> None:
    assert (await api.list(LEASES, resource_version="0"))["items"] == []


async def test_the_objects_of_a_built_in_list_do_not_repeat_their_kind(api: Api) -> None:
    await api.create(LEASES, lease("a"))
    found = decoded(await api.client.call("GET", api.path(LEASES)))
    assert (found["kind"], found["apiVersion"]) == ("LeaseList", "coordination.k8s.io/v1")
    assert set(found["items"][0]) == {"metadata", "spec"}


async def test_the_objects_of_a_custom_list_carry_their_kind(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    found = decoded(await api.client.call("GET", api.path(WIDGETS)))
    assert (found["kind"], found["apiVersion"]) == ("WidgetList", "conformance.dlop.dev/v1")
    assert (found["items"][0]["kind"], found["items"][0]["apiVersion"]) == ("Widget", "conformance.dlop.dev/v1")


async def test_an_empty_list_has_an_empty_list_of_items(api: Api) -> None:
    assert decoded(await api.client.call("GET", api.path(LEASES)))["items"] == []


async def test_a_continue_token_that_is_none_is_a_bad_request(api: Api) -> None:
    error = await refused(api.client.call("GET", api.path(CONFIG_MAPS), query=(("continue", "zzz"),)), BadRequestError)
    assert error.status_reason == "BadRequest"
    assert str(error).startswith("invalid continue token: ")


async def test_a_version_from_the_future_is_a_timeout_that_asks_for_patience(api: Api) -> None:
    query = (("resourceVersion", "99999999999"),)
    error = await refused(api.client.call("GET", api.path(LEASES), query=query, timeout_seconds=4.0), ServerError)
    assert (error.status_code, error.status_reason) == (504, "Timeout")
    assert str(error).startswith("Timeout: Too large resource version: 99999999999, current: ")
    assert error.causes == [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert (error.details["retryAfterSeconds"], error.retry_after_seconds) == (1, 1.0)


async def test_a_version_that_is_no_number_is_a_bad_request(api: Api) -> None:
    error = await refused(api.list(LEASES, resource_version="abc"), BadRequestError)
    why = 'resourceVersion: Invalid value: "abc": strconv.ParseUint: parsing "abc": invalid syntax'
    assert error.status == failure(400, "BadRequest", f"invalid resource version: {why}")


async def test_a_version_match_without_a_version_is_invalid(api: Api) -> None:
    error = await refused(api.list(LEASES, resource_version_match="Exact"), InvalidError)
    message = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
    assert error.causes == [{"reason": "FieldValueForbidden", "message": message, "field": "resourceVersionMatch"}]
    assert str(error).startswith('ListOptions.meta.k8s.io "" is invalid: ')


async def test_a_limit_that_is_no_number_is_a_bad_request(api: Api) -> None:
    error = await refused(api.client.call("GET", api.path(LEASES), query=(("limit", "x"),)), BadRequestError)
    assert error.status == failure(400, "BadRequest", 'strconv.ParseInt: parsing "x": invalid syntax')


async def test_a_list_of_an_exact_version_after_a_compaction_is_gone(api: Api) -> None:
    old = (await api.create(LEASES, lease("a")))["metadata"]["resourceVersion"]
    await api.create(LEASES, lease("b"))
    await api.compact()
    error = await refused(api.list(LEASES, resource_version=old, resource_version_match="Exact"), GoneError)
    assert (error.status_code, error.status_reason) == (410, "Expired")
    assert str(error) == "The resourceVersion for the provided list is too old."
