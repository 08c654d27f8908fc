"""Garbage collection with background, foreground and orphan propagation."""

from __future__ import annotations

from dlop.kube.client import Propagation
from dlop.kube.errors import InvalidError
from dlop.kube.resources import CONFIG_MAPS, LEASES, PODS, SECRETS
from tests.conformance.bodies import config_map, lease, owned_lease, owner_reference, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error

HOLD = "example.org/hold"


async def wait_until_collector_sees_leases(api: Api) -> None:
    """Wait until the garbage collector knows all leases that exist now: it has deleted a newer one, whose owner does not exist.

    The collector orphans or waits for only those children that it knows when it handles the deletion of their owner.
    """
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "absent", "uid": "00000000-0000-4000-8000-000000000000"}
    await api.create(LEASES, owned_lease("newest", owner))
    await api.wait_for_deletion(LEASES, "newest")


async def test_children_are_deleted_after_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, owned_lease("child", owner_reference(parent)))
    await api.delete(CONFIG_MAPS, "parent")
    await api.wait_for_deletion(LEASES, "child")


async def test_children_of_a_custom_object_are_deleted_after_it(api: Api) -> None:
    parent = await api.create(WIDGETS, widget("parent"))
    await api.create(LEASES, owned_lease("child", owner_reference(parent, controller=True, block=True)))
    await api.delete(WIDGETS, "parent", propagation=Propagation.BACKGROUND)
    await api.wait_for_deletion(LEASES, "child")


async def test_custom_objects_are_deleted_after_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    body = widget("child")
    body["metadata"]["ownerReferences"] = [owner_reference(parent)]
    await api.create(WIDGETS, body)
    await api.delete(CONFIG_MAPS, "parent")
    await api.wait_for_deletion(WIDGETS, "child")


async def test_grandchildren_are_deleted(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    middle = await api.create(LEASES, owned_lease("middle", owner_reference(parent)))
    await api.create(LEASES, owned_lease("last", owner_reference(middle)))
    await api.delete(CONFIG_MAPS, "parent")
    await api.wait_for_deletion(LEASES, "middle")
    await api.wait_for_deletion(LEASES, "last")


async def test_foreground_deletion_waits_for_blocking_children(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, owned_lease("child", owner_reference(parent, block=True), finalizers=[HOLD]))
    await wait_until_collector_sees_leases(api)
    response = await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    assert response["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in response["metadata"]
    await api.wait_for_termination(LEASES, "child")
    assert await api.get_or_none(CONFIG_MAPS, "parent") is not None
    await api.patch(LEASES, "child", {"metadata": {"finalizers": None}})
    await api.wait_for_deletion(CONFIG_MAPS, "parent")


async def test_foreground_deletion_does_not_wait_for_other_children(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, owned_lease("child", owner_reference(parent, block=False), finalizers=[HOLD]))
    await wait_until_collector_sees_leases(api)
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    await api.wait_for_deletion(CONFIG_MAPS, "parent")
    await api.wait_for_termination(LEASES, "child")


async def test_foreground_deletion_of_an_owner_without_children_completes(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("parent"))
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    await api.wait_for_deletion(CONFIG_MAPS, "parent")


async def test_foreground_deletion_deletes_children_before_their_owner(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    for name in ("one", "two"):
        await api.create(LEASES, owned_lease(name, owner_reference(parent, block=True)))
    await wait_until_collector_sees_leases(api)
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.FOREGROUND)
    await api.wait_for_deletion(CONFIG_MAPS, "parent")
    assert await api.list_names(LEASES) == []


async def test_orphans_are_kept_without_their_owner_reference(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, owned_lease("child", owner_reference(parent)))
    await wait_until_collector_sees_leases(api)
    await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.ORPHAN)
    await api.wait_for_deletion(CONFIG_MAPS, "parent")
    assert "ownerReferences" not in (await api.get(LEASES, "child"))["metadata"]


async def test_an_orphaning_owner_has_a_finalizer_until_its_children_are_orphaned(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("parent", finalizers=[HOLD]))
    response = await api.delete(CONFIG_MAPS, "parent", propagation=Propagation.ORPHAN)
    assert set(response["metadata"]["finalizers"]) == {HOLD, "orphan"}
    await api.wait_for(CONFIG_MAPS, "parent", lambda obj: obj["metadata"]["finalizers"] == [HOLD])


async def test_a_child_of_two_owners_is_deleted_after_both(api: Api) -> None:
    first, second = [await api.create(CONFIG_MAPS, config_map(name)) for name in ("first", "second")]
    await api.create(LEASES, owned_lease("child", owner_reference(first), owner_reference(second)))
    await api.delete(CONFIG_MAPS, "first")
    child = await api.wait_for(LEASES, "child", lambda obj: len(obj["metadata"]["ownerReferences"]) == 1)
    assert child["metadata"]["ownerReferences"][0]["name"] == "second"
    await api.delete(CONFIG_MAPS, "second")
    await api.wait_for_deletion(LEASES, "child")


async def test_a_child_whose_owner_never_existed_is_deleted(api: Api) -> None:
    missing_owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "missing", "uid": "11111111-1111-1111-1111-111111111111"}
    await api.create(LEASES, owned_lease("child", missing_owner))
    await api.wait_for_deletion(LEASES, "child")


async def test_a_child_whose_owner_has_another_uid_is_deleted(api: Api) -> None:
    namesake = await api.create(CONFIG_MAPS, config_map("parent"))
    reference = owner_reference(namesake) | {"uid": "11111111-1111-1111-1111-111111111111"}
    await api.create(LEASES, owned_lease("child", reference))
    await api.wait_for_deletion(LEASES, "child")
    assert await api.get(CONFIG_MAPS, "parent") == namesake


async def test_a_child_with_a_finalizer_is_terminating_until_the_finalizer_is_removed(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, owned_lease("child", owner_reference(parent), finalizers=[HOLD]))
    await api.delete(CONFIG_MAPS, "parent")
    await api.wait_for_termination(LEASES, "child")
    await api.patch(LEASES, "child", {"metadata": {"finalizers": None}})
    await api.wait_for_deletion(LEASES, "child")


async def test_a_scheduled_pod_gets_its_grace_period_when_its_owner_is_deleted(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(PODS, pod("scheduled", node="one", ownerReferences=[owner_reference(parent)]))
    await api.create(PODS, pod("unscheduled", ownerReferences=[owner_reference(parent)]))
    await api.delete(CONFIG_MAPS, "parent")
    terminating = await api.wait_for_termination(PODS, "scheduled")
    assert terminating["metadata"]["deletionGracePeriodSeconds"] == 30
    await api.wait_for_deletion(PODS, "unscheduled")


async def test_an_owner_reference_can_be_added_later(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(LEASES, lease("child"))
    await api.patch(LEASES, "child", {"metadata": {"ownerReferences": [owner_reference(parent)]}})
    await api.delete(CONFIG_MAPS, "parent")
    await api.wait_for_deletion(LEASES, "child")


async def test_objects_without_an_owner_are_kept(api: Api) -> None:
    parent = await api.create(CONFIG_MAPS, config_map("parent"))
    await api.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "free"}})
    await api.create(LEASES, owned_lease("child", owner_reference(parent)))
    await api.delete(CONFIG_MAPS, "parent")
    await api.wait_for_deletion(LEASES, "child")
    assert await api.list_names(SECRETS) == ["free"]


async def test_two_controllers_of_one_object_are_invalid(api: Api) -> None:
    owners = [owner_reference(await api.create(CONFIG_MAPS, config_map(name)), controller=True) for name in ("x", "y")]
    error = await expect_error(api.create(LEASES, owned_lease("child", *owners)), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["metadata.ownerReferences"]
    assert str(error).endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ConfigMap/x and ConfigMap/y'
    )


async def test_an_owner_reference_needs_an_api_version_a_kind_a_name_and_a_uid(api: Api) -> None:
    error = await expect_error(
        api.create(LEASES, owned_lease("child", {"apiVersion": "", "kind": "", "name": "", "uid": ""})), InvalidError
    )
    names = ("apiVersion", "kind", "name", "uid")
    assert {cause["field"] for cause in error.causes} == {f"metadata.ownerReferences.{name}" for name in names}
