"""Custom resources with several versions."""

from __future__ import annotations

from dlop.kube.errors import BadRequestError, NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import object_of
from tests.conformance.crds import BOXES_V1, BOXES_V1ALPHA1, BOXES_V1BETA1
from tests.conformance.support import Api, expect_error, resource_version_of


async def test_an_object_can_be_read_in_another_version(api: Api) -> None:
    created = await api.create(BOXES_V1BETA1, object_of(BOXES_V1BETA1, "a", spec={"size": 1}))
    converted = await api.get(BOXES_V1, "a")
    assert (created["apiVersion"], converted["apiVersion"]) == ("versions.dlop.dev/v1beta1", "versions.dlop.dev/v1")
    assert converted["metadata"]["uid"] == created["metadata"]["uid"]
    assert resource_version_of(converted) == resource_version_of(created)
    assert converted["spec"] == {"size": 1, "new": "fresh"}


async def test_a_list_has_the_requested_version(api: Api) -> None:
    await api.create(BOXES_V1, object_of(BOXES_V1, "a", spec={"size": 1}))
    await api.create(BOXES_V1BETA1, object_of(BOXES_V1BETA1, "b", spec={"size": 2}))
    for resource in (BOXES_V1BETA1, BOXES_V1):
        items = (await api.list(resource))["items"]
        assert [(item["metadata"]["name"], item["apiVersion"]) for item in items] == [(name, resource.api_version) for name in ("a", "b")]


async def test_a_watch_has_the_requested_version(api: Api) -> None:
    async with api.watch(BOXES_V1BETA1) as watch:
        await api.create(BOXES_V1, object_of(BOXES_V1, "a", spec={"size": 1}))
        event_type, obj = await watch.next()
    assert (event_type, obj["apiVersion"], obj["spec"]["size"]) == (WatchEventType.ADDED, "versions.dlop.dev/v1beta1", 1)


async def test_an_object_can_be_changed_and_deleted_in_either_version(api: Api) -> None:
    await api.create(BOXES_V1BETA1, object_of(BOXES_V1BETA1, "a", spec={"size": 1}))
    assert (await api.patch(BOXES_V1, "a", {"spec": {"size": 2}}))["spec"]["size"] == 2
    assert (await api.get(BOXES_V1BETA1, "a"))["spec"]["size"] == 2
    await api.delete(BOXES_V1BETA1, "a")
    assert await api.get_or_none(BOXES_V1, "a") is None


async def test_a_version_that_is_not_served_is_not_found(api: Api) -> None:
    await expect_error(api.list(BOXES_V1ALPHA1), NotFoundError)


async def test_the_version_of_the_body_must_match_the_path(api: Api) -> None:
    error = await expect_error(api.create(BOXES_V1, object_of(BOXES_V1BETA1, "a", spec={"size": 1})), BadRequestError)
    expected = "does not match the expected API version (versions.dlop.dev/v1)"
    assert str(error) == f"the API version in the data (versions.dlop.dev/v1beta1) {expected}"


async def test_a_crd_records_its_stored_versions(api: Api) -> None:
    definition = await api.get(CUSTOM_RESOURCE_DEFINITIONS, BOXES_V1.qualified_name)
    assert definition["status"]["storedVersions"] == ["v1"]
