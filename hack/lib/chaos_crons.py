"""Crons of a chaos test: their scripts, the jobs that they create, and the rules for them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from chaos_feature_rules import IN_FLIGHT_SECONDS
from chaos_judge import Violation
from chaos_scripts import End, JobScript, RoleDraft, SpecDraft, spec_of
from chaos_watch import Change

from dlop.api.cron import CRON_NAME_LABEL, CRONS, SCHEDULED_TIME_ANNOTATION, SOURCE_ANNOTATION, ConcurrencyPolicy
from dlop.api.phase import Phase
from dlop.api.record import parse_record
from dlop.api.spec import RestartPolicy, RestartScope
from dlop.frameworks.kubedl.tfjob import TFJob as KubeDLJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.job import DLJob
from dlop.kube.client import Client, Propagation
from dlop.kube.types import JsonObject

CRON_RESOURCE = f"{CRONS.group}/{CRONS.plural}"
"""As in the keys of etcd."""
CRON_KINDS = (TFJob, KubeDLJob)
"""Kinds of the jobs of Crons."""
LAST_SECONDS = 10.0
"""Longer than the election of a leader and the longest interval."""
_FINISHED = (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID)

# --- scripts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleScript:
    """A Cron, of a user or of a job."""

    name: str
    kind: type[DLJob]
    policy: ConcurrencyPolicy
    every_seconds: int
    history_limit: int

    @property
    def title(self) -> str:
        return f"Cron {self.name} ({self.policy})"

    def job_script(self, name: str) -> JobScript:
        """What the pods of one of its jobs do."""
        draft = SpecDraft((RoleDraft("Worker", 1, RestartPolicy.EXIT_CODE),), {"ttlSecondsAfterFinished": 3})
        return JobScript(
            name=name,
            kind=self.kind,
            draft=draft,
            end=End.SUCCEEDED,
            decisive=("Worker", 0),
            culprit=None,
            culprit_fault=None,
            faults={},
            edits=(),
            scaled_role="",
            scope=RestartScope.REPLICA,
        )

    def policy_fields(self) -> JsonObject:
        """The fields of a Cron without the template, as in a `cronPolicy`."""
        return {
            "schedule": f"@every {self.every_seconds}s",
            "concurrencyPolicy": self.policy.value,
            "historyLimit": self.history_limit,
            "suspend": False,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CronScript(ScheduleScript):
    """A Cron that a user creates."""

    suspended_at: float
    """Seconds since the creation of the Cron."""
    resumed_at: float
    is_deleted: bool
    """Whether the Cron is deleted at the end. Otherwise, it is suspended."""

    def body(self, namespace: str) -> JsonObject:
        job_type, draft = self.kind.job_type, self.job_script("").draft
        template = {"apiVersion": job_type.api_version, "kind": job_type.kind, "workload": {"spec": spec_of(self.kind, draft)}}
        spec = self.policy_fields() | {"template": template}
        return {"apiVersion": CRONS.api_version, "kind": CRONS.kind, "metadata": {"name": self.name, "namespace": namespace}, "spec": spec}


def draw_crons(*, seed: int) -> list[CronScript]:
    """One Cron for each concurrency policy."""
    rng = Random(f"{seed}/crons")
    deleted = rng.choice(list(ConcurrencyPolicy))
    return [_draw_cron(policy, is_deleted=policy is deleted, rng=rng) for policy in ConcurrencyPolicy]


def _draw_cron(policy: ConcurrencyPolicy, *, is_deleted: bool, rng: Random) -> CronScript:
    suspended_at = rng.uniform(8.0, 15.0)
    return CronScript(
        name=f"cron-{policy.lower()}",
        kind=rng.choice(CRON_KINDS),
        policy=policy,
        every_seconds=rng.randint(2, 4),
        history_limit=rng.randint(1, 4),
        suspended_at=suspended_at,
        resumed_at=suspended_at + rng.uniform(2 * IN_FLIGHT_SECONDS, 3 * IN_FLIGHT_SECONDS),
        is_deleted=is_deleted,
    )


# --- histories -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Content:
    """What a Cron has from its job."""

    policy: JsonObject
    template: JsonObject
    """The spec of the jobs to create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CronChange:
    revision: int
    seconds: float
    deleted: bool = False
    suspended: bool = False
    history: int = 0
    """Number of jobs in the history."""
    active: tuple[str, ...] = ()
    """Jobs that the status lists as active."""
    uid: str = ""
    created: bool = False
    content: Content | None = None
    source: str = ""
    """The job from which the Cron was made, and its generation; empty for a Cron of a user."""

    def __str__(self) -> str:
        state = "deleted" if self.deleted else "suspended" if self.suspended else "not suspended"
        state = f"created, {state}" if self.created else state
        schedule = "" if self.content is None else f", {self.content.policy.get('schedule')}"
        source = f", from {self.source}" if self.source else ""
        return f"Cron ({self.uid[:8]}{source}): {state}{schedule}, {self.history} jobs in the history, active {list(self.active)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronJobChange:
    """A change of a job that a Cron has created."""

    revision: int
    seconds: float
    name: str
    uid: str
    scheduled_time: str
    cron_uid: str = ""
    created: bool = False
    deleted: bool = False
    finished: bool = False

    def __str__(self) -> str:
        state = "created" if self.created else "deleted" if self.deleted else "finished" if self.finished else "changed"
        return f"job {self.name} ({self.uid[:8]}, scheduled for {self.scheduled_time}): {state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """A change of a job that has, or has had, a `cronPolicy`."""

    revision: int
    seconds: float
    uid: str
    generation: int
    content: Content | None = None
    """What its Cron must have; None without a `cronPolicy`, and if the job was deleted."""
    deleted: bool = False

    def __str__(self) -> str:
        state = "deleted" if self.deleted else "without cronPolicy" if self.content is None else f"cronPolicy {self.content.policy}"
        return f"the job of this name ({self.uid[:8]}, generation {self.generation}): {state}"


CronEntry: TypeAlias = CronChange | CronJobChange | SourceChange


@dataclass(slots=True)
class CronHistories:
    """The histories of all Crons, by name."""

    entries: dict[str, list[CronEntry]] = field(default_factory=dict)
    crons: dict[str, CronChange] = field(default_factory=dict)
    """The last state of each Cron that exists."""
    _sources: set[tuple[str, str]] = field(default_factory=set)
    """Resource and name of jobs with a `cronPolicy`."""

    def add(self, change: Change) -> None:
        if change.resource == CRON_RESOURCE:
            entry = _cron_change(change)
            self.entries.setdefault(change.name, []).append(entry)
            self.crons[change.name] = entry
            if change.deleted:
                del self.crons[change.name]
        elif cron := cron_of(change.body):
            self.entries.setdefault(cron, []).append(_job_change(change))
        elif has_policy(change.body) or (change.resource, change.name) in self._sources:
            self._sources.add((change.resource, change.name))
            self.entries.setdefault(change.name, []).append(_source_change(change))

    def job_counts(self) -> dict[str, int]:
        """The number of jobs that each Cron has created."""
        return {
            cron: sum(isinstance(entry, CronJobChange) and entry.created for entry in entries) for cron, entries in self.entries.items()
        }

    def finished_jobs(self, cron: str) -> set[str]:
        """Jobs of a Cron that were not deleted before they had finished."""
        return {entry.name for entry in self.entries.get(cron, ()) if isinstance(entry, CronJobChange) and entry.finished}

    def unfinished(self) -> set[str]:
        """Jobs of all Crons that have not ended."""
        last = {entry.name: entry for entries in self.entries.values() for entry in entries if isinstance(entry, CronJobChange)}
        return {name for name, entry in last.items() if not entry.deleted and not entry.finished}


def cron_of(body: JsonObject) -> str:
    """The Cron that has created a job; empty for other objects."""
    metadata = body["metadata"]
    name: str = (metadata.get("labels") or {}).get(CRON_NAME_LABEL, "")
    return name if SCHEDULED_TIME_ANNOTATION in (metadata.get("annotations") or {}) else ""


def has_policy(body: JsonObject) -> bool:
    spec = body.get("spec")
    return isinstance(spec, dict) and ("cronPolicy" in spec or "cronPolicy" in (spec.get("runPolicy") or {}))


def _source_change(change: Change) -> SourceChange:
    metadata, content = change.body["metadata"], None
    if not change.deleted and has_policy(change.body):
        spec, run_policy = dict(change.body["spec"]), dict(change.body["spec"].get("runPolicy") or {})
        policies = [fields.pop("cronPolicy", None) for fields in (spec, run_policy)]
        run_policy.pop("suspend", None)
        content = Content(policies[0] or policies[1], {**spec, "runPolicy": run_policy})
    return SourceChange(
        revision=change.revision,
        seconds=change.seconds,
        uid=metadata["uid"],
        generation=metadata.get("generation", 1),
        content=content,
        deleted=change.deleted,
    )


def _cron_change(change: Change) -> CronChange:
    metadata, spec, status = change.body["metadata"], change.body["spec"], change.body.get("status") or {}
    policy = {name: value for name, value in spec.items() if name != "template"}
    return CronChange(
        revision=change.revision,
        seconds=change.seconds,
        deleted=change.deleted,
        suspended=spec.get("suspend", False),
        history=len(status.get("history") or ()),
        active=tuple(each["name"] for each in status.get("active") or ()),
        uid=metadata.get("uid", ""),
        created=change.created,
        content=Content(policy, spec["template"]["workload"]["spec"]),
        source=(metadata.get("annotations") or {}).get(SOURCE_ANNOTATION, ""),
    )


def _job_change(change: Change) -> CronJobChange:
    metadata, record = change.body["metadata"], parse_record(change.body.get("status") or {})
    return CronJobChange(
        revision=change.revision,
        seconds=change.seconds,
        name=change.name,
        uid=metadata["uid"],
        scheduled_time=metadata["annotations"][SCHEDULED_TIME_ANNOTATION],
        cron_uid=next((owner["uid"] for owner in metadata.get("ownerReferences") or () if owner["kind"] == CRONS.kind), ""),
        created=change.created,
        deleted=change.deleted,
        finished=record is not None and record.phase in _FINISHED,
    )


# --- users -----------------------------------------------------------------------------------------------------------


async def run_cron(client: Client, script: CronScript, *, namespace: str) -> None:
    """Create a Cron, suspend it and resume it."""
    await client.create(CRONS, script.body(namespace), namespace=namespace)
    await asyncio.sleep(script.suspended_at)
    await _suspend(client, script, namespace=namespace, suspend=True)
    await asyncio.sleep(script.resumed_at - script.suspended_at)
    await _suspend(client, script, namespace=namespace, suspend=False)


async def end_cron(client: Client, script: CronScript, *, namespace: str) -> None:
    """Let a Cron run without faults, which is the only certain time for a job, and then delete or suspend it."""
    await _suspend(client, script, namespace=namespace, suspend=False)
    await asyncio.sleep(LAST_SECONDS)
    if script.is_deleted:
        await client.delete(CRONS, script.name, namespace=namespace, propagation=Propagation.BACKGROUND)
    else:
        await _suspend(client, script, namespace=namespace, suspend=True)


async def _suspend(client: Client, script: CronScript, *, namespace: str, suspend: bool) -> None:
    await client.patch(CRONS, script.name, {"spec": {"suspend": suspend}}, namespace=namespace)


# --- rules -----------------------------------------------------------------------------------------------------------


def judge_crons(scripts: Iterable[ScheduleScript], histories: CronHistories, *, uncertain: Collection[str] = ()) -> list[Violation]:
    """Violations of all Crons, when nothing changes any more. `uncertain` are Crons that may have created no job."""
    violations: list[Violation] = []
    for script in scripts:
        entries = tuple(histories.entries.get(script.name, ()))
        found = _CronJudge(script, needs_job=script.name not in uncertain).judge(entries)
        violations += [Violation(rule, script.title, text, entries) for rule, text in dict.fromkeys(found)]
    return violations


class _CronJudge:
    def __init__(self, script: ScheduleScript, *, needs_job: bool) -> None:
        self._script = script
        self._needs_job = needs_job
        self._jobs: dict[str, CronJobChange] = {}
        self._cron: CronChange | None = None
        self._stopped_at: dict[str, float] = {}
        """Since when a Cron is suspended or deleted, by uid. A Cron that was deleted may have been created again."""

    def judge(self, entries: Sequence[CronEntry]) -> Iterator[tuple[str, str]]:
        for entry in sorted(entries, key=lambda entry: entry.revision):
            match entry:
                case CronChange():
                    yield from self._add_cron(entry)
                case CronJobChange():
                    if entry.created:
                        yield from self._check_new_job(entry)
                    self._jobs[entry.uid] = entry
        if not self._jobs and self._needs_job:
            yield "no scheduled job", "the Cron has created no job"
        if self._cron is not None and not self._cron.deleted and self._cron.active:
            yield "wrong active jobs", f"all jobs have ended, and the status lists {list(self._cron.active)} as active"

    def _add_cron(self, change: CronChange) -> Iterator[tuple[str, str]]:
        self._cron = change
        if change.suspended or change.deleted:
            self._stopped_at.setdefault(change.uid, change.seconds)
        else:
            self._stopped_at.pop(change.uid, None)
        if change.history > self._script.history_limit:
            yield "long history", f"{change.history} jobs at {change.revision}, and the limit is {self._script.history_limit}"

    def _check_new_job(self, new: CronJobChange) -> Iterator[tuple[str, str]]:
        name = f"job {new.name} ({new.uid[:8]})"
        stopped_at = self._stopped_at.get(new.cron_uid)
        if stopped_at is not None and new.seconds > stopped_at + IN_FLIGHT_SECONDS:
            yield "scheduled after the end", f"{name} was created {new.seconds - stopped_at:.1f} s after the Cron was suspended or deleted"
        for job in self._jobs.values():
            if job.cron_uid != new.cron_uid:
                continue  # of a Cron that was deleted
            if job.scheduled_time == new.scheduled_time:
                yield "scheduled twice", f"{name} was created for {new.scheduled_time}, like {job.name} ({job.uid[:8]})"
            is_active = not job.finished and not job.deleted
            if is_active and self._script.policy is not ConcurrencyPolicy.ALLOW:
                yield "two active jobs", f"{name} was created while {job.name} ({job.uid[:8]}) is active"
