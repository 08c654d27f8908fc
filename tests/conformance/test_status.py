"""The status subresource: two writers who cannot step on each other."""

from __future__ import annotations

from dlop.kube.errors import ConflictError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.bodies import config_map, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, refused, version_of


async def test_a_status_given_on_create_is_dropped(api: Api) -> None:
    assert "status" not in await api.create(WIDGETS, widget("a", status={"phase": "Mine"}))


async def test_a_change_of_the_object_leaves_the_status_alone(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    patched = await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}, "status": {"phase": "Broken"}})
    assert (patched["spec"], patched["status"]) == ({"replicas": 2}, {"phase": "Fine"})


async def test_a_change_of_the_status_leaves_the_spec_and_the_labels_alone(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    patch = {"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 9}, "status": {"phase": "Fine"}}
    patched = await api.patch(WIDGETS, "a", patch, subresource="status")
    assert (patched["spec"], patched["status"]) == ({"replicas": 1}, {"phase": "Fine"})
    assert "labels" not in patched["metadata"]


async def test_a_status_is_replaced_whole(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    first = await api.replace(WIDGETS, created | {"status": {"phase": "Fine", "count": 1}}, subresource="status")
    second = await api.replace(WIDGETS, first | {"status": {"count": 2}}, subresource="status")
    assert second["status"] == {"count": 2}
    assert second["metadata"]["generation"] == 1


async def test_a_status_of_an_old_version_is_a_conflict(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}})
    await refused(api.replace(WIDGETS, created | {"status": {"phase": "Fine"}}, subresource="status"), ConflictError)


async def test_a_status_that_says_the_same_again_changes_nothing(api: Api) -> None:
    await api.create(WIDGETS, widget("a"))
    first = await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    second = await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    assert version_of(first) == version_of(second)


async def test_reading_the_status_gives_the_whole_object(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    assert await api.get(WIDGETS, "a", subresource="status") == created


async def test_a_pod_begins_pending_whatever_its_creator_says(api: Api) -> None:
    created = await api.create(PODS, {**pod("a"), "status": {"phase": "Running"}})
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


async def test_a_pod_status_does_not_change_its_spec(api: Api) -> None:
    await api.create(PODS, pod("a"))
    patch = {"spec": {"nodeName": "elsewhere"}, "status": {"phase": "Running"}}
    patched = await api.patch(PODS, "a", patch, subresource="status")
    assert patched["status"]["phase"] == "Running"
    assert "nodeName" not in patched["spec"]


async def test_a_config_map_has_no_status(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.get(CONFIG_MAPS, "a", subresource="status"), NotFoundError)
    assert str(error) == "the server could not find the requested resource"
