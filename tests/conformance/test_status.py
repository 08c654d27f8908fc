"""The status subresource: spec and status are written separately."""

from __future__ import annotations

from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.bodies import config_map, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, resource_version_of


async def test_a_create_ignores_the_status(api: Api) -> None:
    assert "status" not in await api.create(WIDGETS, widget("a", status={"phase": "Client"}))


async def test_a_patch_of_the_object_does_not_change_the_status(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    patched = await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}, "status": {"phase": "Broken"}})
    assert (patched["spec"], patched["status"]) == ({"replicas": 2}, {"phase": "Fine"})


async def test_a_patch_of_the_status_does_not_change_the_spec_or_the_labels(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 9}, "status": {"phase": "Fine"}}
    patched = await api.patch(WIDGETS, "a", patch, subresource="status")
    assert (patched["spec"], patched["status"]) == ({"replicas": 1}, {"phase": "Fine"})
    assert "labels" not in patched["metadata"]


async def test_replacing_the_status_removes_fields(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    first = await api.replace(WIDGETS, created | {"status": {"phase": "Fine", "count": 1}}, subresource="status")
    second = await api.replace(WIDGETS, first | {"status": {"count": 2}}, subresource="status")
    assert second["status"] == {"count": 2}
    assert second["metadata"]["generation"] == 1


async def test_replacing_the_status_of_an_old_resource_version_is_a_conflict(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}})
    await expect_error(api.replace(WIDGETS, created | {"status": {"phase": "Fine"}}, subresource="status"), ConflictError)


async def test_a_status_patch_without_changes_keeps_the_resource_version(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    first = await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    second = await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    assert resource_version_of(first) == resource_version_of(second)


async def test_a_get_of_the_status_returns_the_complete_object(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    assert await api.get(WIDGETS, "a", subresource="status") == created


async def test_a_new_pod_is_always_pending(api: Api) -> None:
    created = await api.create(PODS, {**pod("a"), "status": {"phase": "Running"}})
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_status_patch_does_not_change_the_spec_of_a_pod(api: Api) -> None:
    await api.create(PODS, pod("a"))
    patch = {"spec": {"nodeName": "one"}, "status": {"phase": "Running"}}
    patched = await api.patch(PODS, "a", patch, subresource="status")
    assert patched["status"]["phase"] == "Running"
    assert "nodeName" not in patched["spec"]


async def test_a_config_map_has_no_status(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.get(CONFIG_MAPS, "a", subresource="status"), NotFoundError)
    assert str(error) == "the server could not find the requested resource"
