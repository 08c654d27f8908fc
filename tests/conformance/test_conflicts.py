"""Conflicts between writers of the same object."""

from __future__ import annotations

import asyncio

import pytest

from dlop.kube.errors import AlreadyExistsError, AmbiguousWriteError, ConflictError, InvalidError, NotFoundError, ServerError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from tests.conformance.bodies import config_map, lease
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status
from tests.kubernetes_versions import JSON_VALUES

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_creating_an_existing_object_fails_with_already_exists(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.create(CONFIG_MAPS, config_map("a")), AlreadyExistsError)
    details = {"name": "a", "kind": "configmaps"}
    assert error.status == failure_status(409, "AlreadyExists", 'configmaps "a" already exists', details)


async def test_creating_an_existing_custom_object_fails_with_its_group_in_the_details(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.create(WIDGETS, widget("a")), AlreadyExistsError)
    details = {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"}
    assert error.status == failure_status(409, "AlreadyExists", 'widgets.conformance.dlop.dev "a" already exists', details)


async def test_replacing_an_old_resource_version_is_a_conflict(api: Api) -> None:
    old = await api.create(CONFIG_MAPS, config_map("a"))
    await api.patch(CONFIG_MAPS, "a", {"data": {"k": "other"}})
    error = await expect_error(api.replace(CONFIG_MAPS, old | {"data": {"k": "stale"}}), ConflictError)
    message = f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert error.status == failure_status(409, "Conflict", message, {"name": "a", "kind": "configmaps"})
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"k": "other"}


async def test_replacing_an_old_resource_version_of_a_custom_object_is_a_conflict(api: Api) -> None:
    old = await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"spec": {"replicas": 5}})
    error = await expect_error(api.replace(WIDGETS, old | {"spec": {"replicas": 9}}), ConflictError)
    message = f'Operation cannot be fulfilled on widgets.conformance.dlop.dev "a": {MODIFIED}'
    assert error.status == failure_status(409, "Conflict", message, {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"})


async def test_a_patch_with_an_old_resource_version_is_a_conflict(api: Api) -> None:
    old = await api.create(CONFIG_MAPS, config_map("a"))
    await api.patch(CONFIG_MAPS, "a", {"data": {"k": "other"}})
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"k": "stale"}}
    error = await expect_error(api.patch(CONFIG_MAPS, "a", patch), ConflictError)
    assert str(error) == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'


async def test_concurrent_patches_without_a_resource_version_all_succeed(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"one": "1"}))
    await asyncio.gather(*(api.patch(CONFIG_MAPS, "a", {"data": {f"k{i}": "v"}}) for i in range(5)))
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"one": "1", **{f"k{i}": "v" for i in range(5)}}


async def test_exactly_one_of_many_concurrent_replacements_succeeds(api: Api) -> None:
    old = await api.create(LEASES, lease("a"))
    attempts = [api.replace(LEASES, old | {"spec": {"holderIdentity": f"candidate-{i}"}}) for i in range(8)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    replaced = [result for result in results if not isinstance(result, BaseException)]
    assert [type(result) for result in results if isinstance(result, BaseException)] == [ConflictError] * 7
    assert (await api.get(LEASES, "a"))["spec"] == replaced[0]["spec"]


async def test_exactly_one_of_many_concurrent_creates_succeeds(api: Api) -> None:
    attempts = [api.create(LEASES, lease("a", f"candidate-{i}")) for i in range(8)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    created = [result for result in results if not isinstance(result, BaseException)]
    assert [type(result) for result in results if isinstance(result, BaseException)] == [AlreadyExistsError] * 7
    assert (await api.get(LEASES, "a"))["spec"] == created[0]["spec"]


async def test_replacing_a_missing_object_is_not_found(api: Api) -> None:
    error = await expect_error(api.replace(CONFIG_MAPS, config_map("a")), NotFoundError)
    assert error.status == failure_status(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


async def test_replacing_with_another_uid_is_a_conflict(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    other_uid = "11111111-1111-1111-1111-111111111111"
    error = await expect_error(api.replace(CONFIG_MAPS, config_map("a", uid=other_uid)), ConflictError)
    assert error.details == {"name": "a", "kind": "configmaps"}
    assert str(error).startswith('Operation cannot be fulfilled on configmaps "a": ')
    detail = f"Precondition failed: UID in precondition: {other_uid}, UID in object meta: {created['metadata']['uid']}"
    assert str(error).endswith(detail)


@JSON_VALUES
async def test_replacing_a_custom_object_requires_a_resource_version(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.replace(WIDGETS, widget("a")), InvalidError)
    message = "Invalid value: 0: must be specified for an update"
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.resourceVersion"}]


async def test_an_object_with_a_resource_version_cannot_be_created(api: Api) -> None:
    # The server returns 500 without a reason. The client cannot know whether the write took effect and raises AmbiguousWriteError.
    with pytest.raises(AmbiguousWriteError) as raised:
        await api.create(CONFIG_MAPS, config_map("a", resourceVersion="1"))
    error = raised.value.__cause__
    assert isinstance(error, ServerError)
    assert (error.status_code, str(error)) == (500, "resourceVersion should not be set on objects to be created")
