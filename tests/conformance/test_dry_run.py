"""Dry run: requests are validated but not stored."""

from __future__ import annotations

from dlop.kube.errors import AlreadyExistsError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES, PODS
from tests.conformance.bodies import config_map, lease, pod
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, expect_error
from tests.kubernetes_versions import JSON_VALUES


async def test_a_dry_run_create_returns_the_object_and_stores_nothing(api: Api) -> None:
    result = await api.create(PODS, pod("a"), dry_run=True)
    assert result["spec"]["restartPolicy"] == "Always"
    assert result["metadata"]["uid"]
    assert "resourceVersion" not in result["metadata"]
    assert await api.get_or_none(PODS, "a") is None


async def test_a_dry_run_create_is_validated(api: Api) -> None:
    await expect_error(api.create(CONFIG_MAPS, config_map("Bad"), dry_run=True), InvalidError)
    await api.create(CONFIG_MAPS, config_map("a"))
    await expect_error(api.create(CONFIG_MAPS, config_map("a"), dry_run=True), AlreadyExistsError)


async def test_a_dry_run_patch_returns_the_result_and_stores_nothing(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "old"}))
    result = await api.patch(CONFIG_MAPS, "a", {"data": {"k": "new"}}, dry_run=True)
    assert result["data"] == {"k": "new"}
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_dry_run_replacement_stores_nothing(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    result = await api.replace(WIDGETS, created | {"spec": {"replicas": 7}}, dry_run=True)
    assert (result["spec"], result["metadata"]["generation"]) == ({"replicas": 7}, 2)
    assert await api.get(WIDGETS, "a") == created


async def test_a_dry_run_delete_deletes_nothing(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    assert (await api.delete(CONFIG_MAPS, "a", dry_run=True))["status"] == "Success"
    assert await api.get(CONFIG_MAPS, "a") == created
    await expect_error(api.delete(CONFIG_MAPS, "b", dry_run=True), NotFoundError)


async def test_a_dry_run_graceful_delete_does_not_start_termination(api: Api) -> None:
    created = await api.create(PODS, pod("a", node="one"))
    assert "deletionTimestamp" in (await api.delete(PODS, "a", dry_run=True))["metadata"]
    assert await api.get(PODS, "a") == created


async def test_a_dry_run_sends_no_watch_event(api: Api) -> None:
    async with api.watch(LEASES) as watch:
        await api.create(LEASES, lease("dry"), dry_run=True)
        await api.create(LEASES, lease("stored"))
        assert await watch.next_changes(1) == [("ADDED", "stored")]


@JSON_VALUES
async def test_all_is_the_only_supported_dry_run_value(api: Api) -> None:
    call = api.client.call("POST", api.path(CONFIG_MAPS), query=(("dryRun", "Some"),), body=config_map("a"))
    error = await expect_error(call, InvalidError)
    message = 'Unsupported value: ["Some"]: supported values: "All"'
    assert error.causes == [{"reason": "FieldValueNotSupported", "message": message, "field": "dryRun"}]
    assert (error.details["group"], error.details["kind"]) == ("meta.k8s.io", "CreateOptions")
