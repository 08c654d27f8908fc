"""Events: two APIs, one set of objects."""

from __future__ import annotations

from dlop.kube.errors import InvalidError
from dlop.kube.resources import CORE_EVENTS, EVENTS
from dlop.kube.types import JsonObject
from dlop.kube.watch import WatchEventType
from tests.conformance.support import Api, refused, version_of


def core_event(api: Api, name: str) -> JsonObject:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": api.namespace, "uid": "u-1"}
    event: JsonObject = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": api.namespace}}
    event |= {"involvedObject": about, "reason": "Started", "message": "it runs", "type": "Normal", "count": 3}
    return event | {"source": {"component": "tests", "host": "here"}, "firstTimestamp": "2026-01-01T00:00:00Z"}


def new_event(api: Api, name: str) -> JsonObject:
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": api.namespace}
    event: JsonObject = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": name}}
    event |= {"eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.org/tests", "reportingInstance": "tests-0"}
    return event | {"action": "Start", "reason": "Started", "note": "it runs", "type": "Normal", "regarding": about}


async def test_an_event_of_the_core_api_is_read_through_the_new_one(api: Api) -> None:
    created = await api.create(CORE_EVENTS, core_event(api, "a"))
    found = await api.get(EVENTS, "a")
    assert (found["apiVersion"], found["metadata"]["uid"]) == ("events.k8s.io/v1", created["metadata"]["uid"])
    assert (found["regarding"], found["note"]) == (created["involvedObject"], "it runs")
    assert found["deprecatedSource"] == {"component": "tests", "host": "here"}
    assert (found["deprecatedCount"], found["deprecatedFirstTimestamp"]) == (3, "2026-01-01T00:00:00Z")


async def test_an_event_of_the_new_api_is_read_through_the_core_one(api: Api) -> None:
    created = await api.create(EVENTS, new_event(api, "a"))
    found = await api.get(CORE_EVENTS, "a")
    assert (found["apiVersion"], version_of(found)) == ("v1", version_of(created))
    assert (found["involvedObject"], found["message"]) == (created["regarding"], "it runs")
    assert (found["reportingComponent"], found["reportingInstance"]) == ("example.org/tests", "tests-0")


async def test_both_apis_list_the_same_events(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event(api, "a"))
    await api.create(EVENTS, new_event(api, "b"))
    assert await api.names(CORE_EVENTS) == await api.names(EVENTS) == ["a", "b"]


async def test_an_event_that_is_deleted_through_one_api_is_gone_from_the_other(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event(api, "a"))
    await api.delete(EVENTS, "a")
    assert await api.find(CORE_EVENTS, "a") is None


async def test_a_watch_of_one_api_sees_events_of_the_other(api: Api) -> None:
    async with api.watching(EVENTS) as watch:
        await api.create(CORE_EVENTS, core_event(api, "a"))
        kind, found = await watch.next()
    assert (kind, found["apiVersion"], found["note"]) == (WatchEventType.ADDED, "events.k8s.io/v1", "it runs")


async def test_events_are_found_by_what_they_are_about(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event(api, "a"))
    other = core_event(api, "b")
    other["involvedObject"]["name"] = "q"
    await api.create(CORE_EVENTS, other)
    assert await api.names(CORE_EVENTS, field_selector="involvedObject.name=q,involvedObject.kind=Pod") == ["b"]
    assert await api.names(CORE_EVENTS, field_selector="involvedObject.uid=u-1,reason=Started,type=Normal") == ["a", "b"]


async def test_an_event_counts_on(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event(api, "a"))
    patched = await api.patch(CORE_EVENTS, "a", {"count": 4, "lastTimestamp": "2026-01-01T00:01:00Z"})
    assert (patched["count"], patched["lastTimestamp"]) == (4, "2026-01-01T00:01:00Z")


async def test_an_event_belongs_to_the_namespace_of_what_it_is_about(api: Api) -> None:
    event = core_event(api, "a")
    event["involvedObject"]["namespace"] = "default"
    error = await refused(api.create(CORE_EVENTS, event), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["involvedObject.namespace"]
    assert "does not match event.namespace" in str(error)


async def test_a_new_event_needs_a_controller_and_an_action(api: Api) -> None:
    event = new_event(api, "a")
    del event["reportingController"], event["action"]
    error = await refused(api.create(EVENTS, event), InvalidError)
    assert {cause["field"] for cause in error.causes} == {"reportingController", "action"}
