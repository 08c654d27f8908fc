"""Finalizers: a deleted object stays until the last of them is gone."""

from __future__ import annotations

from dlop.kube.errors import AlreadyExistsError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, lease
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, refused, version_of

HOLD, OTHER = "example.org/hold", "example.org/other"


async def test_a_deleted_object_with_a_finalizer_stays_and_is_marked(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    answer = await api.delete(CONFIG_MAPS, "a")
    assert answer["kind"] == "ConfigMap"
    assert answer["metadata"]["deletionTimestamp"] >= answer["metadata"]["creationTimestamp"]
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 0
    assert await api.get(CONFIG_MAPS, "a") == answer


async def test_the_mark_of_deletion_raises_the_generation(api: Api) -> None:
    body = widget("a")
    body["metadata"]["finalizers"] = [HOLD]
    await api.create(WIDGETS, body)
    assert (await api.delete(WIDGETS, "a"))["metadata"]["generation"] == 2


async def test_a_second_delete_of_a_marked_object_changes_nothing(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    first = await api.delete(CONFIG_MAPS, "a")
    assert version_of(await api.delete(CONFIG_MAPS, "a")) == version_of(first)


async def test_removing_the_last_finalizer_removes_the_marked_object(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD, OTHER]))
    await api.delete(CONFIG_MAPS, "a")
    await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": [OTHER]}})
    assert await api.find(CONFIG_MAPS, "a") is not None
    await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    assert await api.find(CONFIG_MAPS, "a") is None


async def test_replacing_a_marked_object_by_one_without_finalizers_removes_it(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    marked = await api.delete(CONFIG_MAPS, "a")
    marked["metadata"] = {key: value for key, value in marked["metadata"].items() if key != "finalizers"}
    await api.replace(CONFIG_MAPS, marked)
    assert await api.find(CONFIG_MAPS, "a") is None


async def test_removing_a_finalizer_of_an_unmarked_object_removes_nothing_else(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    patched = await api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}})
    assert "deletionTimestamp" not in patched["metadata"]
    assert await api.get(CONFIG_MAPS, "a") == patched


async def test_a_marked_object_gets_no_new_finalizers(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    await api.delete(CONFIG_MAPS, "a")
    error = await refused(api.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": [HOLD, OTHER]}}), InvalidError)
    why = f'no new finalizers can be added if the object is being deleted, found new finalizers []string{{"{OTHER}"}}'
    assert str(error) == f'ConfigMap "a" is invalid: metadata.finalizers: Forbidden: {why}'


async def test_a_mark_of_deletion_cannot_be_taken_back(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    marked = await api.delete(CONFIG_MAPS, "a")
    patched = await api.patch(CONFIG_MAPS, "a", {"metadata": {"deletionTimestamp": None}})
    assert patched["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]


async def test_a_mark_of_deletion_cannot_be_set_by_hand(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", deletionTimestamp="2001-01-01T00:00:00Z"))
    assert "deletionTimestamp" not in created["metadata"]


async def test_the_name_of_a_marked_object_is_still_taken(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", finalizers=[HOLD]))
    await api.delete(CONFIG_MAPS, "a")
    error = await refused(api.create(CONFIG_MAPS, config_map("a")), AlreadyExistsError)
    assert str(error) == 'object is being deleted: configmaps "a" already exists'


async def test_a_watch_sees_the_mark_as_a_change_and_the_end_as_the_deletion(api: Api) -> None:
    await api.create(LEASES, lease("a", finalizers=[HOLD]))
    async with api.watching(LEASES) as watch:
        await api.delete(LEASES, "a")
        await api.patch(LEASES, "a", {"metadata": {"finalizers": []}})
        marked, ended = await watch.next(), await watch.next()
    assert (marked[0], ended[0]) == (WatchEventType.MODIFIED, WatchEventType.DELETED)
    assert "deletionTimestamp" in marked[1]["metadata"]
    assert version_of(ended[1]) > version_of(marked[1])


async def test_a_finalizer_needs_a_qualified_name(api: Api) -> None:
    error = await refused(api.create(CONFIG_MAPS, config_map("a", finalizers=["hold"])), InvalidError)
    message = 'Invalid value: "hold": name is neither a standard finalizer name nor is it fully qualified'
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.finalizers[0]"}]
    await refused(api.get(CONFIG_MAPS, "a"), NotFoundError)
