"""Jobs with a `cronPolicy` of a chaos test: their scripts, the edits of users, and the rules for the Crons of these jobs.

The rules of all Crons, in `chaos_crons`, apply to them, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from chaos_crons import (
    CRON_KINDS,
    LAST_SECONDS,
    Content,
    CronChange,
    CronEntry,
    CronHistories,
    ScheduleScript,
    SourceChange,
)
from chaos_feature_rules import IN_FLIGHT_SECONDS
from chaos_judge import Violation
from chaos_pods import PodRunner
from chaos_scripts import End, JobScript, spec_of
from chaos_tensorboard_rules import CREATE_SECONDS

from dlop.api.cron import CRONS, ConcurrencyPolicy
from dlop.frameworks.kubedl.schema import KubeDLSchema
from dlop.kube.client import Client, Propagation
from dlop.kube.errors import NotFoundError
from dlop.kube.types import JsonObject

_POLL_SECONDS = 0.1

# --- scripts ---------------------------------------------------------------------------------------------------------


class PolicyEdit(StrEnum):
    """Edits by a user of a job with a `cronPolicy`, and of its Cron."""

    CHANGE_SCHEDULE = "change the schedule"
    CHANGE_TEMPLATE = "change the template of a job with cronPolicy"
    SUSPEND = "suspend cronPolicy"
    RESUME = "resume cronPolicy"
    REMOVE = "remove cronPolicy"
    RESTORE = "restore cronPolicy"
    DELETE_JOB = "delete a job with cronPolicy"
    DELETE_CRON = "delete the Cron of a job"
    SUSPEND_CRON = "suspend the Cron of a deleted job"


class ScheduleEnd(StrEnum):
    """How a user ends a schedule."""

    SUSPENDED = "suspended"
    REMOVED = "removed"
    DELETED = "deleted"
    OUTLIVED = "outlived"
    """The Cron outlives its job, and is suspended."""


_LAST_EDITS = {
    ScheduleEnd.SUSPENDED: (PolicyEdit.SUSPEND,),
    ScheduleEnd.REMOVED: (PolicyEdit.REMOVE, PolicyEdit.DELETE_CRON),
    ScheduleEnd.DELETED: (PolicyEdit.DELETE_JOB, PolicyEdit.DELETE_CRON),
    ScheduleEnd.OUTLIVED: (PolicyEdit.DELETE_JOB, PolicyEdit.SUSPEND_CRON),
}
_WITHOUT_CRON = (ScheduleEnd.REMOVED, ScheduleEnd.DELETED)
_EDITS = (
    (PolicyEdit.CHANGE_SCHEDULE,),
    (PolicyEdit.CHANGE_TEMPLATE,),
    (PolicyEdit.SUSPEND, PolicyEdit.RESUME),
    (PolicyEdit.REMOVE, PolicyEdit.RESTORE),
    (PolicyEdit.DELETE_CRON,),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCronScript(ScheduleScript):
    """A job with a `cronPolicy`. Its Cron has the same name."""

    is_inline: bool
    """Whether the policy is in the spec, as KubeDL has it, and not in `runPolicy`."""
    edits: tuple[tuple[float, PolicyEdit], ...]
    """With the seconds before each of them."""
    end: ScheduleEnd
    end_seconds: float
    """Before the end."""

    @property
    def job(self) -> JobScript:
        """What the pods of the job with the policy do."""
        script = self.job_script(self.name)
        return script if PolicyEdit.DELETE_JOB not in _LAST_EDITS[self.end] else replace(script, end=End.DELETED)

    def body(self, namespace: str) -> JsonObject:
        return self.job.body(namespace) | {"spec": self.spec(self.policy_fields(), image=self.job.draft.image)}

    def spec(self, policy: JsonObject | None, *, image: str) -> JsonObject:
        """The spec of the job. None is the policy of a patch that removes it."""
        spec: JsonObject = spec_of(self.kind, replace(self.job.draft, image=image))
        (spec if self.is_inline else spec["runPolicy"])["cronPolicy"] = policy
        return spec


def draw_job_crons(*, seed: int) -> Iterator[JobCronScript]:
    """An endless sequence of scripts. Every end occurs once in each round."""
    rng, number = Random(f"{seed}/job crons"), 0
    while True:
        for end in rng.sample(list(ScheduleEnd), len(ScheduleEnd)):
            yield _draw_job_cron(f"scheduled-{number}", end, rng)
            number += 1


def _draw_job_cron(name: str, end: ScheduleEnd, rng: Random) -> JobCronScript:
    kind = rng.choice(CRON_KINDS)
    edits: list[tuple[float, PolicyEdit]] = []
    for group in rng.sample(_EDITS, rng.randint(1, 3)):
        edits.append((rng.uniform(1.0, 8.0), group[0]))
        # Long enough for a Cron that does not stop to be found.
        edits += [(rng.uniform(IN_FLIGHT_SECONDS, 3 * IN_FLIGHT_SECONDS), edit) for edit in group[1:]]
    return JobCronScript(
        name=name,
        kind=kind,
        policy=rng.choice(list(ConcurrencyPolicy)),
        every_seconds=rng.randint(2, 4),
        history_limit=rng.randint(1, 4),
        is_inline=isinstance(kind.schema, KubeDLSchema) and rng.random() < 0.5,
        edits=tuple(edits),
        end=end,
        end_seconds=rng.choice((rng.uniform(0.0, 0.5), rng.uniform(2.0, 8.0))),
    )


# --- users -----------------------------------------------------------------------------------------------------------


class JobCronRun:
    """The user of one job with a `cronPolicy`."""

    def __init__(
        self, client: Client, pods: PodRunner, histories: CronHistories, script: JobCronScript, *, namespace: str, calm: asyncio.Event
    ) -> None:
        """`calm` is set when there are no more faults. The user then ends the schedule after a time in which it must create a job."""
        self.script = script
        self.is_certain = False
        """Whether the Cron must have created a job."""
        self.is_done = False
        self._client = client
        self._pods = pods
        self._histories = histories
        self._namespace = namespace
        self._calm = calm
        self._policy = script.policy_fields()
        self._has_policy = True
        self._image = script.job.draft.image

    async def run(self) -> None:
        script, job_type = self.script, self.script.kind.job_type
        run = self._pods.add_job(script.job)
        await self._client.create(job_type.resource, script.body(self._namespace), namespace=self._namespace)
        for seconds, edit in script.edits:
            await self._pause(seconds)
            if self._calm.is_set():
                break
            await self._edit(edit)
        await self._pause(script.end_seconds)
        if self._calm.is_set():
            if not self._has_policy or self._policy["suspend"]:
                await self._edit(PolicyEdit.RESTORE)
                await self._edit(PolicyEdit.RESUME)
            await asyncio.sleep(LAST_SECONDS + IN_FLIGHT_SECONDS)
            self.is_certain = True
        await self._until(lambda cron: cron is not None)
        for edit in _LAST_EDITS[script.end]:
            await self._edit(edit)
        if script.end is ScheduleEnd.SUSPENDED:
            # The time to live of the job must not end before.
            await self._until(lambda cron: cron is not None and cron.suspended)
        run.edits_done.set()
        self.is_done = True

    async def _pause(self, seconds: float) -> None:
        """Wait for this time, or until there are no more faults."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._calm.wait(), seconds)

    async def _until(self, reached: Callable[[CronChange | None], bool]) -> None:
        """Wait for a state of the Cron, at most for the time in which the operator must reach it."""
        for _ in range(round(CREATE_SECONDS / _POLL_SECONDS)):
            if reached(self._histories.crons.get(self.script.name)):
                return
            await asyncio.sleep(_POLL_SECONDS)

    async def _edit(self, edit: PolicyEdit) -> None:
        name, resource = self.script.name, self.script.kind.job_type.resource
        self._pods.faults[edit] += 1
        self._pods.inject(self._pods.runs[name], edit.value)
        match edit:
            case PolicyEdit.DELETE_JOB:
                await self._client.delete(resource, name, namespace=self._namespace, propagation=Propagation.BACKGROUND)
                return
            case PolicyEdit.DELETE_CRON:
                await self._until(lambda cron: cron is not None)
                with contextlib.suppress(NotFoundError):
                    await self._client.delete(CRONS, name, namespace=self._namespace, propagation=Propagation.BACKGROUND)
                return
            case PolicyEdit.SUSPEND_CRON:
                with contextlib.suppress(NotFoundError):
                    await self._client.patch(CRONS, name, {"spec": {"suspend": True}}, namespace=self._namespace)
                return
            case PolicyEdit.CHANGE_SCHEDULE:
                self._policy["schedule"] = f"@every {self.script.every_seconds + 1}s"
            case PolicyEdit.CHANGE_TEMPLATE:
                self._image = f"{self._image}1"
            case PolicyEdit.SUSPEND | PolicyEdit.RESUME:
                self._policy["suspend"] = edit is PolicyEdit.SUSPEND
            case PolicyEdit.REMOVE | PolicyEdit.RESTORE:
                self._has_policy = edit is PolicyEdit.RESTORE
        spec = self.script.spec(self._policy if self._has_policy else None, image=self._image)
        await self._client.patch(resource, name, {"spec": spec}, namespace=self._namespace)


# --- rules -----------------------------------------------------------------------------------------------------------


def judge_job_crons(
    scripts: Iterable[JobCronScript], histories: CronHistories, *, others: Collection[str], ended_at: float
) -> list[Violation]:
    """Violations of the Crons of jobs, when nothing changes any more. `others` are the Crons that users have created."""
    violations: list[Violation] = []
    known = set(others)
    for script in scripts:
        known.add(script.name)
        entries = tuple(histories.entries.get(script.name, ()))
        found = _JobCronJudge(script).judge(entries, ended_at=ended_at)
        violations += [Violation(rule, script.title, text, entries) for rule, text in dict.fromkeys(found)]
    for name, unknown in histories.entries.items():
        if name not in known and any(isinstance(entry, CronChange) for entry in unknown):
            violations.append(Violation("unexpected Cron", f"Cron {name}", "no job has asked for it", tuple(unknown)))
    return violations


class _JobCronJudge:
    """Whether a Cron follows its job."""

    def __init__(self, script: JobCronScript) -> None:
        self._script = script
        self._wanted: Content | None = None
        self._cron: CronChange | None = None
        self._policy_ended_at: float | None = None
        """When the job lost its policy or was deleted; None if it has not."""
        self._was_deleted = False
        """Whether a user has deleted the Cron since then."""
        self._differs_since: float | None = None
        """Since when the Cron is not what the job asks for."""

    def judge(self, entries: Sequence[CronEntry], *, ended_at: float) -> Iterator[tuple[str, str]]:
        for entry in sorted(entries, key=lambda entry: entry.revision):
            yield from self._check_difference(entry.seconds)
            match entry:
                case SourceChange():
                    self._add_job(entry)
                case CronChange():
                    yield from self._add_cron(entry)
        yield from self._check_difference(ended_at)
        yield from self._check_end()

    def _add_job(self, change: SourceChange) -> None:
        if change.content is not None:
            self._policy_ended_at, self._was_deleted = None, False
        elif self._wanted is not None:
            self._policy_ended_at, self._was_deleted = change.seconds, False
        is_edited = change.content != self._wanted
        self._wanted = change.content
        self._note_difference(change.seconds, is_edited=is_edited)

    def _add_cron(self, change: CronChange) -> Iterator[tuple[str, str]]:
        name = f"Cron {self._script.name} ({change.uid[:8]})"
        if change.created and self._wanted is None:
            if self._policy_ended_at is None:
                yield "unexpected Cron", f"{name} was created, and the job has asked for none"
            elif self._was_deleted or change.seconds > self._policy_ended_at + IN_FLIGHT_SECONDS:
                delay = change.seconds - self._policy_ended_at
                yield "unexpected Cron", f"{name} was created {delay:.1f} s after the job was deleted or lost its cronPolicy"
        if self._cron is not None and self._cron.uid == change.uid and _is_older(change.source, self._cron.source):
            yield "older cronPolicy", f"{name} was made from {self._cron.source}, and was changed at {change.revision} to {change.source}"
        self._was_deleted = self._was_deleted or change.deleted
        self._cron = None if change.deleted else change
        self._note_difference(change.seconds, is_edited=change.deleted)

    def _note_difference(self, now: float, *, is_edited: bool) -> None:
        if self._wanted is None or (self._cron is not None and self._cron.content == self._wanted):
            self._differs_since = None
        elif is_edited or self._differs_since is None:
            self._differs_since = now

    def _check_difference(self, now: float) -> Iterator[tuple[str, str]]:
        if self._differs_since is None or now <= self._differs_since + CREATE_SECONDS:
            return
        if self._cron is None:
            yield "no Cron", f"the job has a cronPolicy since {self._differs_since:.0f} s, and no Cron"
        else:
            yield "outdated Cron", f"the Cron does not have what the job asks for since {self._differs_since:.0f} s"

    def _check_end(self) -> Iterator[tuple[str, str]]:
        if self._script.end in _WITHOUT_CRON:
            if self._cron is not None:
                yield "Cron survives", f"Cron {self._script.name} ({self._cron.uid[:8]}) exists, and a user has deleted it"
        elif self._cron is None:
            yield "no Cron", "the Cron of the job does not exist at the end"
        elif not self._cron.suspended:
            yield "outdated Cron", "a user has suspended the schedule, and the Cron is not suspended at the end"


def _is_older(source: str, previous: str) -> bool:
    """Whether a source is an earlier generation of the same job."""
    (job, _, generation), (previous_job, _, previous_generation) = source.partition("/"), previous.partition("/")
    return job == previous_job and int(generation or 0) < int(previous_generation or 0)
