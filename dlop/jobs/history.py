"""What happened to a job, in order: its conditions, what was told of it and of its pods, and what the record knows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from dlop.jobs.lookup import JobHandle
from dlop.kube.objects import ObjectMeta
from dlop.kube.timestamps import format_time, parse_time, to_the_microsecond
from dlop.kube.types import JsonObject


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    """What an event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    """How often an event was told again."""

    count: int = 0
    last_observed_time: datetime | None = None


class KubeEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An event of the core API, in which those of events.k8s.io show as well."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None
    event_time: datetime | None = None
    series: EventSeries | None = None

    @property
    def moment(self) -> datetime | None:
        """When it was told last."""
        told_again = None if self.series is None else self.series.last_observed_time
        return told_again or self.last_timestamp or self.event_time or self.first_timestamp or self.metadata.creation_timestamp

    @property
    def times(self) -> int:
        """How often it was told."""
        return max(self.count or 1, 1 if self.series is None else self.series.count)


class Happening(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that happened."""

    at: str
    subject: str
    """`job`, or `pod NAME`."""
    reason: str
    message: str
    is_warning: bool = False
    times: int = 1


def history_of(found: JobHandle, events: Iterable[KubeEvent], *, pods: frozenset[str]) -> tuple[Happening, ...]:
    """What happened to a job and to pods of these names, oldest first."""
    told = [_told(event) for event in _in_order(event for event in events if _concerns(event, found, pods))]
    said = {happening.message for happening in told}
    # A condition and an event often tell the same; then the event has the finer clock.
    stated = [each for each in _stated(found) if each.message not in said]
    # Most of them know the second only. Within one, what made the job comes first, and what became of it last.
    return tuple(sorted((*_created(found), *told, *stated), key=lambda happening: int(parse_time(happening.at) or 0.0)))


def _in_order(events: Iterable[KubeEvent]) -> list[KubeEvent]:
    """By the second, and within it in the order in which the server got them.

    Versions tell that order wherever they are numbers; elsewhere finer clocks do, where events have them.
    """
    found = list(events)
    if all(event.metadata.resource_version.isdecimal() for event in found):
        return sorted(found, key=lambda event: (_second(event), int(event.metadata.resource_version)))
    return sorted(found, key=lambda event: event.moment.timestamp() if event.moment else 0.0)


def _second(event: KubeEvent) -> int:
    return 0 if event.moment is None else int(event.moment.timestamp())


def _concerns(event: KubeEvent, found: JobHandle, pods: frozenset[str]) -> bool:
    about = event.involved_object
    if about.kind == "Pod":
        return about.name in pods and not _is_before(event, found)
    return about.uid == found.uid


def _is_before(event: KubeEvent, found: JobHandle) -> bool:
    """Whether it was told of a pod of an earlier job: pods have the same names again when a job is made again."""
    created = found.metadata.creation_timestamp
    return event.moment is not None and created is not None and event.moment < created


def _told(event: KubeEvent) -> Happening:
    about = event.involved_object
    return Happening(
        at="" if event.moment is None else _exactly(event.moment),
        subject=f"pod {about.name}" if about.kind == "Pod" else "job",
        reason=event.reason,
        message=event.message,
        is_warning=event.type == "Warning",
        times=event.times,
    )


def _created(found: JobHandle) -> Iterator[Happening]:
    created = found.metadata.creation_timestamp
    if created is not None:
        yield Happening(at=format_time(created.timestamp()), subject="job", reason="Submitted", message=f"{found} was created.")


def _stated(found: JobHandle) -> Iterator[Happening]:
    conditions = found.job().stored_status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("status") == "True" and condition.get("type") != "Created":
            yield _statement(condition)


def _statement(condition: JsonObject) -> Happening:
    texts = {name: str(condition.get(name) or "") for name in ("lastTransitionTime", "reason", "message", "type")}
    return Happening(
        at=texts["lastTransitionTime"],
        subject="job",
        reason=texts["reason"] or texts["type"],
        message=texts["message"],
        is_warning=texts["type"] in ("Failed", "Blocked"),
    )


def _exactly(moment: datetime) -> str:
    return to_the_microsecond(moment.timestamp()) if moment.microsecond else format_time(moment.timestamp())
