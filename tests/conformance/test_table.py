"""The Table representation that `kubectl get` uses."""

from __future__ import annotations

from dlop.kube.errors import BadRequestError, NotFoundError
from dlop.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, SERVICES
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import config_map, object_of, pod, service
from tests.conformance.crds import GAUGES, NOTES
from tests.conformance.support import Api, expect_error, over_https
from tests.conformance.tables import TABLE, columns, create_gauge, get_table, rows

pytestmark = over_https(reason="the Accept header selects the representation of responses and watch streams")


async def test_a_list_of_pods_as_a_table(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.patch(PODS, "a", {"status": {"phase": "Running", "podIP": "10.1.2.3"}}, subresource="status")
    table = await get_table(api, PODS)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(name, priority) for name, _, priority in columns(table)] == [
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
    row = rows(table)[0]
    names = ("Name", "Ready", "Status", "Restarts", "IP", "Node", "Nominated Node", "Readiness Gates")
    assert [str(row[name]) for name in names] == ["a", "0/1", "Running", "0", "10.1.2.3", "one", "<none>", "<none>"]


async def test_a_terminating_pod_has_the_status_terminating(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    await api.delete(PODS, "a")
    assert rows(await get_table(api, PODS, "a"))[0]["Status"] == "Terminating"


async def test_the_status_of_a_pod_is_the_termination_reason_of_its_container(api: Api) -> None:
    await api.create(PODS, pod("a", node="one"))
    container_status = {
        "name": "main",
        "ready": False,
        "restartCount": 2,
        "image": "none",
        "imageID": "",
        "state": {"terminated": {"exitCode": 1, "reason": "OOMKilled"}},
    }
    await api.patch(PODS, "a", {"status": {"phase": "Failed", "containerStatuses": [container_status]}}, subresource="status")
    row = rows(await get_table(api, PODS, "a"))[0]
    assert (row["Ready"], row["Status"]) == ("0/1", "OOMKilled")


async def test_config_maps_services_and_namespaces_as_tables(api: Api) -> None:
    await api.create(CONFIG_MAPS, config_map("a", {"x": "1", "y": "2"}))
    await api.create(SERVICES, service("a"))
    row = rows(await get_table(api, CONFIG_MAPS, "a"))[0]
    assert (row["Name"], row["Data"]) == ("a", 2)
    row = rows(await get_table(api, SERVICES, "a"))[0]
    assert (row["Type"], row["Cluster-IP"], row["External-IP"], row["Port(s)"], row["Selector"]) == (
        "ClusterIP",
        "None",
        "<none>",
        "80/TCP",
        "app=a",
    )
    assert rows(await get_table(api, NAMESPACES, api.namespace))[0]["Status"] == "Active"


async def test_a_custom_resource_has_its_printer_columns(api: Api) -> None:
    await create_gauge(api)
    table = await get_table(api, GAUGES)
    assert columns(table) == [
        ("Name", "string", 0),
        ("Phase", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Detail", "string", 1),
        ("Age", "date", 0),
    ]
    row = rows(table)[0]
    assert {name: row[name] for name in ("Name", "Phase", "Size", "Ready", "Detail")} == {
        "Name": "a",
        "Phase": "Fine",
        "Size": 3,
        "Ready": "True",
        "Detail": "more",
    }
    assert table["columnDefinitions"][1]["description"] == "Current phase."


async def test_a_column_without_a_value_is_empty(api: Api) -> None:
    await create_gauge(api)
    await api.create(GAUGES, object_of(GAUGES, "b", spec={}))
    row = rows(await get_table(api, GAUGES, "b"))[0]
    assert [row[name] for name in ("Phase", "Size", "Detail")] == [None, None, None]


async def test_a_custom_resource_without_printer_columns_has_name_and_age(api: Api) -> None:
    await api.create(NOTES, object_of(NOTES, "a"))
    table = await get_table(api, NOTES)
    assert columns(table) == [("Name", "string", 0), ("Age", "date", 0)]
    assert rows(table)[0]["Name"] == "a"


async def test_include_object_selects_the_object_in_each_row(api: Api) -> None:
    created = await api.create(CONFIG_MAPS, config_map("a", {"k": "v"}))
    default = (await get_table(api, CONFIG_MAPS, "a"))["rows"][0]["object"]
    assert (default["kind"], default["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert default["metadata"]["uid"] == created["metadata"]["uid"]
    assert "data" not in default
    assert (await get_table(api, CONFIG_MAPS, "a", includeObject="Object"))["rows"][0]["object"]["data"] == {"k": "v"}
    assert (await get_table(api, CONFIG_MAPS, "a", includeObject="None"))["rows"][0]["object"] is None


async def test_an_unknown_include_object_value_is_a_bad_request(api: Api) -> None:
    error = await expect_error(get_table(api, CONFIG_MAPS, includeObject="Bogus"), BadRequestError)
    assert "must be 'Metadata', 'Object', 'None', or empty" in str(error)


async def test_a_table_can_be_paged(api: Api) -> None:
    for name in ("a", "b", "c"):
        await api.create(CONFIG_MAPS, config_map(name, labels={"x": "y"}))
    first = await get_table(api, CONFIG_MAPS, limit="2")
    assert len(first["rows"]) == 2
    second = await get_table(api, CONFIG_MAPS, **{"continue": first["metadata"]["continue"]})
    assert "c" in [row["Name"] for row in rows(second)]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_a_table_of_a_missing_object_is_not_found(api: Api) -> None:
    error = await expect_error(get_table(api, CONFIG_MAPS, "a"), NotFoundError)
    assert (error.status["kind"], str(error)) == ("Status", 'configmaps "a" not found')


async def test_a_watch_can_be_a_stream_of_tables(api: Api) -> None:
    await create_gauge(api)
    async with api.watch_as(GAUGES, accept=TABLE) as watch:
        event_type, table = await watch.next()
    assert (event_type, table["kind"], rows(table)[0]["Phase"]) == (WatchEventType.ADDED, "Table", "Fine")
