"""Tables: what `kubectl get` shows."""

from __future__ import annotations

from typing import Any

from dlop.kube.errors import BadRequestError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES, Resource
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, custom, pod, service
from tests.conformance.definitions import PLAIN, SHOWN
from tests.conformance.support import Api, decoded, refused

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


async def table(api: Api, resource: Resource, name: str | None = None, **query: str) -> JsonObject:
    return decoded(await api.client.call("GET", api.path(resource, name), query=tuple(query.items()), accept=TABLE))


def columns(found: JsonObject) -> list[tuple[str, str, int]]:
    return [(each["name"], each["type"], each["priority"]) for each in found["columnDefinitions"]]


def cells(found: JsonObject) -> list[dict[str, Any]]:
    names = [each["name"] for each in found["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in found["rows"]]


async def shown(api: Api) -> None:
    await api.create(SHOWN, custom(SHOWN, "a", spec={"size": 3, "detail": "more"}))
    status = {"phase": "Fine", "conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]}
    await api.patch(SHOWN, "a", {"status": status}, subresource="status")


async def test_a_list_of_pods_as_a_table(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.patch(PODS, "a", {"status": {"phase": "Running", "podIP": "10.1.2.3"}}, subresource="status")
    found = await table(api, PODS)
    assert (found["kind"], found["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(name, priority) for name, _, priority in columns(found)] == [
        ("Name", 0),
        ("Ready", 0),
        ("Status", 0),
        ("Restarts", 0),
        ("Age", 0),
        ("IP", 1),
        ("Node", 1),
        ("Nominated Node", 1),
        ("Readiness Gates", 1),
    ]
    row = cells(found)[0]
    chosen = ("Name", "Ready", "Status", "Restarts", "IP", "Node", "Nominated Node", "Readiness Gates")
    assert [str(row[name]) for name in chosen] == ["a", "0/1", "Running", "0", "10.1.2.3", "one", "<none>", "<none>"]


async def test_a_pod_that_is_ending_shows_so(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.delete(PODS, "a")
    assert cells(await table(api, PODS, "a"))[0]["Status"] == "Terminating"


async def test_a_pod_shows_why_its_container_ended(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    ended = {
        "name": "main",
        "ready": False,
        "restartCount": 2,
        "image": "none",
        "imageID": "",
        "state": {"terminated": {"exitCode": 1, "reason": "OOMKilled"}},
    }
    await api.patch(PODS, "a", {"status": {"phase": "Failed", "containerStatuses": [ended]}}, subresource="status")
    row = cells(await table(api, PODS, "a"))[0]
    assert (row["Ready"], row["Status"]) == ("0/1", "OOMKilled")


async def test_config_maps_services_and_namespaces_as_tables(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"x": "1", "y": "2"}))
    await api.create(SERVICES, service("a"))
    row = cells(await table(api, CONFIG_MAPS, "a"))[0]
    assert (row["Name"], row["Data"]) == ("a", 2)
    row = cells(await table(api, SERVICES, "a"))[0]
    assert (row["Type"], row["Cluster-IP"], row["External-IP"], row["Port(s)"], row["Selector"]) == (
        "ClusterIP",
        "None",
        "<none>",
        "80/TCP",
        "app=a",
    )
    assert cells(await table(api, NAMESPACES, api.namespace))[0]["Status"] == "Active"


async def test_a_custom_resource_shows_its_printer_columns(api: Api) -> None:
    await shown(api)
    found = await table(api, SHOWN)
    assert columns(found) == [
        ("Name", "string", 0),
        ("Phase", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Detail", "string", 1),
        ("Age", "date", 0),
    ]
    row = cells(found)[0]
    assert {name: row[name] for name in ("Name", "Phase", "Size", "Ready", "Detail")} == {
        "Name": "a",
        "Phase": "Fine",
        "Size": 3,
        "Ready": "True",
        "Detail": "more",
    }
    assert found["columnDefinitions"][1]["description"] == "How it goes."


async def test_a_column_without_a_value_is_empty(api: Api) -> None:
    await shown(api)
    await api.create(SHOWN, custom(SHOWN, "b", spec={}))
    row = cells(await table(api, SHOWN, "b"))[0]
    assert [row[name] for name in ("Phase", "Size", "Detail")] == [None, None, None]


async def test_a_custom_resource_without_columns_shows_name_and_age(api: Api) -> None:
    await api.create(PLAIN, custom(PLAIN, "a"))
    found = await table(api, PLAIN)
    assert columns(found) == [("Name", "string", 0), ("Age", "date", 0)]
    assert cells(found)[0]["Name"] == "a"


async def test_a_row_carries_the_metadata_unless_asked_for_more_or_less(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    usual = (await table(api, CONFIG_MAPS, "a"))["rows"][0]["object"]
    assert (usual["kind"], usual["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert usual["metadata"]["uid"] == created["metadata"]["uid"]
    assert "data" not in usual
    assert (await table(api, CONFIG_MAPS, "a", includeObject="Object"))["rows"][0]["object"]["data"] == {"k": "v"}
    assert (await table(api, CONFIG_MAPS, "a", includeObject="None"))["rows"][0]["object"] is None


async def test_a_table_of_objects_must_be_of_a_known_kind(api: Api) -> None:
    error = await refused(table(api, CONFIG_MAPS, includeObject="Bogus"), BadRequestError)
    assert "must be 'Metadata', 'Object', 'None', or empty" in str(error)


async def test_a_table_has_the_version_and_the_pages_of_its_list(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create(CONFIG_MAPS, config_map(name, labels={"x": "y"}))
    found = await table(api, CONFIG_MAPS, limit="2")
    assert len(found["rows"]) == 2
    rest = await table(api, CONFIG_MAPS, **{"continue": found["metadata"]["continue"]})
    assert "c" in [row["Name"] for row in cells(rest)]
    assert rest["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


async def test_what_is_not_there_is_not_found_as_a_table_too(api: Api) -> None:
    error = await refused(table(api, CONFIG_MAPS, "a"), NotFoundError)
    assert (error.status["kind"], str(error)) == ("Status", 'configmaps "a" not found')


async def test_a_watch_can_be_a_stream_of_tables(api: Api) -> None:
    await shown(api)
    async with api.streamed(SHOWN, accept=TABLE) as watch:
        kind, found = await watch.next()
    assert (kind, found["kind"], cells(found)[0]["Phase"]) == (WatchEventType.ADDED, "Table", "Fine")
