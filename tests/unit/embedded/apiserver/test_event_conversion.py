"""Conversion between core and events.k8s.io events."""

from __future__ import annotations

from dlop.embedded.apiserver.core.events import event_types, from_core_event, to_core_event
from dlop.embedded.apiserver.resource_type import Timestamp
from dlop.kube.types import JsonObject

POD_REFERENCE = {"kind": "Pod", "namespace": "default", "name": "p"}
CORE_EVENT: JsonObject = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "involvedObject": POD_REFERENCE,
    "reason": "Started",
    "message": " hello \n",
    "source": {"component": "kubelet", "host": "one"},
    "firstTimestamp": "2026-01-01T11:00:00Z",
    "lastTimestamp": "2026-01-01T11:59:00Z",
    "count": 7,
    "type": "Normal",
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
NEW_EVENT: JsonObject = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "regarding": POD_REFERENCE,
    "reason": "Started",
    "note": "hello",
    "type": "Warning",
    "action": "Start",
    "eventTime": "2026-01-01T11:30:00.000000Z",
    "series": {"count": 3, "lastObservedTime": "2026-01-01T11:58:00.000000Z"},
    "reportingController": "example.org/controller",
    "reportingInstance": "controller-1",
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}


def row(body: JsonObject, *, group: str) -> list[object]:
    (event_type,) = [candidate for candidate in event_types() if candidate.resource.group == group]
    return [column.cell(body, Timestamp(1_767_268_800.0)) for column in event_type.columns]


def test_core_fields_have_deprecated_names_in_events_k8s_io() -> None:
    assert from_core_event(CORE_EVENT) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": POD_REFERENCE,
        "reason": "Started",
        "note": " hello \n",
        "deprecatedSource": {"component": "kubelet", "host": "one"},
        "deprecatedFirstTimestamp": "2026-01-01T11:00:00Z",
        "deprecatedLastTimestamp": "2026-01-01T11:59:00Z",
        "deprecatedCount": 7,
        "type": "Normal",
        "eventTime": None,
    }


def test_a_round_trip_gives_the_same_event() -> None:
    assert to_core_event(from_core_event(CORE_EVENT)) == CORE_EVENT
    assert from_core_event(to_core_event(NEW_EVENT)) == NEW_EVENT


def test_both_apis_have_the_same_table_row() -> None:
    core = ["60s", "Normal", "Started", "pod/p", "", "kubelet, one", "hello", "60m", 7, "e"]
    assert row(CORE_EVENT, group="") == core
    assert row(from_core_event(CORE_EVENT), group="events.k8s.io") == core


def test_a_series_sets_count_and_last_seen() -> None:
    source = "example.org/controller, controller-1"
    assert row(NEW_EVENT, group="events.k8s.io") == ["2m", "Warning", "Started", "pod/p", "", source, "hello", "30m", 3, "e"]
