"""Preconditions of writes: uid and resource version of deletes, test operations of JSON patches."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, InvalidError
from dlop.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.bodies import config_map, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status

ANOTHER_UID = "11111111-1111-1111-1111-111111111111"


async def test_a_delete_with_another_uid_is_a_conflict_and_deletes_nothing(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.delete(CONFIG_MAPS, "a", uid=ANOTHER_UID), ConflictError)
    message = (
        f'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition ({ANOTHER_UID}) does not match '
        f"the UID in record ({created['metadata']['uid']}). The object might have been deleted and then recreated"
    )
    assert error.status == failure_status(409, "Conflict", message, {"name": "a", "kind": "ConfigMap"})
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_delete_with_the_matching_uid_succeeds(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    await api.delete(CONFIG_MAPS, "a", uid=created["metadata"]["uid"])
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_a_delete_with_an_old_resource_version_is_a_conflict(api: Api) -> None:
    old = (await api.create(CONFIG_MAPS, config_map("a")))["metadata"]["resourceVersion"]
    new = (await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}))["metadata"]["resourceVersion"]
    error = await expect_error(api.delete(CONFIG_MAPS, "a", resource_version=old), ConflictError)
    assert str(error) == (
        f'Operation cannot be fulfilled on ConfigMap "a": the ResourceVersion in the precondition ({old}) does not match '
        f"the ResourceVersion in record ({new}). The object might have been modified"
    )
    await api.delete(CONFIG_MAPS, "a", resource_version=new)
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_a_delete_of_a_custom_object_with_another_uid_is_a_conflict(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.delete(WIDGETS, "a", uid=ANOTHER_UID), ConflictError)
    assert error.details == {"name": "a", "group": "conformance.dlop.dev", "kind": "Widget"}
    await api.delete(WIDGETS, "a", uid=created["metadata"]["uid"])
    assert await api.get_or_none(WIDGETS, "a") is None


async def test_a_graceful_delete_with_another_uid_does_not_terminate_the_pod(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await expect_error(api.delete(PODS, "a", uid=ANOTHER_UID), ConflictError)
    assert "deletionTimestamp" not in (await api.get(PODS, "a"))["metadata"]


async def test_a_json_patch_whose_test_fails_changes_nothing(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    patch = [{"op": "test", "path": "/data/k", "value": "other"}, {"op": "replace", "path": "/data/k", "value": "new"}]
    error = await expect_error(api.patch(CONFIG_MAPS, "a", patch, patch_type=PatchType.JSON), InvalidError)
    assert error.status_code == 422
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_patch_cannot_change_the_uid(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.patch(CONFIG_MAPS, "a", {"metadata": {"uid": ANOTHER_UID}}), ConflictError)
    assert error.status_code == 422
    assert str(error) == f'ConfigMap "a" is invalid: metadata.uid: Invalid value: "{ANOTHER_UID}": field is immutable'
