"""The scale subresource of a custom resource: one number, wherever the resource keeps it."""

from __future__ import annotations

from dlop.kube.errors import ConflictError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS
from dlop.kube.types import JsonObject
from tests.conformance.bodies import config_map
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, failure, refused, without


async def created(api: Api) -> JsonObject:
    return await api.create(WIDGETS, widget("a", {"replicas": 2, "other": "kept"}))


async def test_the_scale_of_an_object_has_its_identity_and_its_numbers(api: Api) -> None:
    metadata = (await created(api))["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert await api.get(WIDGETS, "a", subresource="scale") == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in kept},
        "spec": {"replicas": 2},
        "status": {"replicas": 0},
    }


async def test_the_scale_shows_the_counted_replicas_and_the_selector_of_the_status(api: Api) -> None:
    await created(api)
    await api.patch(WIDGETS, "a", {"status": {"replicas": 1, "selector": "app=a"}}, subresource="status")
    assert (await api.get(WIDGETS, "a", subresource="scale"))["status"] == {"replicas": 1, "selector": "app=a"}


async def test_scaling_by_patch_changes_the_replicas_and_nothing_else(api: Api) -> None:
    before = await created(api)
    scaled = await api.patch(WIDGETS, "a", {"spec": {"replicas": 5}}, subresource="scale")
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 5})
    after = await api.get(WIDGETS, "a")
    assert after["spec"] == {"replicas": 5, "other": "kept"}
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


async def test_scaling_by_replacement_changes_the_replicas(api: Api) -> None:
    await created(api)
    scale = await api.get(WIDGETS, "a", subresource="scale")
    replaced = await api.replace(WIDGETS, without(scale) | {"spec": {"replicas": 0}}, subresource="scale")
    assert replaced["spec"] == {}
    assert (await api.get(WIDGETS, "a"))["spec"]["replicas"] == 0


async def test_scaling_an_old_version_is_a_conflict(api: Api) -> None:
    await created(api)
    scale = await api.get(WIDGETS, "a", subresource="scale")
    await api.patch(WIDGETS, "a", {"spec": {"other": "changed"}})
    error = await refused(api.replace(WIDGETS, without(scale) | {"spec": {"replicas": 9}}, subresource="scale"), ConflictError)
    assert error.details == {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"}
    assert (await api.get(WIDGETS, "a"))["spec"]["replicas"] == 2


async def test_a_negative_scale_is_invalid(api: Api) -> None:
    await created(api)
    error = await refused(api.patch(WIDGETS, "a", {"spec": {"replicas": -5}}, subresource="scale"), InvalidError)
    message = "Invalid value: -5: spec.replicas in body should be greater than or equal to 0"
    assert {"reason": "FieldValueInvalid", "message": message, "field": "spec.replicas"} in error.causes


async def test_the_scale_of_what_is_not_there_is_not_found(api: Api) -> None:
    error = await refused(api.get(WIDGETS, "a", subresource="scale"), NotFoundError)
    details = {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"}
    assert error.status == failure(404, "NotFound", 'widgets.conformance.dlop.dev "a" not found', details)


async def test_a_config_map_cannot_be_scaled(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.get(CONFIG_MAPS, "a", subresource="scale"), NotFoundError)
    assert str(error) == "the server could not find the requested resource"
