"""Deleting: what the answer says, and what is left."""

from __future__ import annotations

from dlop.kube.client import Propagation
from dlop.kube.errors import BadRequestError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES, SECRETS, SERVICES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, lease, service
from tests.conformance.definitions import WIDGETS, widget
from tests.conformance.support import Api, decoded, failure, refused


async def test_a_delete_answers_with_what_it_deleted(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    details = {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert await api.delete(CONFIG_MAPS, "a") == success
    error = await refused(api.get(CONFIG_MAPS, "a"), NotFoundError)
    assert error.status == failure(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


async def test_a_delete_of_a_custom_object_answers_with_its_group(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    details = {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets", "uid": created["metadata"]["uid"]}
    assert (await api.delete(WIDGETS, "a"))["details"] == details


async def test_a_service_is_answered_as_it_was(api: Api) -> None:
    created = await api.create(SERVICES, service("a"))
    answer = await api.delete(SERVICES, "a")
    assert (answer["kind"], answer["metadata"]["uid"]) == ("Service", created["metadata"]["uid"])


async def test_a_second_delete_is_not_found(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    await api.delete(CONFIG_MAPS, "a")
    error = await refused(api.delete(CONFIG_MAPS, "a"), NotFoundError)
    assert error.details == {"name": "a", "kind": "configmaps"}


async def test_deleting_a_collection_deletes_what_the_selector_matches(api: Api) -> None:
    for name, group in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.create(LEASES, lease(name, labels={"group": group}))
    answer = await api.client.delete_collection(LEASES, namespace=api.namespace, label_selector="group=x")
    assert answer["kind"] == "LeaseList"
    assert [each["metadata"]["name"] for each in answer["items"]] == ["a", "b"]
    assert await api.names(LEASES) == ["c"]


async def test_deleting_a_collection_by_field(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(LEASES, lease(name))
    await api.client.delete_collection(LEASES, namespace=api.namespace, field_selector="metadata.name=a")
    assert await api.names(LEASES) == ["b"]


async def test_deleting_a_collection_tells_each_deletion_to_watchers(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(LEASES, lease(name))
    async with api.watching(LEASES) as watch:
        await api.client.delete_collection(LEASES, namespace=api.namespace)
        found = [await watch.next() for _ in range(2)]
    assert {(kind, last["metadata"]["name"]) for kind, last in found} == {(WatchEventType.DELETED, "a"), (WatchEventType.DELETED, "b")}


async def test_deleting_an_empty_collection_is_no_error(api: Api) -> None:
    answer = await api.client.delete_collection(SECRETS, namespace=api.namespace)
    assert (answer["kind"], answer["items"]) == ("SecretList", [])


async def test_a_delete_without_a_body_deletes(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    answer = await api.client.call("DELETE", api.path(CONFIG_MAPS, "a"))
    assert decoded(answer)["status"] == "Success"
    assert await api.find(CONFIG_MAPS, "a") is None


async def test_a_delete_that_says_how_in_its_address_deletes_so(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", finalizers=["example.org/hold"]))
    query = (("propagationPolicy", str(Propagation.FOREGROUND)), ("dryRun", "All"))
    answer = decoded(await api.client.call("DELETE", api.path(CONFIG_MAPS, "a"), query=query))
    assert "deletionTimestamp" in answer["metadata"]
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_delete_with_an_unknown_propagation_is_invalid(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Sideways"}
    error = await refused(api.client.call("DELETE", api.path(CONFIG_MAPS, "a"), body=body), InvalidError)
    message = 'Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"'
    assert error.causes == [{"reason": "FieldValueNotSupported", "message": message, "field": "propagationPolicy"}]
    assert error.details["kind"] == "DeleteOptions"


async def test_a_delete_whose_body_is_something_else_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await refused(api.client.call("DELETE", api.path(CONFIG_MAPS, "a"), body=config_map("a")), BadRequestError)
    assert error.status_reason == "BadRequest"
    assert await api.find(CONFIG_MAPS, "a") is not None
