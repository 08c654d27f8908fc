"""Responses of delete requests and delete options."""

from __future__ import annotations

from dlop.kube.client import Propagation
from dlop.kube.errors import BadRequestError, InvalidError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, LEASES, SECRETS, SERVICES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, lease, service
from tests.conformance.crds import WIDGETS, widget
from tests.conformance.support import Api, decode_json, expect_error, failure_status, over_https
from tests.kubernetes_versions import since

pytestmark = over_https(reason="delete options are in the body or in the query string")


async def test_a_delete_returns_a_status_with_the_deleted_object(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a"))
    details = {"name": "a", "kind": "configmaps", "uid": created["metadata"]["uid"]}
    success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    assert await api.delete(CONFIG_MAPS, "a") == success
    error = await expect_error(api.get(CONFIG_MAPS, "a"), NotFoundError)
    assert error.status == failure_status(404, "NotFound", 'configmaps "a" not found', {"name": "a", "kind": "configmaps"})


async def test_a_delete_of_a_custom_object_returns_its_group(api: Api) -> None:
    created = await api.create(WIDGETS, widget("a"))
    details = {"name": "a", "group": "conformance.dlop.dev", "kind": "widgets", "uid": created["metadata"]["uid"]}
    assert (await api.delete(WIDGETS, "a"))["details"] == details


async def test_a_delete_of_a_service_returns_the_service(api: Api) -> None:
    created = await api.create(SERVICES, service("a"))
    response = await api.delete(SERVICES, "a")
    assert (response["kind"], response["metadata"]["uid"]) == ("Service", created["metadata"]["uid"])


async def test_a_second_delete_is_not_found(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    await api.delete(CONFIG_MAPS, "a")
    error = await expect_error(api.delete(CONFIG_MAPS, "a"), NotFoundError)
    assert error.details == {"name": "a", "kind": "configmaps"}


async def test_deleting_a_collection_deletes_the_selected_objects(api: Api) -> None:
    for name, group in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.create(LEASES, lease(name, labels={"group": group}))
    response = await api.client.delete_collection(LEASES, namespace=api.namespace, label_selector="group=x")
    assert response["kind"] == "LeaseList"
    assert [item["metadata"]["name"] for item in response["items"]] == ["a", "b"]
    assert await api.list_names(LEASES) == ["c"]


async def test_deleting_a_collection_by_field_selector(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(LEASES, lease(name))
    await api.client.delete_collection(LEASES, namespace=api.namespace, field_selector="metadata.name=a")
    assert await api.list_names(LEASES) == ["b"]


async def test_deleting_a_collection_sends_a_watch_event_for_each_object(api: Api) -> None:
    for name in ("a", "b"):
        await api.create(LEASES, lease(name))
    async with api.watch(LEASES) as watch:
        await api.client.delete_collection(LEASES, namespace=api.namespace)
        events = [await watch.next() for _ in range(2)]
    assert {(event_type, last["metadata"]["name"]) for event_type, last in events} == {
        (WatchEventType.DELETED, "a"),
        (WatchEventType.DELETED, "b"),
    }


async def test_deleting_an_empty_collection_succeeds(api: Api) -> None:
    response = await api.client.delete_collection(SECRETS, namespace=api.namespace)
    assert (response["kind"], response["items"]) == ("SecretList", [])


async def test_a_delete_needs_no_body(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    response = await api.client.call("DELETE", api.path(CONFIG_MAPS, "a"))
    assert decode_json(response)["status"] == "Success"
    assert await api.get_or_none(CONFIG_MAPS, "a") is None


async def test_delete_options_can_be_query_parameters(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", finalizers=["example.org/hold"]))
    query = (("propagationPolicy", str(Propagation.FOREGROUND)), ("dryRun", "All"))
    response = decode_json(await api.client.call("DELETE", api.path(CONFIG_MAPS, "a"), query=query))
    assert "deletionTimestamp" in response["metadata"]
    assert await api.get(CONFIG_MAPS, "a") == created


async def test_a_delete_with_an_unknown_propagation_policy_is_invalid(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Sideways"}
    error = await expect_error(api.client.call("DELETE", api.path(CONFIG_MAPS, "a"), body=body), InvalidError)
    message = 'Unsupported value: "Sideways": supported values: "Foreground", "Background", "Orphan", "nil"'
    assert error.causes == [{"reason": "FieldValueNotSupported", "message": message, "field": "propagationPolicy"}]
    assert error.details["kind"] == "DeleteOptions"


@since("1.35", reason="older servers return 500")
async def test_a_delete_whose_body_is_not_delete_options_is_a_bad_request(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a"))
    error = await expect_error(api.client.call("DELETE", api.path(CONFIG_MAPS, "a"), body=config_map("a")), BadRequestError)
    assert error.status_reason == "BadRequest"
    assert await api.get_or_none(CONFIG_MAPS, "a") is not None
