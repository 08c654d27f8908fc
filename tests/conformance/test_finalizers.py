"""Finalizers: a deleted object is terminating until the last finalizer is removed."""

from __future__ import annotations

from dlop.kube.errors import AlreadyExistsError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, lease
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, resource_version_of

HOLD, OTHER = "example.org/hold", "example.org/other"


async def test_a_deleted_object_with_a_finalizer_is_terminating(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    response = await api.delete(CONFIG_MAPS, "a")
    assert response["kind"] == "ConfigMap"
    assert response["metadata"]["deletionTimestamp"] >= response["metadata"]["creationTimestamp"]
    assert response["metadata"]["deletionGracePeriodSeconds"] == 0
    assert await api.get(CONFIG_MAPS, "a") == response


async def test_the_deletion_timestamp_increases_the_generation(api: Api) -> None:
    body = widget("a")
    body["metadata"]["finalizers"] = [HOLD]
    await api.create(WIDGETS, body)
    assert (await api.delete(WIDGETS, "a"))["metadata"]["generation"] == 2


async def test_a_second_delete_of_a_terminating_object_changes_nothing(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    first = await api.delete(CONFIG_MAPS, "a")
    assert resource_version_of(await api.delete(CONFIG_MAPS, "a")) == resource_version_of(first)


async def test_removing_the_last_finalizer_deletes_a_terminating_object(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD, OTHER]))
    await api.delete(CONFIG_MAPS, "a")
    await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": [OTHER]}})
    assert await api.get_or_none(CONFIG_MAPS, "a") is not None
    await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_replacing_a_terminating_object_by_one_without_finalizers_deletes_it(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    terminating = await api.delete(CONFIG_MAPS, "a")
    terminating["metadata"] = {key: value for key, value in terminating["metadata"].items() if key != "finalizers"}
    await api.replace(CONFIG_MAPS, terminating)
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_removing_the_last_finalizer_of_an_object_that_is_not_terminating_keeps_it(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    patched = await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    assert "deletionTimestamp" not in patched["metadata"]
    assert await api.get(CONFIG_MAPS, "a") == patched


async def test_a_terminating_object_cannot_get_new_finalizers(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    await api.delete(CONFIG_MAPS, "a")
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": [HOLD, OTHER]}}), InvalidError)
    detail = f'no new finalizers can be added if the object is being deleted, found new finalizers []string{{"{OTHER}"}}'
    assert str(error) == f'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: {detail}'


async def test_the_deletion_timestamp_cannot_be_removed(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    terminating = await api.delete(CONFIG_MAPS, "a")
    patched = await api.patch(CONFIG_MAPS, "a", {"metadata": {"deletionTimestamp": None}})
    assert patched["metadata"]["deletionTimestamp"] == terminating["metadata"]["deletionTimestamp"]


async def test_the_deletion_timestamp_of_a_create_is_ignored(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", deletionTimestamp="2001-01-01T00:00:00Z"))
    assert "deletionTimestamp" not in created["metadata"]


async def test_the_name_of_a_terminating_object_is_in_use(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    await api.delete(CONFIG_MAPS, "a")
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a")), AlreadyExistsError)
    assert str(error) == 'object is being deleted: configmaps "a" already exists'


async def test_a_watch_sends_modified_for_the_deletion_timestamp_and_deleted_for_the_removal(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    async with api.watch(LEASES) as watch:
        await api.delete(LEASES, "a")
        await api.patch(LEASES, "a", {"metadata": {"finalizers": []}})
        terminating, deleted = await watch.next(), await watch.next()
    assert (terminating[0], deleted[0]) == (WatchEventType.MODIFIED, WatchEventType.DELETED)
    assert "deletionTimestamp" in terminating[1]["metadata"]
    assert resource_version_of(deleted[1]) > resource_version_of(terminating[1])


async def test_a_finalizer_needs_a_qualified_name(api: Api) -> None:
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a", finalizers=["hold"])), InvalidError)
    message = 'Invalid value: "hold": name is neither a standard finalizer name nor is it fully qualified'
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.finalizers[0]"}]
    await expect_error(api.get(CONFIG_MAPS, "a"), NotFoundError)
