"""A custom resource without subresources: one object, no parts that are written apart."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, InvalidError, NotFoundError
from dlop.kube.types import JsonObject
from tests.conformance.bodies import custom
from tests.conformance.definitions import PLAIN, WIDGETS, widget
from tests.conformance.support import Api, refused


async def test_without_a_status_subresource_the_status_is_a_field_like_any_other(api: Api) -> None:
    created = await api.create(PLAIN, custom(PLAIN, "a", status={"phase": "Mine"}))
    assert created["status"] == {"phase": "Mine"}
    assert (await api.patch(PLAIN, "a", {"status": {"phase": "Changed"}}))["status"] == {"phase": "Changed"}


async def test_without_a_status_subresource_there_is_nothing_at_its_address(api: Api) -> None:
    await api.create(PLAIN, custom(PLAIN, "a"))
    await refused(api.get(PLAIN, "a", subresource="status"), NotFoundError)
    await refused(api.patch(PLAIN, "a", {"status": {"phase": "x"}}, subresource="status"), NotFoundError)


async def test_without_a_scale_subresource_there_is_nothing_at_its_address(api: Api) -> None:
    await api.create(PLAIN, custom(PLAIN, "a", spec={"replicas": 1}))
    await refused(api.get(PLAIN, "a", subresource="scale"), NotFoundError)


async def test_without_a_status_subresource_every_change_but_of_metadata_raises_the_generation(api: Api) -> None:
    await api.create(PLAIN, custom(PLAIN, "a"))
    reported = await api.patch(PLAIN, "a", {"status": {"phase": "x"}})
    labelled = await api.patch(PLAIN, "a", {"metadata": {"labels": {"a": "b"}}})
    assert [each["metadata"]["generation"] for each in (reported, labelled)] == [2, 2]


async def test_a_json_patch_of_the_status_leaves_the_rest_alone(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    steps: list[JsonObject] = [
        {"op": "add", "path": "/status", "value": {"phase": "Fine"}},
        {"op": "replace", "path": "/spec/replicas", "value": 9},
    ]
    patched = await api.patch(WIDGETS, "a", steps, patch_type=PatchType.JSON, subresource="status")
    assert (patched["status"], patched["spec"]) == ({"phase": "Fine"}, {"replicas": 1})


async def test_a_status_patch_that_names_an_old_version_is_refused(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}})
    patch = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "status": {"phase": "Fine"}}
    await refused(api.patch(WIDGETS, "a", patch, subresource="status"), ConflictError)
    assert "status" not in await api.get(WIDGETS, "a")


async def test_a_custom_object_cannot_be_given_another_version_by_a_patch(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await refused(api.patch(WIDGETS, "a", {"apiVersion": "conformance.dlop.dev/v2"}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["apiVersion"]
