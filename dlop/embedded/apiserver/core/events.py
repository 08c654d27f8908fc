"""Events, served as core `v1` and as `events.k8s.io/v1`, and stored as core events."""

from __future__ import annotations

from collections.abc import Mapping

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.api_errors import invalid as invalid_object
from dlop.embedded.apiserver.core.base import BuiltinStrategy, builtin_type, column, get_nested, invalid, required
from dlop.embedded.apiserver.name_validation import qualified_name_errors
from dlop.embedded.apiserver.resource_type import ResourceType, TableColumn, Timestamp
from dlop.kube.resources import CORE_EVENTS, EVENTS
from dlop.kube.types import JsonObject

_CORE, _NEW = "core.v1.Event", "events.v1.Event"
# Core field names and the events.k8s.io names. All other names are the same.
_NEW_NAMES: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES: Mapping[str, str] = {new: core for core, new in _NEW_NAMES.items()}
# Core events have these fields even if empty; events.k8s.io omits empty ones.
_EMPTY_IN_CORE: Mapping[str, str] = {"reportingComponent": "", "reportingInstance": ""}
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_IMMUTABLE = ("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime", "action")


def to_core_event(body: JsonObject) -> JsonObject:
    """Convert an events.k8s.io event to a core event."""
    renamed = {_CORE_NAMES.get(field, field): value for field, value in body.items()}
    return {**_EMPTY_IN_CORE, **renamed, "apiVersion": CORE_EVENTS.api_version}


def from_core_event(body: JsonObject) -> JsonObject:
    """Convert a core event to an events.k8s.io event."""
    kept = {field: value for field, value in body.items() if value != "" or field not in _EMPTY_IN_CORE}
    return {**{_NEW_NAMES.get(field, field): value for field, value in kept.items()}, "apiVersion": EVENTS.api_version}


class _EventStrategy(BuiltinStrategy):
    """Strategy of both APIs. `strict` applies the additional validation of events.k8s.io."""

    def __init__(self, go_type: str, *, strict: bool) -> None:
        super().__init__(go_type)
        self._strict = strict

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        if not self._strict:
            return _legacy_errors(body, "reportingComponent")
        event = to_core_event(body)
        errors = _legacy_errors(event, "reportingController")
        errors += _strict_create_errors(event) if old is None else _strict_update_errors(event, to_core_event(old))
        if errors:
            # kube-apiserver reports errors for core events in both APIs.
            raise invalid_object(CORE_EVENTS, body["metadata"].get("name", ""), errors)
        return []


def _legacy_errors(event: JsonObject, controller: str) -> list[FieldError]:
    namespace, object_namespace = event["metadata"].get("namespace", ""), get_nested(event, "involvedObject", "namespace") or ""
    mismatch = [invalid("involvedObject.namespace", object_namespace, "does not match event.namespace")]
    if not event.get("eventTime"):
        matches = namespace == object_namespace or (not object_namespace and namespace == "default")
        return [] if matches else mismatch
    errors = [] if object_namespace or namespace in ("default", "kube-system") else mismatch
    if not event.get("reportingComponent"):
        errors.append(required(controller))
    errors += [invalid(controller, event["reportingComponent"], detail) for detail in qualified_name_errors(event["reportingComponent"])]
    for field, limit in _LIMITS.items():
        text = event.get(field) or ""
        if not text and field != "message":
            errors.append(required(field))
        if len(text.encode()) > limit:
            errors.append(invalid(field, "", f"can have at most {limit} characters"))
    return errors


def _strict_create_errors(event: JsonObject) -> list[FieldError]:
    errors = _series_errors(event)
    if not event.get("eventTime"):
        errors.append(required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    unset = [field for field in ("firstTimestamp", "lastTimestamp", "count", "source") if event.get(field)]
    return errors + [invalid(field, "", "needs to be unset") for field in unset]


def _strict_update_errors(event: JsonObject, old: JsonObject) -> list[FieldError]:
    errors = _series_errors(event) if event.get("series") != old.get("series") else []
    for field in (*_IMMUTABLE, "related", "reportingComponent", "reportingInstance"):
        if (event.get(field) or None) != (old.get(field) or None):
            errors.append(invalid(_NEW_NAMES[field] if field == "reportingComponent" else field, event.get(field), "field is immutable"))
    return errors


def _series_errors(event: JsonObject) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    errors = [invalid("series.count", "", "should be at least 2")] if series.get("count", 0) < 2 else []
    return errors if series.get("lastObservedTime") else [*errors, required("series.lastObservedTime")]


def _first_seen(event: JsonObject, now: Timestamp) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: JsonObject, now: Timestamp) -> str:
    if series := event.get("series"):
        return age(series.get("lastObservedTime"), now)
    return age(event["lastTimestamp"], now) if event.get("lastTimestamp") else _first_seen(event, now)


def _object(event: JsonObject) -> str:
    reference = event.get("involvedObject") or {}
    kind = str(reference.get("kind", "")).lower()
    return f"{kind}/{reference['name']}" if reference.get("name") else kind


def _source(event: JsonObject) -> str:
    component = get_nested(event, "source", "component") or event.get("reportingComponent") or ""
    instance = get_nested(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _count(event: JsonObject) -> int:
    return int(get_nested(event, "series", "count") or event.get("count") or 1)


_COLUMNS = (
    TableColumn(name="Last Seen", cell=_last_seen),
    column("Type", lambda event: event.get("type", "")),
    column("Reason", lambda event: event.get("reason", "")),
    column("Object", _object),
    column("Subobject", lambda event: get_nested(event, "involvedObject", "fieldPath") or "", priority=1),
    column("Source", _source, priority=1),
    column("Message", lambda event: event.get("message", "").strip()),
    TableColumn(name="First Seen", priority=1, cell=_first_seen),
    column("Count", _count, priority=1),
    TableColumn(name="Name", format="name", priority=1, cell=lambda event, _: event["metadata"]["name"]),
)


def _for_new_events(core_column: TableColumn) -> TableColumn:
    return TableColumn(
        name=core_column.name,
        format=core_column.format,
        priority=core_column.priority,
        cell=lambda event, now: core_column.cell(to_core_event(event), now),
    )


def event_types() -> list[ResourceType]:
    """Events of both APIs."""
    common_fields = {"reason": ("reason",), "type": ("type",)}
    core_fields = {f"involvedObject.{field}": ("involvedObject", field) for field in _REFERENCE_FIELDS}
    new_fields = {f"regarding.{field}": ("regarding", field) for field in _REFERENCE_FIELDS}
    return [
        builtin_type(
            CORE_EVENTS,
            _CORE,
            strategy=_EventStrategy(_CORE, strict=False),
            short_names=("ev",),
            creates_on_update=True,
            columns=_COLUMNS,
            fields={**core_fields, **common_fields, "reportingComponent": ("reportingComponent",), "source": ("source", "component")},
        ),
        builtin_type(
            EVENTS,
            _NEW,
            strategy=_EventStrategy(_NEW, strict=True),
            storage="events",
            short_names=("ev",),
            creates_on_update=True,
            columns=tuple(_for_new_events(core_column) for core_column in _COLUMNS),
            fields={**new_fields, **common_fields, "reportingController": ("reportingController",)},
            to_storage=to_core_event,
            from_storage=from_core_event,
        ),
    ]
