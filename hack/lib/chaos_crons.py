"""Crons of a chaos test: their scripts, the jobs that they create, and the rules for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from chaos_feature_rules import IN_FLIGHT_SECONDS
from chaos_judge import Violation
from chaos_scripts import End, JobScript, RoleDraft, SpecDraft, spec_of
from chaos_watch import Change

from dlop.api.cron import CRON_NAME_LABEL, CRONS, SCHEDULED_TIME_ANNOTATION, ConcurrencyPolicy
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
_LAST_SECONDS = 10.0
"""Longer than the election of a leader and the longest interval."""
_FINISHED = (Phase.SUCCEEDED, Phase.FAILED, Phase.INVALID)

# --- scripts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CronScript:
    name: str
    kind: type[DLJob]
    policy: ConcurrencyPolicy
    every_seconds: int
    history_limit: int
    suspended_at: float
    """Seconds since the creation of the Cron."""
    resumed_at: float
    is_deleted: bool
    """Whether the Cron is deleted at the end. Otherwise, it is suspended."""

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

    def body(self, namespace: str) -> JsonObject:
        job_type, draft = self.kind.job_type, self.job_script("").draft
        spec = {
            "schedule": f"@every {self.every_seconds}s",
            "concurrencyPolicy": self.policy.value,
            "historyLimit": self.history_limit,
            "suspend": False,
            "template": {"apiVersion": job_type.api_version, "kind": job_type.kind, "workload": {"spec": spec_of(self.kind, draft)}},
        }
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
        kind=rng.choice((TFJob, KubeDLJob)),
        policy=policy,
        every_seconds=rng.randint(2, 4),
        history_limit=rng.randint(1, 4),
        suspended_at=suspended_at,
        resumed_at=suspended_at + rng.uniform(2 * IN_FLIGHT_SECONDS, 3 * IN_FLIGHT_SECONDS),
        is_deleted=is_deleted,
    )


# --- histories -------------------------------------------------------------------------------------------------------


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

    def __str__(self) -> str:
        state = "deleted" if self.deleted else "suspended" if self.suspended else "not suspended"
        return f"Cron: {state}, {self.history} jobs in the history, active {list(self.active)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CronJobChange:
    """A change of a job that a Cron has created."""

    revision: int
    seconds: float
    name: str
    uid: str
    scheduled_time: str
    created: bool = False
    deleted: bool = False
    finished: bool = False

    def __str__(self) -> str:
        state = "created" if self.created else "deleted" if self.deleted else "finished" if self.finished else "changed"
        return f"job {self.name} ({self.uid[:8]}, scheduled for {self.scheduled_time}): {state}"


CronEntry: TypeAlias = CronChange | CronJobChange


@dataclass(slots=True)
class CronHistories:
    """The histories of all Crons, by name."""

    entries: dict[str, list[CronEntry]] = field(default_factory=dict)

    def add(self, change: Change) -> None:
        if change.resource == CRON_RESOURCE:
            self.entries.setdefault(change.name, []).append(_cron_change(change))
        elif cron := cron_of(change.body):
            self.entries.setdefault(cron, []).append(_job_change(change))

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


def _cron_change(change: Change) -> CronChange:
    status = change.body.get("status") or {}
    return CronChange(
        revision=change.revision,
        seconds=change.seconds,
        deleted=change.deleted,
        suspended=change.body["spec"].get("suspend", False),
        history=len(status.get("history") or ()),
        active=tuple(each["name"] for each in status.get("active") or ()),
    )


def _job_change(change: Change) -> CronJobChange:
    metadata, record = change.body["metadata"], parse_record(change.body.get("status") or {})
    return CronJobChange(
        revision=change.revision,
        seconds=change.seconds,
        name=change.name,
        uid=metadata["uid"],
        scheduled_time=metadata["annotations"][SCHEDULED_TIME_ANNOTATION],
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
    await asyncio.sleep(_LAST_SECONDS)
    if script.is_deleted:
        await client.delete(CRONS, script.name, namespace=namespace, propagation=Propagation.BACKGROUND)
    else:
        await _suspend(client, script, namespace=namespace, suspend=True)


async def _suspend(client: Client, script: CronScript, *, namespace: str, suspend: bool) -> None:
    await client.patch(CRONS, script.name, {"spec": {"suspend": suspend}}, namespace=namespace)


# --- rules -----------------------------------------------------------------------------------------------------------


def judge_crons(scripts: Iterable[CronScript], histories: CronHistories) -> list[Violation]:
    """Violations of all Crons, when nothing changes any more."""
    violations: list[Violation] = []
    for script in scripts:
        entries = tuple(histories.entries.get(script.name, ()))
        violations += [Violation(rule, script.title, text, entries) for rule, text in dict.fromkeys(_CronJudge(script).judge(entries))]
    return violations


class _CronJudge:
    def __init__(self, script: CronScript) -> None:
        self._script = script
        self._jobs: dict[str, CronJobChange] = {}
        self._cron: CronChange | None = None
        self._stopped_at: float | None = None
        """Since when the Cron is suspended or deleted; None if it is neither."""

    def judge(self, entries: Sequence[CronEntry]) -> Iterator[tuple[str, str]]:
        for entry in sorted(entries, key=lambda entry: entry.revision):
            if isinstance(entry, CronChange):
                yield from self._add_cron(entry)
            else:
                if entry.created:
                    yield from self._check_new_job(entry)
                self._jobs[entry.uid] = entry
        if not self._jobs:
            yield "no scheduled job", "the Cron has created no job"
        if self._cron is not None and not self._cron.deleted and self._cron.active:
            yield "wrong active jobs", f"all jobs have ended, and the status lists {list(self._cron.active)} as active"

    def _add_cron(self, change: CronChange) -> Iterator[tuple[str, str]]:
        self._cron = change
        if not (change.suspended or change.deleted):
            self._stopped_at = None
        elif self._stopped_at is None:
            self._stopped_at = change.seconds
        if change.history > self._script.history_limit:
            yield "long history", f"{change.history} jobs at {change.revision}, and the limit is {self._script.history_limit}"

    def _check_new_job(self, new: CronJobChange) -> Iterator[tuple[str, str]]:
        name = f"job {new.name} ({new.uid[:8]})"
        if self._stopped_at is not None and new.seconds > self._stopped_at + IN_FLIGHT_SECONDS:
            delay = new.seconds - self._stopped_at
            yield "scheduled after the end", f"{name} was created {delay:.1f} s after the Cron was suspended or deleted"
        for job in self._jobs.values():
            if job.scheduled_time == new.scheduled_time:
                yield "scheduled twice", f"{name} was created for {new.scheduled_time}, like {job.name} ({job.uid[:8]})"
            is_active = not job.finished and not job.deleted
            if is_active and self._script.policy is not ConcurrencyPolicy.ALLOW:
                yield "two active jobs", f"{name} was created while {job.name} ({job.uid[:8]}) is active"
