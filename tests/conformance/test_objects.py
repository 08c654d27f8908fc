"""What the server adds to an object, and what it counts."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from dlop.kube.resources import CONFIG_MAPS, LEASES, PODS, SERVICES
from tests.conformance.bodies import config_map, lease, pod, service
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, version_of, without


async def test_a_created_object_comes_back_with_a_uid_a_time_and_a_version(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    metadata = created["metadata"]
    assert str(UUID(metadata["uid"])) == metadata["uid"]
    assert datetime.strptime(metadata["creationTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert int(metadata["resourceVersion"]) > 0
    assert without(created, "uid", "creationTimestamp", "resourceVersion") == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": api.namespace},
        "data": {"k": "v"},
    }


async def test_a_read_gives_back_what_the_create_answered(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_what_only_the_server_decides_is_not_taken_from_the_body(api: Api) -> None:
    theirs = {"uid": "11111111-1111-1111-1111-111111111111", "creationTimestamp": "2001-01-01T00:00:00Z", "generation": 7}
    body = widget("a")
    body["metadata"] |= theirs
    created = (await api.create(WIDGETS, body))["metadata"]
    assert created["uid"] != theirs["uid"]
    assert created["creationTimestamp"] != theirs["creationTimestamp"]
    assert created["generation"] == 1


async def test_the_version_rises_with_every_change_of_any_resource(api: Api) -> None:
    changes = [
        await api.create(CONFIG_MAPS, config_map("a")),
        await api.create(LEASES, lease("a")),
        await api.create(WIDGETS, widget("a")),
        await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}),
        await api.create(SERVICES, service("a")),
        await api.patch(WIDGETS, "a", {"spec": {"replicas": 2}}),
    ]
    versions = [version_of(change) for change in changes]
    assert versions == sorted(set(versions))


async def test_a_list_is_as_new_as_the_last_change_before_it(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    assert version_of(await api.list(LEASES)) >= version_of(created)


async def test_a_patch_that_changes_nothing_leaves_the_version_alone(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    patched = await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}})
    assert version_of(patched) == version_of(created)


async def test_a_replacement_that_changes_nothing_leaves_the_version_alone(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    again = widget("a")
    again["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"]
    assert version_of(await api.replace(WIDGETS, again)) == version_of(created)


async def test_the_generation_of_a_custom_object_rises_with_its_spec_only(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    labelled = await api.patch(WIDGETS, "a", {"metadata": {"labels": {"a": "b"}}})
    reported = await api.patch(WIDGETS, "a", {"status": {"phase": "Fine"}}, subresource="status")
    scaled = await api.patch(WIDGETS, "a", {"spec": {"replicas": 3}})
    assert [each["metadata"]["generation"] for each in (created, labelled, reported, scaled)] == [1, 1, 1, 2]


async def test_a_pod_has_a_generation_that_its_status_does_not_raise(api: Api) -> None:
    created = await api.create(PODS, pod("a"))
    reported = await api.patch(PODS, "a", {"status": {"phase": "Running"}}, subresource="status")
    assert (created["metadata"]["generation"], reported["metadata"]["generation"]) == (1, 1)


async def test_a_config_map_has_no_generation(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    assert "generation" not in (await api.patch(CONFIG_MAPS, "a", {"data": {"k": "v"}}))["metadata"]


async def test_an_object_may_be_replaced_without_naming_a_version(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    replaced = await api.replace(CONFIG_MAPS, config_map("a", {"other": "w"}))
    assert replaced["data"] == {"other": "w"}
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]
    assert replaced["metadata"]["creationTimestamp"] == created["metadata"]["creationTimestamp"]


async def test_the_same_name_can_be_used_again_and_is_another_object(api: Api) -> None:
    first = await api.create(CONFIG_MAPS, config_map("a"))
    await api.delete(CONFIG_MAPS, "a")
    second = await api.create(CONFIG_MAPS, config_map("a"))
    assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert version_of(second) > version_of(first)


async def test_two_namespaces_hold_two_objects_of_one_name(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"k": "here"}))
    await api.client.create(CONFIG_MAPS, config_map(api.namespace, {"k": "there"}), namespace="default")
    assert (await api.get(CONFIG_MAPS, "a"))["data"] == {"k": "here"}
    elsewhere = await api.client.list(CONFIG_MAPS, field_selector=f"metadata.name={api.namespace}")
    assert [(found["metadata"]["namespace"], found["data"]) for found in elsewhere["items"]] == [("default", {"k": "there"})]
