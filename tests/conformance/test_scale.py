"""The scale subresource of custom resources."""

from __future__ import annotations

from dlop.kube.errors import ConflictError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS
from tests.conformance.bodies import config_map
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error, failure_status, without_metadata

SPEC = {"replicas": 2, "other": "kept"}


async def test_a_scale_has_the_metadata_and_replicas_of_its_object(api: Api) -> None:
    metadata = (await api.create(WIDGETS, widget("a", SPEC)))["metadata"]
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    assert await api.get(WIDGETS, "a", subresource="scale") == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in fields},
        "spec": {"replicas": 2},
        "status": {"replicas": 0},
    }


async def test_a_scale_has_the_status_replicas_and_the_selector(api: Api) -> None:
    await api.create(WIDGETS, widget("a", SPEC))
    await api.patch(WIDGETS, "a", {"status": {"replicas": 1, "selector": "app=a"}}, subresource="status")
    assert (await api.get(WIDGETS, "a", subresource="scale"))["status"] == {"replicas": 1, "selector": "app=a"}


async def test_patching_the_scale_changes_only_the_replicas(api: Api) -> None:
    before = await api.create(WIDGETS, widget("a", SPEC))
    scaled = await api.patch(WIDGETS, "a", {"spec": {"replicas": 5}}, subresource="scale")
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 5})
    after = await api.get(WIDGETS, "a")
    assert after["spec"] == {"replicas": 5, "other": "kept"}
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1


async def test_replacing_the_scale_changes_the_replicas(api: Api) -> None:
    await api.create(WIDGETS, widget("a", SPEC))
    scale = await api.get(WIDGETS, "a", subresource="scale")
    replaced = await api.replace(WIDGETS, without_metadata(scale) | {"spec": {"replicas": 0}}, subresource="scale")
    assert replaced["spec"] == {}
    assert (await api.get(WIDGETS, "a"))["spec"]["replicas"] == 0


async def test_replacing_an_old_scale_is_a_conflict(api: Api) -> None:
    await api.create(WIDGETS, widget("a", SPEC))
    scale = await api.get(WIDGETS, "a", subresource="scale")
    await api.patch(WIDGETS, "a", {"spec": {"other": "changed"}})
    error = await expect_error(
        api.replace(WIDGETS, without_metadata(scale) | {"spec": {"replicas": 9}}, subresource="scale"), ConflictError
    )
    assert error.details == {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"}
    assert (await api.get(WIDGETS, "a"))["spec"]["replicas"] == 2


async def test_a_negative_scale_is_invalid(api: Api) -> None:
    await api.create(WIDGETS, widget("a", SPEC))
    error = await expect_error(api.patch(WIDGETS, "a", {"spec": {"replicas": -5}}, subresource="scale"), InvalidError)
    message = "Invalid value: -5: spec.replicas in body should be greater than or equal to 0"
    assert {"reason": "FieldValueInvalid", "message": message, "field": "spec.replicas"} in error.causes


async def test_the_scale_of_a_missing_object_is_not_found(api: Api) -> None:
    error = await expect_error(api.get(WIDGETS, "a", subresource="scale"), NotFoundError)
    details = {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets"}
    assert error.status == failure_status(404, "NotFound", 'widgets.conformance.dlop.dev "a" not found', details)


async def test_a_config_map_has_no_scale(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.get(CONFIG_MAPS, "a", subresource="scale"), NotFoundError)
    assert str(error) == "the server could not find the requested resource"
