"""Objects that go with their owners: background, foreground, orphan."""

from __future__ import annotations

from typing import Any

from dlop.kube.client import Propagation
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CONFIG_MAPS, LEASES, PODS, SECRETS
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map, lease, owner, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, refused

HOLD = "example.org/hold"


async def child(api: Api, name: str, *owners: JsonObject, **more: Any) -> JsonObject:
    return await api.create(LEASES, lease(name, ownerReferences=list(owners), **more))


async def test_children_go_after_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await child(api, "child", owner(parent))
    await api.delete(CONFIG_MAPS, "parent")
    await api.gone(LEASES, "child")


async def test_children_of_a_custom_owner_go_after_it(api: Api) -> None:
    parent = await api.create(WIDGETS, widget("parent"))
    await child(api, "child", owner(parent, controller=True, block=True))
    await api.delete(WIDGETS, "parent", propagation=Propagation.BACKGROUND)
    await api.gone(LEASES, "child")


async def test_custom_children_go_after_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    body = widget("child")
    body["metadata"]["ownerReferences"] = [owner(parent)]
    await api.create(WIDGETS, body)
    await api.delete(CONFIG_MAPS, "parent")
    await api.gone(WIDGETS, "child")


async def test_grandchildren_go_too(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    middle = await child(api, "middle", owner(parent))
    await child(api, "last", owner(middle))
    await api.delete(CONFIG_MAPS, "parent")
    await api.gone(LEASES, "middle")
    await api.gone(LEASES, "last")


async def test_an_owner_deleted_in_the_foreground_waits_for_the_children_that_block_it(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await child(api, "child", owner(parent, block=True), finalizers=[HOLD])
    answer = await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    assert answer["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in answer["metadata"]
    await api.changed(LEASES, "child", lambda found: "deletionTimestamp" in found["metadata"])
    assert await api.find(CONFIG_MAPS, "parent") is not None
    await api.patch(LEASES, "child", {"metadata": {"finalizers": None}})
    await api.gone(CONFIG_MAPS, "parent")


async def test_an_owner_deleted_in_the_foreground_does_not_wait_for_children_that_do_not_block(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await child(api, "child", owner(parent, block=False), finalizers=[HOLD])
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    await api.gone(CONFIG_MAPS, "parent")
    await api.changed(LEASES, "child", lambda found: "deletionTimestamp" in found["metadata"])


async def test_a_childless_owner_deleted_in_the_foreground_is_soon_gone(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("parent"))
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    await api.gone(CONFIG_MAPS, "parent")


async def test_children_deleted_in_the_foreground_are_gone_before_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    for name in ("one", "two"):
        await child(api, name, owner(parent, block=True))
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    await api.gone(CONFIG_MAPS, "parent")
    assert await api.names(LEASES) == []


async def test_orphans_stay_and_forget_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await child(api, "child", owner(parent))
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.ORPHAN)
    await api.gone(CONFIG_MAPS, "parent")
    assert "ownerReferences" not in (await api.get(LEASES, "child"))["metadata"]


async def test_an_owner_that_orphans_is_held_by_a_finalizer_until_it_is_done(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("parent", finalizers=[HOLD]))
    answer = await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.ORPHAN)
    assert set(answer["metadata"]["finalizers"]) == {HOLD, "orphan"}
    await api.changed(CONFIG_MAPS, "parent", lambda found: found["metadata"]["finalizers"] == [HOLD])


async def test_a_child_of_two_owners_stays_while_one_of_them_does(api: Api) -> None:
    first, second = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
    await child(api, "child", owner(first), owner(second))
    await api.delete(CONFIG_MAPS, "first")
    left = await api.changed(LEASES, "child", lambda found: len(found["metadata"]["ownerReferences"]) == 1)
    assert left["metadata"]["ownerReferences"][0]["name"] == "second"
    await api.delete(CONFIG_MAPS, "second")
    await api.gone(LEASES, "child")


async def test_a_child_whose_owner_never_was_is_collected(api: Api) -> None:
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "11111111-1111-1111-1111-111111111111"}
    await child(api, "child", nobody)
    await api.gone(LEASES, "child")


async def test_a_child_whose_owner_is_another_object_of_that_name_is_collected(api: Api) -> None:
    namesake = await api.create(CONFIG_MAPS, config_map("parent"))
    reference = owner(namesake) | {"uid": "11111111-1111-1111-1111-111111111111"}
    await child(api, "child", reference)
    await api.gone(LEASES, "child")
    assert await api.get(CONFIG_MAPS, "parent") == namesake


async def test_a_child_with_a_finalizer_is_marked_and_waits(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await child(api, "child", owner(parent), finalizers=[HOLD])
    await api.delete(CONFIG_MAPS, "parent")
    await api.changed(LEASES, "child", lambda found: "deletionTimestamp" in found["metadata"])
    await api.patch(LEASES, "child", {"metadata": {"finalizers": None}})
    await api.gone(LEASES, "child")


async def test_a_running_pod_is_asked_to_end_when_its_owner_goes(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(PODS, pod("placed", node="one", ownerReferences=[owner(parent)]))
    await api.create(PODS, pod("waiting", ownerReferences=[owner(parent)]))
    await api.delete(CONFIG_MAPS, "parent")
    marked = await api.changed(PODS, "placed", lambda found: "deletionTimestamp" in found["metadata"])
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.gone(PODS, "waiting")


async def test_an_owner_given_later_counts(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, lease("child"))
    await api.patch(LEASES, "child", {"metadata": {"ownerReferences": [owner(parent)]}})
    await api.delete(CONFIG_MAPS, "parent")
    await api.gone(LEASES, "child")


async def test_what_has_no_owner_is_left_alone(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "free"}})
    await child(api, "child", owner(parent))
    await api.delete(CONFIG_MAPS, "parent")
    await api.gone(LEASES, "child")
    assert await api.names(SECRETS) == ["free"]


async def test_two_controllers_of_one_object_are_invalid(api: Api) -> None:
    owners = [owner(await api.create(CONFIG_MAPS, config_map(name)), controller=True) for name in ("x", "y")]
    error = await refused(child(api, "child", *owners), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["metadata.ownerReferences"]
    assert str(error).endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/x and ConfigMap/y'
    )


async def test_an_owner_needs_a_version_a_kind_a_name_and_a_uid(api: Api) -> None:
    error = await refused(child(api, "child", {"apiVersion": "", "kind": "", "name": "", "uid": ""}), InvalidError)
    names = ("apiVersion", "kind", "name", "uid")
    assert {cause["field"] for cause in error.causes} == {f"metadata.ownerReferences.{name}" for name in names}
