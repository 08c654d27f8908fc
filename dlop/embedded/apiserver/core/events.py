"""Events: one set of objects under two names, core `v1` and `events.k8s.io/v1`. Stored as core events."""

from __future__ import annotations

from collections.abc import Mapping

from dlop.embedded.apiserver.age import age
from dlop.embedded.apiserver.api_errors import FieldError
from dlop.embedded.apiserver.api_errors import invalid as refused
from dlop.embedded.apiserver.core.base import BuiltinRules, builtin_type, column, dig, invalid, required
from dlop.embedded.apiserver.name_validation import qualified_name_errors
from dlop.embedded.apiserver.resource_type import Column, Moment, ResourceType
from dlop.kube.resources import CORE_EVENTS, EVENTS
from dlop.kube.types import JsonObject

_CORE, _NEW = "core.v1.Event", "events.v1.Event"
# What core calls a field, and what events.k8s.io calls it. All other fields have one name.
_NAMES: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_CORE_NAMES: Mapping[str, str] = {new: core for core, new in _NAMES.items()}
# Written by core even when empty, and left out by events.k8s.io.
_EMPTY_IN_CORE: Mapping[str, str] = {"reportingComponent": "", "reportingInstance": ""}
_REFERENCE_FIELDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_LIMITS = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}
_FIXED = ("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime", "action")


def to_core(body: JsonObject) -> JsonObject:
    """An events.k8s.io event as a core one."""
    renamed = {_CORE_NAMES.get(field, field): value for field, value in body.items()}
    return {**_EMPTY_IN_CORE, **renamed, "apiVersion": CORE_EVENTS.api_version}


def from_core(body: JsonObject) -> JsonObject:
    """A core event as an events.k8s.io one."""
    kept = {field: value for field, value in body.items() if value != "" or field not in _EMPTY_IN_CORE}
    return {**{_NAMES.get(field, field): value for field, value in kept.items()}, "apiVersion": EVENTS.api_version}


class _EventRules(BuiltinRules):
    """The rules of both names: `strict` for events.k8s.io, whose events have to say more."""

    def __init__(self, shape: str, *, strict: bool) -> None:
        super().__init__(shape)
        self._strict = strict

    def validate(self, body: JsonObject, old: JsonObject | None, *, subresource: str | None) -> list[FieldError]:
        if not self._strict:
            return _legacy_errors(body, "reportingComponent")
        event = to_core(body)
        errors = _legacy_errors(event, "reportingController")
        errors += _strict_create_errors(event) if old is None else _strict_update_errors(event, to_core(old))
        if errors:
            # Under whatever name they come, the real server speaks of core events.
            raise refused(CORE_EVENTS, body["metadata"].get("name", ""), errors)
        return []


def _legacy_errors(event: JsonObject, controller: str) -> list[FieldError]:
    namespace, about = event["metadata"].get("namespace", ""), dig(event, "involvedObject", "namespace") or ""
    mismatch = [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    if not event.get("eventTime"):
        fits = namespace == about or (not about and namespace == "default")
        return [] if fits else mismatch
    errors = [] if about or namespace in ("default", "kube-system") else mismatch
    if not event.get("reportingComponent"):
        errors.append(required(controller))
    errors += [invalid(controller, event["reportingComponent"], why) for why in qualified_name_errors(event["reportingComponent"])]
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
    for field in (*_FIXED, "related", "reportingComponent", "reportingInstance"):
        if (event.get(field) or None) != (old.get(field) or None):
            errors.append(invalid(_NAMES[field] if field == "reportingComponent" else field, event.get(field), "field is immutable"))
    return errors


def _series_errors(event: JsonObject) -> list[FieldError]:
    series = event.get("series")
    if series is None:
        return []
    errors = [invalid("series.count", "", "should be at least 2")] if series.get("count", 0) < 2 else []
    return errors if series.get("lastObservedTime") else [*errors, required("series.lastObservedTime")]


def _first_seen(event: JsonObject, moment: Moment) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), moment)


def _last_seen(event: JsonObject, moment: Moment) -> str:
    if series := event.get("series"):
        return age(series.get("lastObservedTime"), moment)
    return age(event["lastTimestamp"], moment) if event.get("lastTimestamp") else _first_seen(event, moment)


def _object(event: JsonObject) -> str:
    about = event.get("involvedObject") or {}
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _source(event: JsonObject) -> str:
    component = dig(event, "source", "component") or event.get("reportingComponent") or ""
    instance = dig(event, "source", "host") or event.get("reportingInstance") or ""
    return f"{component}, {instance}" if instance else component


def _count(event: JsonObject) -> int:
    return int(dig(event, "series", "count") or event.get("count") or 1)


_COLUMNS = (
    Column(name="Last Seen", cell=_last_seen),
    column("Type", lambda event: event.get("type", "")),
    column("Reason", lambda event: event.get("reason", "")),
    column("Object", _object),
    column("Subobject", lambda event: dig(event, "involvedObject", "fieldPath") or "", priority=1),
    column("Source", _source, priority=1),
    column("Message", lambda event: event.get("message", "").strip()),
    Column(name="First Seen", priority=1, cell=_first_seen),
    column("Count", _count, priority=1),
    Column(name="Name", format="name", priority=1, cell=lambda event, _: event["metadata"]["name"]),
)


def _of_new(shown: Column) -> Column:
    return Column(
        name=shown.name,
        format=shown.format,
        priority=shown.priority,
        cell=lambda event, moment: shown.cell(to_core(event), moment),
    )


def event_types() -> list[ResourceType]:
    """events, under both names."""
    plain = {"reason": ("reason",), "type": ("type",)}
    core_fields = {f"involvedObject.{field}": ("involvedObject", field) for field in _REFERENCE_FIELDS}
    new_fields = {f"regarding.{field}": ("regarding", field) for field in _REFERENCE_FIELDS}
    return [
        builtin_type(
            CORE_EVENTS,
            _CORE,
            rules=_EventRules(_CORE, strict=False),
            short_names=("ev",),
            creates_on_update=True,
            columns=_COLUMNS,
            fields={**core_fields, **plain, "reportingComponent": ("reportingComponent",), "source": ("source", "component")},
        ),
        builtin_type(
            EVENTS,
            _NEW,
            rules=_EventRules(_NEW, strict=True),
            storage="events",
            short_names=("ev",),
            creates_on_update=True,
            columns=tuple(_of_new(shown) for shown in _COLUMNS),
            fields={**new_fields, **plain, "reportingController": ("reportingController",)},
            to_storage=to_core,
            from_storage=from_core,
        ),
    ]
