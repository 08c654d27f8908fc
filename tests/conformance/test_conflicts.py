"""Two writers of one object: the second is told, and nothing of the first is lost."""

from __future__ import annotations

import asyncio

import pytest

from dlop.kube.errors import AlreadyExistsError, AmbiguousWriteError, ConflictError, InvalidError, NotFoundError, ServerError
from dlop.kube.resources import CONFIG_MAPS, LEASES
from tests.conformance.bodies import config_map, lease
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, failure, refused

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


async def test_a_second_create_of_a_name_already_exists(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.create(CONFIG_MAPS, config_map("a")), AlreadyExistsError)
    details = {"name": "a", "kind": "configmaps"}
    assert error.status == failure(409, "AlreadyExists", 'configmaps "a" already exists', details)


async def test_a_second_create_of_a_custom_name_is_refused_with_its_group(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await refused(api.create(WIDGETS, widget("a")), AlreadyExistsError)
    details = {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"}
    assert error.status == failure(409, "AlreadyExists", 'widgets.conformance.dlop.dev "a" already exists', details)


async def test_replacing_an_old_version_is_a_conflict(api: Api) -> None:
    old = await api.create(CONFIG_MAPS, config_map("a"))
    await api.patch(CONFIG_MAPS, "a", {"data": {"k": "theirs"}})
    error = await refused(api.replace(CONFIG_MAPS, old | {"data": {"k": "mine"}}), ConflictError)
    message = f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'
    assert error.status == failure(409, "Conflict", message, {"name": "a", "kind": "configmaps"})
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"k": "theirs"}


async def test_replacing_an_old_version_of_a_custom_object_is_a_conflict(api: Api) -> None:
    old = await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"spec": {"replicas": 5}})
    error = await refused(api.replace(WIDGETS, old | {"spec": {"replicas": 9}}), ConflictError)
    message = f'Operation cannot be fulfilled on widgets.conformance.dlop.dev "a": {MODIFIED}'
    assert error.status == failure(409, "Conflict", message, {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"})


async def test_a_patch_that_names_an_old_version_is_a_conflict(api: Api) -> None:
    old = await api.create(CONFIG_MAPS, config_map("a"))
    await api.patch(CONFIG_MAPS, "a", {"data": {"k": "theirs"}})
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "data": {"k": "mine"}}
    error = await refused(api.patch(CONFIG_MAPS, "a", patch), ConflictError)
    assert str(error) == f'Operation cannot be fulfilled on configmaps "a": {MODIFIED}'


async def test_a_patch_without_a_version_changes_whatever_is_there(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"one": "1"}))
    await asyncio.gather(*(api.patch(CONFIG_MAPS, "a", {"data": {f"k{i}": "v"}}) for i in range(5)))
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"one": "1", **{f"k{i}": "v" for i in range(5)}}


async def test_of_many_that_replace_one_version_exactly_one_wins(api: Api) -> None:
    old = await api.create(LEASES, lease("a"))
    attempts = [api.replace(LEASES, old | {"spec": {"holderIdentity": f"candidate-{i}"}}) for i in range(8)]
    answers = await asyncio.gather(*attempts, return_exceptions=True)
    winners = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [ConflictError] * 7
    assert (await api.get(LEASES, "a"))["spec"] == winners[0]["spec"]


async def test_of_many_that_create_one_name_exactly_one_wins(api: Api) -> None:
    attempts = [api.create(LEASES, lease("a", f"candidate-{i}")) for i in range(8)]
    answers = await asyncio.gather(*attempts, return_exceptions=True)
    winners = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert [type(answer) for answer in answers if isinstance(answer, BaseException)] == [AlreadyExistsError] * 7
    assert (await api.get(LEASES, "a"))["spec"] == winners[0]["spec"]


async def test_replacing_what_is_not_there_is_not_found(api: Api) -> None:
    error = await refused(api.replace(CONFIG_MAPS, config_map("a")), NotFoundError)
    assert error.status == failure(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


async def test_replacing_with_another_uid_is_a_conflict(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    other = "11111111-1111-1111-1111-111111111111"
    error = await refused(api.replace(CONFIG_MAPS, config_map("a", uid=other)), ConflictError)
    assert error.details == {"name": "a", "kind": "configmaps"}
    assert str(error).startswith('Operation cannot be fulfilled on configmaps "a": ')
    why = f"Precondition failed: UID in precondition: {other}, UID in object meta: {created['metadata']['uid']}"
    assert str(error).endswith(why)


async def test_a_custom_object_is_not_replaced_without_naming_a_version(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await refused(api.replace(WIDGETS, widget("a")), InvalidError)
    message = "Invalid value: 0: must be specified for an update"
    assert error.causes == [{"reason": "FieldValueInvalid", "message": message, "field": "metadata.resourceVersion"}]


async def test_an_object_with_a_version_cannot_be_created(api: Api) -> None:
    # The server answers 500 without a reason, which for a client might mean anything; the answer itself is the cause.
    with pytest.raises(AmbiguousWriteError) as raised:
        await api.create(CONFIG_MAPS, config_map("a", resourceVersion="1"))
    error = raised.value.__cause__
    assert isinstance(error, ServerError)
    assert (error.status_code, str(error)) == (500, "resourceVersion should not be set on objects to be created")
