"""The history of a job, merged from its conditions, its events and the events of its pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from dlop.api.constants import Reason
from dlop.api.record import ScaleRecord
from dlop.jobs.lookup import JobHandle
from dlop.kube.objects import ObjectMeta
from dlop.kube.timestamps import format_micro_time, format_time, parse_time
from dlop.kube.types import JsonObject

JOB = "job"
"""The subject of an entry about the job itself."""


class ObjectReference(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(msgspec.Struct, frozen=True, rename="camel"):
    count: int = 0
    last_observed_time: datetime | None = None


class KubeEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A core/v1 event. Events of events.k8s.io are visible through this API too."""

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
    def last_seen(self) -> datetime | None:
        last_observed = None if self.series is None else self.series.last_observed_time
        return last_observed or self.last_timestamp or self.event_time or self.first_timestamp or self.metadata.creation_timestamp

    @property
    def occurrences(self) -> int:
        return max(self.count or 1, 1 if self.series is None else self.series.count)


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event or condition of a job."""

    at: str
    subject: str
    """`job` or `pod NAME`."""
    reason: str
    message: str
    is_warning: bool = False
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGroup:
    """Equal entries of several pods, or a single entry."""

    at: str
    """The time of the last entry."""
    subjects: tuple[str, ...]
    reason: str
    message: str
    is_warning: bool
    count: int
    """The sum over all entries."""


def build_history(job: JobHandle, events: Iterable[KubeEvent], *, pods: frozenset[str]) -> tuple[HistoryEntry, ...]:
    """The history of a job and of the pods with these names, oldest first."""
    from_records = [_from_scale_record(record) for record in job.record().scale_records]
    scaled = {entry.message for entry in from_records}
    from_events = [_from_event(event) for event in _sort_events(event for event in events if _concerns(event, job, pods))]
    # Events expire, and repeated ones are merged.
    from_events = [entry for entry in from_events if entry.reason != Reason.SCALED or entry.message not in scaled]
    messages = {entry.message for entry in from_events}
    # A condition often repeats an event. Keep the event, because its time is more precise.
    from_conditions = [entry for entry in _from_conditions(job) if entry.message not in messages]
    # Most times have a resolution of one second. Within a second, the creation comes first and conditions come last.
    return tuple(
        sorted((*_creation(job), *from_events, *from_records, *from_conditions), key=lambda entry: int(parse_time(entry.at) or 0.0))
    )


def group_history(entries: Iterable[HistoryEntry]) -> tuple[HistoryGroup, ...]:
    """Merge entries of different pods with the same reason and message, ordered by the last entry of each group.

    A group has at most one entry per pod. When a pod was created again, its entries start a new group, so that the attempts of
    a job stay apart.
    """
    groups: list[list[tuple[int, HistoryEntry]]] = []
    open_groups: dict[tuple[str, str, bool], list[tuple[int, HistoryEntry]]] = {}
    for position, entry in enumerate(entries):
        key = (entry.reason, " ".join(entry.message.split()), entry.is_warning)
        group = open_groups.get(key)
        if group is None or entry.subject == JOB or any(member.subject in (JOB, entry.subject) for _, member in group):
            group = open_groups[key] = []
            groups.append(group)
        group.append((position, entry))
    groups.sort(key=lambda group: group[-1][0])
    return tuple(_merge_entries([entry for _, entry in group]) for group in groups)


def _merge_entries(entries: Sequence[HistoryEntry]) -> HistoryGroup:
    last = entries[-1]
    return HistoryGroup(
        at=last.at,
        subjects=tuple(entry.subject for entry in entries),
        reason=last.reason,
        message=last.message,
        is_warning=last.is_warning,
        count=sum(entry.count for entry in entries),
    )


def _sort_events(events: Iterable[KubeEvent]) -> list[KubeEvent]:
    """Order by second, then by resource version where it is a number. Otherwise order by the exact time."""
    unsorted = list(events)
    if all(event.metadata.resource_version.isdecimal() for event in unsorted):
        return sorted(unsorted, key=lambda event: (_second(event), int(event.metadata.resource_version)))
    return sorted(unsorted, key=lambda event: event.last_seen.timestamp() if event.last_seen else 0.0)


def _second(event: KubeEvent) -> int:
    return 0 if event.last_seen is None else int(event.last_seen.timestamp())


def _concerns(event: KubeEvent, job: JobHandle, pods: frozenset[str]) -> bool:
    subject = event.involved_object
    if subject.kind == "Pod":
        return subject.name in pods and not _precedes_job(event, job)
    return subject.uid == job.uid


def _precedes_job(event: KubeEvent, job: JobHandle) -> bool:
    """Whether the event belongs to a pod of an earlier job with the same name."""
    created = job.metadata.creation_timestamp
    return event.last_seen is not None and created is not None and event.last_seen < created


def _from_event(event: KubeEvent) -> HistoryEntry:
    subject = event.involved_object
    return HistoryEntry(
        at="" if event.last_seen is None else _format_exact_time(event.last_seen),
        subject=f"pod {subject.name}" if subject.kind == "Pod" else JOB,
        reason=event.reason,
        message=event.message,
        is_warning=event.type == "Warning",
        count=event.occurrences,
    )


def _creation(job: JobHandle) -> Iterator[HistoryEntry]:
    created = job.metadata.creation_timestamp
    if created is not None:
        yield HistoryEntry(at=format_time(created.timestamp()), subject=JOB, reason="Submitted", message=f"{job} was created.")


def _from_scale_record(record: ScaleRecord) -> HistoryEntry:
    return HistoryEntry(at=record.time, subject=JOB, reason=Reason.SCALED, message=str(record))


def _from_conditions(job: JobHandle) -> Iterator[HistoryEntry]:
    conditions = job.dl_job().stored_status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict) and condition.get("status") == "True" and condition.get("type") != "Created":
            yield _from_condition(condition)


def _from_condition(condition: JsonObject) -> HistoryEntry:
    fields = {name: str(condition.get(name) or "") for name in ("lastTransitionTime", "reason", "message", "type")}
    return HistoryEntry(
        at=fields["lastTransitionTime"],
        subject=JOB,
        reason=fields["reason"] or fields["type"],
        message=fields["message"],
        is_warning=fields["type"] in ("Failed", "Blocked"),
    )


def _format_exact_time(time: datetime) -> str:
    return format_micro_time(time.timestamp()) if time.microsecond else format_time(time.timestamp())
