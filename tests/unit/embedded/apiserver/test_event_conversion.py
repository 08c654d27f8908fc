"""One event under two names: nothing is lost on the way from one to the other and back."""

from __future__ import annotations

from dlop.embedded.apiserver.core.events import event_types, from_core, to_core
from dlop.embedded.apiserver.resource_type import Moment
from dlop.kube.types import JsonObject

ABOUT = {"kind": "Pod", "namespace": "default", "name": "p"}
OLD: JsonObject = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "involvedObject": ABOUT,
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
NEW: JsonObject = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e"},
    "regarding": ABOUT,
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


def row(body: JsonObject, *, of_group: str) -> list[object]:
    (served,) = [each for each in event_types() if each.resource.group == of_group]
    return [column.cell(body, Moment(1_767_268_800.0)) for column in served.columns]


def test_a_core_event_has_its_old_fields_under_their_deprecated_names() -> None:
    assert from_core(OLD) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "regarding": ABOUT,
        "reason": "Started",
        "note": " hello \n",
        "deprecatedSource": {"component": "kubelet", "host": "one"},
        "deprecatedFirstTimestamp": "2026-01-01T11:00:00Z",
        "deprecatedLastTimestamp": "2026-01-01T11:59:00Z",
        "deprecatedCount": 7,
        "type": "Normal",
        "eventTime": None,
    }


def test_there_and_back_is_the_same_event() -> None:
    assert to_core(from_core(OLD)) == OLD
    assert from_core(to_core(NEW)) == NEW


def test_both_names_show_the_same_row() -> None:
    core = ["60s", "Normal", "Started", "pod/p", "", "kubelet, one", "hello", "60m", 7, "e"]
    assert row(OLD, of_group="") == core
    assert row(from_core(OLD), of_group="events.k8s.io") == core


def test_a_series_counts_and_dates_an_event() -> None:
    source = "example.org/controller, controller-1"
    assert row(NEW, of_group="events.k8s.io") == ["2m", "Warning", "Started", "pod/p", "", source, "hello", "30m", 3, "e"]
