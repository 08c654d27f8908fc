"""Custom resources with and without the status and scale subresources."""

from __future__ import annotations

from dlop.kube.client import PatchType
from dlop.kube.errors import ConflictError, InvalidError, NotFoundError
from dlop.kube.types import JsonObject
from tests.conformance.bodies import object_of
from tests.conformance.crds import NOTES, WIDGETS, widget
from tests.conformance.support import Api, expect_error


async def test_without_a_status_subresource_the_status_is_an_ordinary_field(api: Api) -> None:
    created = await api.create(NOTES, object_of(NOTES, "a", status={"phase": "Mine"}))
    assert created["status"] == {"phase": "Mine"}
    assert (await api.patch(NOTES, "a", {"status": {"phase": "Changed"}}))["status"] == {"phase": "Changed"}


async def test_without_a_status_subresource_its_path_is_not_found(api: Api) -> None:
    await api.create(NOTES, object_of(NOTES, "a"))
    await expect_error(api.get(NOTES, "a", subresource="status"), NotFoundError)
    await expect_error(api.patch(NOTES, "a", {"status": {"phase": "x"}}, subresource="status"), NotFoundError)


async def test_without_a_scale_subresource_its_path_is_not_found(api: Api) -> None:
    await api.create(NOTES, object_of(NOTES, "a", spec={"replicas": 1}))
    await expect_error(api.get(NOTES, "a", subresource="scale"), NotFoundError)


async def test_without_a_status_subresource_every_change_outside_metadata_increases_the_generation(api: Api) -> None:
    await api.create(NOTES, object_of(NOTES, "a"))
    with_status = await api.patch(NOTES, "a", {"status": {"phase": "x"}})
    labeled = await api.patch(NOTES, "a", {"metadata": {"labels": {"a": "b"}}})
    assert [obj["metadata"]["generation"] for obj in (with_status, labeled)] == [2, 2]


async def test_a_json_patch_of_the_status_does_not_change_the_spec(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    operations: list[JsonObject] = [
        {"op": "add", "path": "/status", "value": {"phase": "Fine"}},
        {"op": "replace", "path": "/spec/replicas", "value": 9},
    ]
    patched = await api.patch(WIDGETS, "a", operations, patch_type=PatchType.JSON, subresource="status")
    assert (patched["status"], patched["spec"]) == ({"phase": "Fine"}, {"replicas": 1})


async def test_a_status_patch_with_an_old_resource_version_is_a_conflict(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}})
    patch = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "status": {"phase": "Fine"}}
    await expect_error(api.patch(WIDGETS, "a", patch, subresource="status"), ConflictError)
    assert "status" not in await api.get(WIDGETS, "a")


async def test_a_patch_cannot_change_the_api_version_of_a_custom_object(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    error = await expect_error(api.patch(WIDGETS, "a", {"apiVersion": "conformance.dlop.dev/v2"}), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["apiVersion"]
