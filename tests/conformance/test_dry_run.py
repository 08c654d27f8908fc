"""A dry run says what would happen, and nothing happens."""

from __future__ import annotations

from dlop.kube.errors import AlreadyExistsError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES, PODS
from tests.conformance.bodies import config_map, lease, pod
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, refused


async def test_a_dry_create_answers_as_a_create_and_stores_nothing(api: Api) -> None:
    answer = await api.create(PODS, pod("a"), dry_run=True)
    assert answer["spec"]["restartPolicy"] == "Always"
    assert answer["metadata"]["uid"]
    assert "resourceVersion" not in answer["metadata"]
    assert await api.find(PODS, "a") is None


async def test_a_dry_create_is_validated(api: Api) -> None:
    await refused(api.create(CONFIG_MAPS, config_map("Bad"), dry_run=True), InvalidError)
    await api.create(CONFIG_MAPS, config_map("a"))
    await refused(api.create(CONFIG_MAPS, config_map("a"), dry_run=True), AlreadyExistsError)


async def test_a_dry_patch_answers_with_the_result_and_changes_nothing(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "old"}))
    answer = await api.patch(CONFIG_MAPS, "a", {"data": {"k": "new"}}, dry_run=True)
    assert answer["data"] == {"k": "new"}
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_dry_replacement_changes_nothing(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    answer = await api.replace(WIDGETS, created | {"spec": {"replicas": 7}}, dry_run=True)
    assert (answer["spec"], answer["metadata"]["generation"]) == ({"replicas": 7}, 2)
    assert await api.get(WIDGETS, "a") == created


async def test_a_dry_delete_deletes_nothing(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    assert (await api.delete(CONFIG_MAPS, "a", dry_run=True))["status"] == "Success"
    assert await api.get(CONFIG_MAPS, "a") == created
    await refused(api.delete(CONFIG_MAPS, "b", dry_run=True), NotFoundError)


async def test_a_dry_graceful_delete_marks_nothing(api: Api) -> None:
    created = await api.create(PODS, pod("a", node="one"))
    assert "deletionTimestamp" in (await api.delete(PODS, "a", dry_run=True))["metadata"]
    assert await api.get(PODS, "a") == created


async def test_a_dry_run_is_not_told_to_watchers(api: Api) -> None:
    async with api.watching(LEASES) as watch:
        await api.create(LEASES, lease("dry"), dry_run=True)
        await api.create(LEASES, lease("wet"))
        assert await watch.story(1) == [("ADDED", "wet")]


async def test_a_dry_run_is_of_all_or_of_nothing(api: Api) -> None:
    call = api.client.call("POST", api.path(CONFIG_MAPS), query=(("dryRun", "Some"),), body=config_map("a"))
    error = await refused(call, InvalidError)
    message = 'Unsupported value: ["Some"]: supported values: "All"'
    assert error.causes == [{"reason": "FieldValueNotSupported", "message": message, "field": "dryRun"}]
    assert (error.details["group"], error.details["kind"]) == ("meta.k8s.io", "CreateOptions")
