"""What one pass over a Cron does: create the job that is due, delete the ones that it replaces, and report about them.

Pure, like the planner of jobs. Missed jobs are handled as by CronJobs of batch/v1: of all that were due since the last one, only the
latest is created. The name of a job follows from its scheduled time, so that it is created once, however often it is tried.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec

from dlop.api.child_objects import Create
from dlop.api.constants import Reason
from dlop.api.cron import (
    CRON_NAME_LABEL,
    CRONS,
    SCHEDULED_TIME_ANNOTATION,
    SOURCE_ANNOTATION,
    ConcurrencyPolicy,
    CronSpec,
    read_history_limit,
)
from dlop.api.names import label_value, object_name
from dlop.api.phase import Phase
from dlop.api.record import Blocked
from dlop.api.schedule import MAX_MISSED, MissedRuns
from dlop.api.spec import Problem, describe_problems
from dlop.kube.objects import CustomObject
from dlop.kube.resources import Resource
from dlop.kube.timestamps import earliest, format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import Delete, Event, EventType

if TYPE_CHECKING:
    from dlop.job import DLJob

_BLOCKED = "Blocked"
_FAILED = "Failed"
_DELETED = "Deleted"
"""Of a job that was deleted before it finished."""


class CronReason:
    """Reasons of conditions and events, with the names of KubeDL where it has them."""

    DEADLINE = "Deadline"
    ALREADY_ACTIVE = "AlreadyActive"
    CREATED = "SuccessfulCreate"
    DELETED = "SuccessfulDelete"
    COMPLETED = "SawCompletedWorkload"
    MISSING = "MissingWorkload"
    TOO_MANY_MISSED = "TooManyMissedTimes"
    OVERRIDE_POLICY = "OverridePolicy"


_NORMAL_REASONS = (CronReason.DEADLINE, CronReason.ALREADY_ACTIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedJob:
    """A job that the Cron has created."""

    resource: Resource
    name: str
    uid: str
    created_at: float
    scheduled_at: float | None
    """None if the job does not say so."""
    phase: Phase | None
    """None if it was not reconciled yet."""
    finished_at: str
    """RFC 3339; empty if unknown."""
    is_terminating: bool

    @property
    def is_finished(self) -> bool:
        return self.phase is not None and self.phase.is_final

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSnapshot:
    """What the caches show about a Cron."""

    cron: CustomObject
    spec: CronSpec | None
    """None if the spec is invalid."""
    problems: tuple[Problem, ...] = ()
    """Of the spec, or of the job in it."""
    job_resource: Resource | None = None
    """The resource of the jobs to create; None if there are problems."""
    jobs: tuple[CreatedJob, ...] = ()
    watched: frozenset[tuple[str, str]] = frozenset()
    """Group and kind of the jobs that `jobs` includes. Nothing is known about others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronPlan:
    """All actions of one pass over a Cron. Jobs are deleted first. A job is only created when none has to be deleted."""

    status: JsonObject
    """The new status, without a job that is created and without the condition Blocked; see `finish_pass`."""
    blocked: Blocked | None = None
    """Why no job is created although one is due or was configured."""
    deletes: tuple[Delete, ...] = ()
    create: Create | None = None
    scheduled_at: float = 0.0
    """The scheduled time of the job to create."""
    events: tuple[Event, ...] = ()
    create_events: tuple[Event, ...] = ()
    """Events about the job to create, if it did not exist before."""
    requeue_at: float | None = None
    """The next deadline, in seconds since the epoch; None if there is none."""


def plan_cron(snapshot: CronSnapshot, *, now: float) -> CronPlan:
    """Plan one pass. `now` is in seconds since the epoch."""
    plan = _observe(snapshot, read_status(snapshot.cron))
    if snapshot.cron.metadata.deletion_timestamp is not None:
        return plan
    if snapshot.spec is None or snapshot.job_resource is None or snapshot.problems:
        return _blocked(plan, Reason.INVALID_SPEC, describe_problems(snapshot.problems))
    spec = snapshot.spec
    if spec.suspend:
        return plan
    if spec.deadline is not None and now >= spec.deadline:
        return _blocked(plan, CronReason.DEADLINE, f"spec.deadline {format_time(spec.deadline)} has passed; no more jobs are created")
    anchor = _anchor(snapshot.cron, plan.status)
    missed = _missed(spec, anchor, now)
    plan = replace(plan, requeue_at=earliest(spec.schedule.next_after(now, anchor=anchor), spec.deadline))
    return plan if missed.latest is None else _plan_job(plan, snapshot, spec, snapshot.job_resource, missed)


def next_run(cron: CustomObject, spec: CronSpec, *, now: float) -> float | None:
    """The next scheduled time; None if no more jobs will be created, or if the Cron is suspended."""
    if spec.suspend or cron.metadata.deletion_timestamp is not None:
        return None
    time = spec.schedule.next_after(now, anchor=_anchor(cron, read_status(cron)))
    return None if time is None or (spec.deadline is not None and time >= spec.deadline) else time


def read_status(cron: CustomObject) -> JsonObject:
    """The stored status; empty if it is not an object."""
    status = msgspec.json.decode(cron.status)
    return status if isinstance(status, dict) else {}


# --- the jobs ------------------------------------------------------------------------------------------------------------


def _observe(snapshot: CronSnapshot, stored: JsonObject) -> CronPlan:
    """The status that describes the existing jobs, with events about jobs that have finished or are missing."""
    jobs = sorted(snapshot.jobs, key=lambda job: (job.created_at, job.name))
    by_uid = {job.uid: job for job in jobs}
    namespace = snapshot.cron.metadata.namespace
    refs, events = [], []
    for ref in _objects(stored.get("active")):
        job = by_uid.get(str(ref.get("uid")))
        if job is not None and job.is_finished:
            events.append(Event(EventType.NORMAL, CronReason.COMPLETED, f"{job} has finished: {job.phase}"))
        elif job is None and _group_and_kind(ref) in snapshot.watched:
            events.append(Event(EventType.NORMAL, CronReason.MISSING, f"{ref.get('kind')} {ref.get('name')} was deleted"))
        elif job is None:
            refs.append(ref)
    refs += [_reference(job, namespace) for job in jobs if not job.is_finished]
    times = [time for time in (parse_time(stored.get("lastScheduleTime")), *(job.scheduled_at for job in jobs)) if time is not None]
    limit = read_history_limit(msgspec.json.decode(snapshot.cron.spec))
    history = _history(_objects(stored.get("history")), jobs, watched=snapshot.watched, limit=limit)
    status = {
        **stored,
        "active": refs,
        "history": history,
        "lastScheduleTime": format_time(max(times)) if times else None,
        "conditions": [condition for condition in _objects(stored.get("conditions")) if condition.get("type") != _BLOCKED],
    }
    return CronPlan(status={name: value for name, value in status.items() if value not in (None, [])}, events=tuple(events))


def _history(
    stored: Iterable[JsonObject], jobs: Iterable[CreatedJob], *, watched: Container[tuple[str, str]], limit: int
) -> list[JsonObject]:
    """The newest jobs, the oldest of them first. Jobs that no longer exist stay: as Deleted if they had not finished."""
    entries = {}
    for entry in stored:
        is_unfinished = entry.get("status") not in (Phase.SUCCEEDED, _FAILED) and _kind_of_entry(entry) in watched
        entries[_name(entry), str(entry.get("created"))] = {**entry, "status": _DELETED} if is_unfinished else entry
    for job in jobs:
        entry = _history_entry(job)
        entries[job.name, str(entry["created"])] = entry
    ordered = sorted(entries.values(), key=lambda entry: (str(entry.get("created")), _name(entry)))
    return ordered[-limit:] if limit else []


def _history_entry(job: CreatedJob) -> JsonObject:
    # KubeDL knows no phase Invalid.
    state = _FAILED if job.phase is Phase.INVALID else str(job.phase or Phase.CREATED)
    entry = {
        "object": {"apiGroup": job.resource.group, "kind": job.resource.kind, "name": job.name},
        "status": state,
        "created": format_time(job.created_at),
    }
    return entry | {"finished": job.finished_at} if job.is_finished and job.finished_at else entry


def _reference(job: CreatedJob, namespace: str) -> JsonObject:
    return {
        "apiVersion": job.resource.api_version,
        "kind": job.resource.kind,
        "namespace": namespace,
        "name": job.name,
        "uid": job.uid,
    }


def _objects(value: Any) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _name(entry: JsonObject) -> str:
    return str(_object(entry).get("name", ""))


def _kind_of_entry(entry: JsonObject) -> tuple[str, str]:
    reference = _object(entry)
    return str(reference.get("apiGroup")), str(reference.get("kind"))


def _object(entry: JsonObject) -> JsonObject:
    reference = entry.get("object")
    return reference if isinstance(reference, dict) else {}


def _group_and_kind(ref: Mapping[str, Any]) -> tuple[str, str]:
    return str(ref.get("apiVersion")).rpartition("/")[0], str(ref.get("kind"))


# --- the job that is due -------------------------------------------------------------------------------------------------


def _anchor(cron: CustomObject, status: JsonObject) -> float:
    """The time since which jobs are due: that of the last job, or the creation of the Cron."""
    created = cron.metadata.creation_timestamp
    since = 0.0 if created is None else created.timestamp()
    return max(since, parse_time(status.get("lastScheduleTime")) or 0.0)


def _missed(spec: CronSpec, anchor: float, now: float) -> MissedRuns:
    """The jobs that are due and not too late."""
    after = anchor
    if spec.starting_deadline_seconds is not None:
        after = max(anchor, now - spec.starting_deadline_seconds)
    return spec.schedule.missed(after=after, until=now, anchor=anchor)


def _plan_job(plan: CronPlan, snapshot: CronSnapshot, spec: CronSpec, resource: Resource, missed: MissedRuns) -> CronPlan:
    """Create the job that is due, or wait for those that exist."""
    scheduled_at = missed.latest or 0.0
    active = [job for job in snapshot.jobs if not job.is_finished]
    unknown = [ref for ref in _objects(plan.status.get("active")) if _group_and_kind(ref) not in snapshot.watched]
    if spec.effective_policy is ConcurrencyPolicy.FORBID and (active or unknown):
        names = ", ".join([*map(str, active), *(f"{ref.get('kind')} {ref.get('name')}" for ref in unknown)])
        cause = "spec.template.workload.metadata.name is set" if spec.template.name else "spec.concurrencyPolicy is Forbid"
        plan = _until_too_late(plan, spec, scheduled_at)
        return _blocked(plan, CronReason.ALREADY_ACTIVE, f"a job is due and waits until {names} has finished, because {cause}")
    if spec.effective_policy is ConcurrencyPolicy.REPLACE:
        replaced = [job for job in active if not job.is_terminating]
        if replaced:
            deletes = tuple(Delete(job.resource, job.name, job.uid) for job in replaced)
            reports = (
                Event(EventType.NORMAL, CronReason.DELETED, f"deleted {job}, which the job that is due replaces") for job in replaced
            )
            return replace(plan, deletes=deletes, events=(*plan.events, *reports))
    namesake = next((job for job in snapshot.jobs if job.name == spec.template.name), None)
    if namesake is not None:
        message = f"{namesake} exists and has the name of the job that is due; delete it, or set a time to live for finished jobs"
        return _blocked(_until_too_late(plan, spec, scheduled_at), Reason.NAME_CONFLICT, message)
    create = Create(resource, _job_manifest(snapshot.cron, spec, resource, scheduled_at))
    return replace(plan, create=create, scheduled_at=scheduled_at, create_events=tuple(_create_events(create, spec, missed)))


def _blocked(plan: CronPlan, reason: str, message: str) -> CronPlan:
    return replace(plan, blocked=Blocked(reason=reason, message=message))


def _until_too_late(plan: CronPlan, spec: CronSpec, scheduled_at: float) -> CronPlan:
    """Look at a waiting job again when it is too late for it."""
    too_late = None if spec.starting_deadline_seconds is None else scheduled_at + spec.starting_deadline_seconds
    return replace(plan, requeue_at=earliest(plan.requeue_at, too_late))


def _job_manifest(cron: CustomObject, spec: CronSpec, resource: Resource, scheduled_at: float) -> JsonObject:
    metadata, template = cron.metadata, spec.template
    labels = {**(template.metadata.get("labels") or {}), CRON_NAME_LABEL: label_value(metadata.name)}
    annotations = {**(template.metadata.get("annotations") or {}), SCHEDULED_TIME_ANNOTATION: str(int(scheduled_at))}
    owner = {"apiVersion": CRONS.api_version, "kind": CRONS.kind, "name": metadata.name, "uid": metadata.uid}
    manifest = template.manifest(
        {
            "name": template.name or object_name(metadata.name, f"-{int(scheduled_at)}"),
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        }
    )
    # The template may use another version that the API server serves.
    return {**manifest, "apiVersion": resource.api_version}


def _create_events(create: Create, spec: CronSpec, missed: MissedRuns) -> Iterator[Event]:
    yield Event(EventType.NORMAL, CronReason.CREATED, f"created {create.resource.kind} {create.name}")
    if missed.count > MAX_MISSED:
        text = f"more than {MAX_MISSED} jobs were due; only the latest is created"
        yield Event(EventType.WARNING, CronReason.TOO_MANY_MISSED, f"{text}. Set spec.startingDeadlineSeconds, or check the clocks")
    if spec.overrides_policy:
        text = f"spec.concurrencyPolicy {spec.concurrency_policy} has no effect"
        yield Event(EventType.NORMAL, CronReason.OVERRIDE_POLICY, f"{text}, because spec.template.workload.metadata.name is set")


# --- Crons of jobs -------------------------------------------------------------------------------------------------------


def source_of(job: DLJob) -> str:
    """The annotation of a Cron that was created from the current spec of a job."""
    return f"{job.metadata.uid}/{job.metadata.generation}"


def cron_manifest(job: DLJob, policy: JsonObject) -> JsonObject:
    """The Cron for a job with a `cronPolicy`. It has no owner, because it must outlive the job."""
    metadata = job.metadata
    copied = {name: dict(values) for name, values in (("labels", metadata.labels), ("annotations", metadata.annotations)) if values}
    workload = {"metadata": copied, "spec": _template_spec(job)}
    template = {"apiVersion": job.job_type.api_version, "kind": job.job_type.kind, "workload": workload}
    own = {"name": metadata.name, "namespace": metadata.namespace, "annotations": {SOURCE_ANNOTATION: source_of(job)}}
    return {"apiVersion": CRONS.api_version, "kind": CRONS.kind, "metadata": own, "spec": {**policy, "template": template}}


def _template_spec(job: DLJob) -> Any:
    """The spec without the policy, which would start another Cron, and without the suspension of this one job."""
    spec = {name: value for name, value in job.raw_spec.items() if name != "cronPolicy"}
    if isinstance(spec.get("runPolicy"), dict):
        spec["runPolicy"] = {name: value for name, value in spec["runPolicy"].items() if name not in ("cronPolicy", "suspend")}
    return spec


# --- the end of the pass -------------------------------------------------------------------------------------------------


def finish_pass(
    cron: CustomObject, plan: CronPlan, *, created: bool, rejection: Blocked | None, now: float
) -> tuple[JsonObject, tuple[Event, ...]]:
    """The new status and the events, after the plan was executed. `created` is whether the job to create exists now.

    The next pass adds a new job to the status. `rejection` says why the job was not created.
    """
    status, events = plan.status, list(plan.events)
    if created:
        status = {**status, "lastScheduleTime": format_time(plan.scheduled_at)}
    blocked = rejection or plan.blocked
    if blocked is None:
        return status, tuple(events)
    known = next((condition for condition in _objects(read_status(cron).get("conditions")) if condition.get("type") == _BLOCKED), {})
    condition = {"type": _BLOCKED, "status": "True", "reason": blocked.reason, "message": blocked.message}
    if condition.items() <= known.items():
        condition = known
    else:
        event_type = EventType.NORMAL if blocked.reason in _NORMAL_REASONS else EventType.WARNING
        events.append(Event(event_type, blocked.reason, blocked.message))
        condition["lastTransitionTime"] = known.get("lastTransitionTime") or format_time(now)
    return {**status, "conditions": [*_objects(status.get("conditions")), condition]}, tuple(events)
