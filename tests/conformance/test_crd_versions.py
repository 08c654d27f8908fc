"""A custom resource in several versions: one object, several ways to see it."""

from __future__ import annotations

from dlop.kube.errors import BadRequestError, NotFoundError
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import custom
from tests.conformance.definitions import GONE_BOXES, NEW_BOXES, OLD_BOXES
from tests.conformance.support import Api, refused, version_of


async def test_an_object_of_one_version_is_read_in_the_other(api: Api) -> None:
    created = await api.create(OLD_BOXES, custom(OLD_BOXES, "a", spec={"size": 1}))
    found = await api.get(NEW_BOXES, "a")
    assert (created["apiVersion"], found["apiVersion"]) == ("versions.dlop.dev/v1beta1", "versions.dlop.dev/v1")
    assert found["metadata"]["uid"] == created["metadata"]["uid"]
    assert version_of(found) == version_of(created)
    assert found["spec"] == {"size": 1, "new": "fresh"}


async def test_a_list_is_in_the_asked_for_version(api: Api) -> None:
    await api.create(NEW_BOXES, custom(NEW_BOXES, "a", spec={"size": 1}))
    await api.create(OLD_BOXES, custom(OLD_BOXES, "b", spec={"size": 2}))
    for resource in (OLD_BOXES, NEW_BOXES):
        found = (await api.list(resource))["items"]
        assert [(each["metadata"]["name"], each["apiVersion"]) for each in found] == [(name, resource.api_version) for name in ("a", "b")]


async def test_a_watch_is_in_the_asked_for_version(api: Api) -> None:
    async with api.watching(OLD_BOXES) as watch:
        await api.create(NEW_BOXES, custom(NEW_BOXES, "a", spec={"size": 1}))
        kind, found = await watch.next()
    assert (kind, found["apiVersion"], found["spec"]["size"]) == (WatchEventType.ADDED, "versions.dlop.dev/v1beta1", 1)


async def test_an_object_can_be_changed_and_deleted_in_either_version(api: Api) -> None:
    await api.create(OLD_BOXES, custom(OLD_BOXES, "a", spec={"size": 1}))
    assert (await api.patch(NEW_BOXES, "a", {"spec": {"size": 2}}))["spec"]["size"] == 2
    assert (await api.get(OLD_BOXES, "a"))["spec"]["size"] == 2
    await api.delete(OLD_BOXES, "a")
    assert await api.find(NEW_BOXES, "a") is None


async def test_a_version_that_is_not_served_is_not_found(api: Api) -> None:
    await refused(api.list(GONE_BOXES), NotFoundError)


async def test_the_version_of_the_body_must_be_that_of_the_address(api: Api) -> None:
    error = await refused(api.create(NEW_BOXES, custom(OLD_BOXES, "a", spec={"size": 1})), BadRequestError)
    expected = "does not match the expected API version (versions.dlop.dev/v1)"
    assert str(error) == f"the API version in the data (versions.dlop.dev/v1beta1) {expected}"


async def test_a_definition_remembers_which_versions_were_stored(api: Api) -> None:
    found = await api.get(CUSTOM_RESOURCE_DEFINITIONS, NEW_BOXES.qualified_name)
    assert found["status"]["storedVersions"] == ["v1"]
