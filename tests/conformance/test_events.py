"""Events: the core API and the events.k8s.io API serve the same objects."""

from __future__ import annotations

from dlop.kube.errors import InvalidError
from dlop.kube.resources import CORE_EVENTS, EVENTS
from dlop.kube.watch import WatchEventType
from tests.conformance.bodies import core_event, events_api_event
from tests.conformance.support import Api, expect_error, resource_version_of


async def test_an_event_of_the_core_api_can_be_read_through_the_events_api(api: Api) -> None:
    created = await api.create(CORE_EVENTS, core_event("a", api.namespace))
    event = await api.get(EVENTS, "a")
    assert (event["apiVersion"], event["metadata"]["uid"]) == ("events.k8s.io/v1", created["metadata"]["uid"])
    assert (event["regarding"], event["note"]) == (created["involvedObject"], "it runs")
    assert event["deprecatedSource"] == {"component": "tests", "host": "here"}
    assert (event["deprecatedCount"], event["deprecatedFirstTimestamp"]) == (3, "2026-01-01T00:00:00Z")


async def test_an_event_of_the_events_api_can_be_read_through_the_core_api(api: Api) -> None:
    created = await api.create(EVENTS, events_api_event("a", api.namespace))
    event = await api.get(CORE_EVENTS, "a")
    assert (event["apiVersion"], resource_version_of(event)) == ("v1", resource_version_of(created))
    assert (event["involvedObject"], event["message"]) == (created["regarding"], "it runs")
    assert (event["reportingComponent"], event["reportingInstance"]) == ("example.org/tests", "tests-0")


async def test_both_apis_list_the_same_events(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event("a", api.namespace))
    await api.create(EVENTS, events_api_event("b", api.namespace))
    assert await api.list_names(CORE_EVENTS) == await api.list_names(EVENTS) == ["a", "b"]


async def test_an_event_can_be_deleted_through_the_other_api(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event("a", api.namespace))
    await api.delete(EVENTS, "a")
    assert await api.get_or_none(CORE_EVENTS, "a") is None


async def test_a_watch_of_the_events_api_receives_core_events(api: Api) -> None:
    async with api.watch(EVENTS) as watch:
        await api.create(CORE_EVENTS, core_event("a", api.namespace))
        event_type, event = await watch.next()
    assert (event_type, event["apiVersion"], event["note"]) == (WatchEventType.ADDED, "events.k8s.io/v1", "it runs")


async def test_events_can_be_selected_by_their_involved_object(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event("a", api.namespace))
    other_event = core_event("b", api.namespace)
    other_event["involvedObject"]["name"] = "q"
    await api.create(CORE_EVENTS, other_event)
    assert await api.list_names(CORE_EVENTS, field_selector="involvedObject.name=q,involvedObject.kind=Pod") == ["b"]
    assert await api.list_names(CORE_EVENTS, field_selector="involvedObject.uid=u-1,reason=Started,type=Normal") == ["a", "b"]


async def test_the_count_of_an_event_can_be_updated(api: Api) -> None:
    await api.create(CORE_EVENTS, core_event("a", api.namespace))
    patched = await api.patch(CORE_EVENTS, "a", {"count": 4, "lastTimestamp": "2026-01-01T00:01:00Z"})
    assert (patched["count"], patched["lastTimestamp"]) == (4, "2026-01-01T00:01:00Z")


async def test_an_event_must_be_in_the_namespace_of_its_involved_object(api: Api) -> None:
    event = core_event("a", api.namespace)
    event["involvedObject"]["namespace"] = "default"
    error = await expect_error(api.create(CORE_EVENTS, event), InvalidError)
    assert [cause["field"] for cause in error.causes] == ["involvedObject.namespace"]
    assert "does not match event.namespace" in str(error)


async def test_an_event_of_the_events_api_needs_a_controller_and_an_action(api: Api) -> None:
    event = events_api_event("a", api.namespace)
    del event["reportingController"], event["action"]
    error = await expect_error(api.create(EVENTS, event), InvalidError)
    assert {cause["field"] for cause in error.causes} == {"reportingController", "action"}
