"""Metadata that the server sets: uid, resource version, generation and creation timestamp."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from dlop.kube.resources import CONFIG_MAPS, LEASES, PODS, SERVICES
from tests.conformance.bodies import config_map, lease, pod, service
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, resource_version_of, without_metadata
from tests.kubernetes_versions import POD_GENERATIONS, since


async def test_a_created_object_has_a_uid_a_creation_timestamp_and_a_resource_version(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    metadata = created["metadata"]
    assert str(UUID(metadata["uid"])) == metadata["uid"]
    assert datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert int(metadata["resourceVersion"]) > 0
    assert without_metadata(created, "uid", "creationTimestamp", "resourceVersion") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": api.namespace},
        "data": {"k": "v"},
    }


async def test_a_get_returns_the_object_that_the_create_returned(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_server_set_metadata_in_the_body_is_ignored(api: Api) -> None:
    client_metadata = {"uid": "11111111-1111-1111-1111-111111111111", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    body = widget("a")
    body["metadata"] |= client_metadata
    created = (await api.create(WIDGETS, body))["metadata"]
    assert created["uid"] != client_metadata["uid"]
    assert created["creationTimestamp"] != client_metadata["creationTimestamp"]
    assert created["generation"] == 1


async def test_the_resource_version_increases_with_each_change_of_any_resource(api: Api) -> None:
    changes = [
        await api.create(CONFIG_MAPS, config_map("a")),
        await api.create(LEASES, lease("a")),
        await api.create(WIDGETS, widget("a")),
        await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}),
        await api.create(SERVICES, service("a")),
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}}),
    ]
    versions = [resource_version_of(change) for change in changes]
    assert versions == sorted(set(versions))


async def test_a_list_is_at_least_as_new_as_the_last_change(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    assert resource_version_of(await api.list(LEASES)) >= resource_version_of(created)


async def test_a_patch_without_changes_keeps_the_resource_version(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}})
    assert resource_version_of(patched) == resource_version_of(created)


async def test_a_replacement_without_changes_keeps_the_resource_version(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    replacement = widget("a")
    replacement["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"]
    assert resource_version_of(await api.replace(WIDGETS, replacement)) == resource_version_of(created)


async def test_the_generation_of_a_custom_object_increases_with_its_spec_only(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    labeled = await api.patch(WIDGETS, "a", {"metadata": {"labels": {"a": "b"}}})
    with_status = await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    scaled = await api.patch(WIDGETS, "a", {"spec": {"replicas": 3}})
    assert [obj["metadata"]["generation"] for obj in (created, labeled, with_status, scaled)] == [1, 1, 1, 2]


@since(POD_GENERATIONS, reason="pods have a generation")
async def test_a_status_change_keeps_the_generation_of_a_pod(api: Api) -> None:
    created = await api.create(PODS, pod("a"))
    with_status = await api.patch(PODS, "a", {"status": {"phase": "Running"}}, subresource="status")
    assert (created["metadata"]["generation"], with_status["metadata"]["generation"]) == (1, 1)


async def test_a_config_map_has_no_generation(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    assert "generation" not in (await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}))["metadata"]


async def test_a_built_in_object_can_be_replaced_without_a_resource_version(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    replaced = await api.replace(CONFIG_MAPS, config_map("a", {"other": "w"}))
    assert replaced["data"] == {"other": "w"}
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]
    assert replaced["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_a_recreated_object_has_another_uid(api: Api) -> None:
    first = await api.create(CONFIG_MAPS, config_map("a"))
    await api.delete(CONFIG_MAPS, "a")
    second = await api.create(CONFIG_MAPS, config_map("a"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert resource_version_of(second) > resource_version_of(first)


async def test_an_object_is_stored_in_the_namespace_of_the_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"k": "one"}))
    await api.client.create(CONFIG_MAPS, config_map(api.namespace, {"k": "other"}), namespace="default")
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"k": "one"}
    listed = await api.client.list(CONFIG_MAPS, field_selector=f"metadata.name={api.namespace}")
    assert [(item["metadata"]["namespace"], item["data"]) for item in listed["items"]] == [("default", {"k": "other"})]
