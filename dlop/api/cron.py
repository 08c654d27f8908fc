"""Cron: a resource that creates a job again and again, on a schedule. The format is that of KubeDL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from dlop.api.fields import ManifestField
from dlop.api.schedule import Schedule, ScheduleError, parse_schedule, parse_zone
from dlop.api.types import JobType
from dlop.kube.timestamps import parse_time
from dlop.kube.types import JsonObject

CRON = JobType(group="apps.kubedl.io", version="v1alpha1", kind="Cron")
CRONS = CRON.resource
CRON_NAME_LABEL = "kubedl.io/cron-name"
"""On jobs: the Cron that created the job."""
SCHEDULED_TIME_ANNOTATION = "dlop.dev/scheduled-time"
"""On jobs that a Cron created: the time for which the job was scheduled, in seconds since the epoch."""
SOURCE_ANNOTATION = "dlop.dev/cron-source"
"""On Crons: the UID and the generation of the job with the `cronPolicy` from which the Cron was created."""
MAX_HISTORY = 100
"""Number of jobs in the history of a Cron without `historyLimit`."""
_POLICY_FIELDS = ("schedule", "timeZone", "concurrencyPolicy", "suspend", "deadline", "startingDeadlineSeconds", "historyLimit")
_COPIED_METADATA = ("labels", "annotations", "finalizers")
_MAX_SECONDS = 2**31 - 1
Value = TypeVar("Value")


class ConcurrencyPolicy(StrEnum):
    """What to do when a job is due while an earlier one has not finished."""

    ALLOW = "Allow"
    FORBID = "Forbid"
    """The job that is due waits."""
    REPLACE = "Replace"
    """The earlier job is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTemplate:
    """The job that a Cron creates."""

    api_version: str
    kind: str
    name: str
    """The name of all jobs; empty if each job has its own."""
    spec: Any
    metadata: Mapping[str, Any]
    """Labels, annotations and finalizers."""

    def manifest(self, metadata: Mapping[str, Any]) -> JsonObject:
        """A job with this metadata, and that of the template."""
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": {**self.metadata, **metadata}, "spec": self.spec}


@dataclass(frozen=True, slots=True, kw_only=True)
class CronSpec:
    """The parsed spec of a Cron. Times are in seconds since the epoch."""

    schedule: Schedule
    template: JobTemplate
    concurrency_policy: ConcurrencyPolicy = ConcurrencyPolicy.ALLOW
    suspend: bool = False
    deadline: float | None = None
    """The time from which on no job is created; None if there is none."""
    starting_deadline_seconds: int | None = None
    """Seconds after its scheduled time within which a job must be created; None means no limit."""

    @property
    def overrides_policy(self) -> bool:
        """Whether the policy of the manifest has no effect, because all jobs have the same name."""
        return bool(self.template.name) and self.concurrency_policy is not ConcurrencyPolicy.FORBID

    @property
    def effective_policy(self) -> ConcurrencyPolicy:
        return ConcurrencyPolicy.FORBID if self.template.name else self.concurrency_policy


_NO_TEMPLATE = JobTemplate(api_version="", kind="", name="", spec=None, metadata={})


def read_cron_spec(raw: Any, *, namespace: str) -> CronSpec:
    """Parse the spec of a Cron in a namespace.

    Raises:
        SpecError: the spec is invalid.
    """
    field = ManifestField("spec", raw)
    field.object()
    spec = _read_policy(field, _read_template(field.get("template"), namespace))
    field.raise_problems()
    return spec


def read_cron_policy(field: ManifestField) -> JsonObject | None:
    """The `cronPolicy` of a job: the fields of a Cron except the template. None if it is absent. Problems are reported to `field`."""
    if field.is_absent:
        return None
    policy = field.object()
    _read_policy(field, _NO_TEMPLATE)
    return {name: value for name, value in policy.items() if name in _POLICY_FIELDS and value is not None}


def _read_policy(field: ManifestField, template: JobTemplate) -> CronSpec:
    field.get("historyLimit").optional_integer(maximum=_MAX_SECONDS)
    return CronSpec(
        schedule=_read_schedule(field),
        template=template,
        concurrency_policy=field.get("concurrencyPolicy").choice(ConcurrencyPolicy, ConcurrencyPolicy.ALLOW),
        suspend=field.get("suspend").boolean(),
        deadline=_read_time(field.get("deadline")),
        starting_deadline_seconds=field.get("startingDeadlineSeconds").optional_integer(minimum=1, maximum=_MAX_SECONDS),
    )


def read_history_limit(raw: Any) -> int:
    """The number of jobs in the history, also of an invalid spec."""
    limit = ManifestField("spec", raw).get("historyLimit").optional_integer()
    return MAX_HISTORY if limit is None else min(limit, MAX_HISTORY)


def _read_schedule(field: ManifestField) -> Schedule:
    """The schedule in its time zone; any schedule if it is invalid."""
    line, zone_name = field.get("schedule"), field.get("timeZone")
    text, zone = line.string(), None
    try:
        zone = parse_zone(zone_name.string()) if zone_name.string() else None
    except ScheduleError as error:
        zone_name.error(str(error))
    if line.is_absent:
        line.error("is missing; add a cron line, such as '0 2 * * *'")
    elif isinstance(line.value, str):
        try:
            return parse_schedule(text, zone=zone)
        except ScheduleError as error:
            line.error(str(error))
    return Schedule("* * * * *")


def _read_time(field: ManifestField) -> float | None:
    text = field.string()
    time = parse_time(text)
    if text and time is None:
        field.error(f"must be a time with a time zone, such as 2030-12-31T23:00:00Z, got {text!r:.60}")
    return time


def _read_template(field: ManifestField, namespace: str) -> JobTemplate:
    if not field.object():
        field.error("is missing; add apiVersion, kind and workload of the job")
        return _NO_TEMPLATE
    api_version, kind = (_read_required(field.get(name)) for name in ("apiVersion", "kind"))
    workload = field.get("workload")
    if workload.is_absent:
        workload.error("is missing; add the job to create, with its spec")
    workload.object()
    for name, expected in (("apiVersion", api_version), ("kind", kind)):
        own = workload.get(name)
        if expected and own.string() not in ("", expected):
            own.error(f"must be {expected}, as in spec.template.{name}, got {own.value!r:.60}")
    metadata = workload.get("metadata")
    metadata.object()
    own_namespace = metadata.get("namespace")
    if own_namespace.string() not in ("", namespace):
        own_namespace.error(f"must be the namespace of the Cron, {namespace}, got {own_namespace.value!r:.60}; remove it")
    for labels in (metadata.get("labels"), metadata.get("annotations")):
        labels.object()
        for _, value in labels.entries():
            value.string()
    copied = {name: metadata.get(name).value for name in _COPIED_METADATA if not metadata.get(name).is_absent}
    spec = workload.get("spec").value
    return JobTemplate(api_version=api_version, kind=kind, name=metadata.get("name").string(), spec=spec, metadata=copied)


def _read_required(field: ManifestField) -> str:
    if field.is_absent:
        field.error("is missing")
    return field.string()
