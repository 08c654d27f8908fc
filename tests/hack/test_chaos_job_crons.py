"""Jobs with a `cronPolicy` in `hack/chaos`: their scripts are valid, and the judge finds every violation of their rules."""

from __future__ import annotations

import base64
import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from chaos_crons import CRON_RESOURCE, Content, CronChange, CronEntry, CronHistories, SourceChange
from chaos_feature_rules import IN_FLIGHT_SECONDS
from chaos_job_crons import JobCronScript, PolicyEdit, ScheduleEnd, draw_job_crons, judge_job_crons
from chaos_scripts import End
from chaos_tensorboard_rules import CREATE_SECONDS
from chaos_watch import parse_event

from dlop.api.cron import SOURCE_ANNOTATION
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.types import JsonObject
from dlop.reconcile.cron import cron_manifest

pytestmark = pytest.mark.selftest

_decode_job = object_decoder(CustomObject)


def job_cron(end: ScheduleEnd = ScheduleEnd.SUSPENDED) -> JobCronScript:
    return next(script for script in draw_job_crons(seed=1) if script.end is end)


def content(schedule: str = "@every 2s", *, suspend: bool = False) -> Content:
    return Content({"schedule": schedule, "suspend": suspend}, {"image": "train:1"})


class History:
    """The history of a job and its Cron. Each change has the next revision, and takes one second."""

    def __init__(self) -> None:
        self.entries: list[CronEntry] = []
        self._seconds = 0.0
        self._content: Content | None = None
        self._generation = 0

    def _next(self) -> dict[str, Any]:
        self._seconds += 1.0
        return {"revision": len(self.entries) + 1, "seconds": self._seconds}

    def job(self, content: Content | None, *, deleted: bool = False) -> History:
        self._content, self._generation = content, self._generation + 1
        self.entries.append(SourceChange(**self._next(), uid="job", generation=self._generation, content=content, deleted=deleted))
        return self

    def cron(self, uid: str = "cron", *, created: bool = False, deleted: bool = False, generation: int = 0) -> History:
        """The Cron gets the content that the job has."""
        wanted = self._content or content()
        source = f"job/{generation or self._generation}"
        change = CronChange(**self._next(), uid=uid, content=wanted, source=source, created=created, deleted=deleted)
        self.entries.append(replace(change, suspended=wanted.policy["suspend"]))
        return self

    def created(self, uid: str = "cron") -> History:
        return self.cron(uid, created=True)

    def wait(self, seconds: float = CREATE_SECONDS) -> History:
        self._seconds += seconds
        return self

    def suspended(self) -> History:
        return self.job(content(suspend=True)).cron()


def running() -> History:
    """A job with a Cron."""
    return History().job(content()).created()


def rules(history: History, end: ScheduleEnd = ScheduleEnd.SUSPENDED) -> list[str]:
    script, ended_at = job_cron(end), history.wait()._seconds + 1
    return [
        violation.rule
        for violation in judge_job_crons([script], CronHistories({script.name: history.entries}), others=(), ended_at=ended_at)
    ]


# --- scripts ---------------------------------------------------------------------------------------------------------


def test_a_seed_determines_jobs_with_a_policy_and_every_end() -> None:
    def draw(seed: int) -> list[JobCronScript]:
        return list(itertools.islice(draw_job_crons(seed=seed), 40))

    assert draw(3) == draw(3) != draw(4)
    for number in range(0, 40, len(ScheduleEnd)):
        assert {script.end for script in draw(3)[number : number + len(ScheduleEnd)]} == set(ScheduleEnd)
    assert {script.is_inline for script in draw(3)} == {True, False}
    drawn = {edit for script in draw(3) for _, edit in script.edits}
    assert drawn == set(PolicyEdit) - {PolicyEdit.DELETE_JOB, PolicyEdit.SUSPEND_CRON}
    for script in draw(3):
        policy = script.kind(_decode_job(msgspec.json.encode(script.body("chaos")))).spec.run_policy.cron_policy
        assert policy == script.policy_fields()
        assert (script.job.end is End.DELETED) == (script.end in (ScheduleEnd.DELETED, ScheduleEnd.OUTLIVED))


# --- rules -----------------------------------------------------------------------------------------------------------


def test_a_cron_that_follows_its_job_is_no_violation() -> None:
    assert rules(running().job(content("@every 3s")).cron().suspended().job(None, deleted=True)) == []
    assert rules(running().job(None).wait().job(content("@every 3s")).cron().suspended()) == []
    assert rules(running().cron(deleted=True).created("again").job(content(suspend=True)).cron("again")) == []
    assert rules(running().job(None).cron(deleted=True), ScheduleEnd.REMOVED) == []
    assert rules(running().job(None, deleted=True).cron(deleted=True), ScheduleEnd.DELETED) == []


@pytest.mark.parametrize(("seconds", "expected"), [(CREATE_SECONDS - 2, []), (CREATE_SECONDS, ["no Cron"])])
def test_a_job_that_has_no_cron_for_too_long_is_a_violation(seconds: float, expected: list[str]) -> None:
    assert rules(History().job(content()).wait(seconds).created().suspended()) == expected
    deleted = running().cron(deleted=True).wait(seconds).created("again")
    assert rules(deleted.job(content(suspend=True)).cron("again")) == expected


@pytest.mark.parametrize(("seconds", "expected"), [(CREATE_SECONDS - 2, []), (CREATE_SECONDS, ["outdated Cron"])])
def test_a_cron_that_does_not_have_the_policy_or_template_of_its_job_for_too_long_is_a_violation(
    seconds: float, expected: list[str]
) -> None:
    assert rules(running().job(content("@every 3s")).wait(seconds).cron().suspended()) == expected
    template = replace(content(), template={"image": "train:2"})
    assert rules(running().job(template).wait(seconds).cron().suspended()) == expected


def test_a_cron_that_never_follows_is_a_violation_at_the_end() -> None:
    assert rules(running().suspended().job(content("@every 3s", suspend=True))) == ["outdated Cron"]


def test_edits_one_after_another_start_the_time_again() -> None:
    history = running()
    for number in range(3, 6):
        history.job(content(f"@every {number}s")).wait(CREATE_SECONDS - 2)
    assert rules(history.cron().suspended()) == []


def test_a_cron_that_gets_the_policy_of_an_earlier_generation_is_a_violation() -> None:
    assert rules(running().job(content("@every 3s")).cron().cron(generation=1).suspended()) == ["older cronPolicy"]


def test_a_cron_for_a_job_without_a_policy_is_a_violation() -> None:
    assert rules(History().job(None).created().suspended()) == ["unexpected Cron"]


@pytest.mark.parametrize("deleted", [False, True])
def test_a_cron_that_is_created_although_its_job_was_deleted_or_lost_its_policy_before_the_cron_is_a_violation(deleted: bool) -> None:
    history = running().job(None, deleted=deleted).cron(deleted=True).created("again").cron("again", deleted=True)
    assert rules(history, ScheduleEnd.REMOVED) == ["unexpected Cron"]


@pytest.mark.parametrize(("delay", "expected"), [(0.0, []), (IN_FLIGHT_SECONDS, ["unexpected Cron"])])
def test_the_create_of_a_cron_may_be_in_flight_when_the_job_loses_its_policy(delay: float, expected: list[str]) -> None:
    history = running().cron(deleted=True).job(None).wait(delay).created("again").cron("again", deleted=True)
    assert rules(history, ScheduleEnd.REMOVED) == expected


@pytest.mark.parametrize("end", [ScheduleEnd.REMOVED, ScheduleEnd.DELETED])
def test_a_cron_that_exists_at_the_end_although_a_user_has_ended_its_schedule_is_a_violation(end: ScheduleEnd) -> None:
    assert rules(running().job(None), end) == ["Cron survives"]


def test_a_cron_that_is_not_there_or_not_suspended_at_the_end_is_a_violation() -> None:
    assert rules(running().job(None, deleted=True).cron(deleted=True), ScheduleEnd.OUTLIVED) == ["no Cron"]
    assert rules(running().job(None, deleted=True), ScheduleEnd.OUTLIVED) == ["outdated Cron"]


def test_a_cron_that_no_job_has_asked_for_is_a_violation() -> None:
    histories = CronHistories({"other": running().entries, "nightly": History().created().entries})
    (violation,) = judge_job_crons([], histories, others=("nightly",), ended_at=0.0)
    assert (violation.rule, violation.job) == ("unexpected Cron", "Cron other")


# --- the watch -------------------------------------------------------------------------------------------------------


def watch(histories: CronHistories, key: str, body: JsonObject, *, revision: int, deleted: bool = False) -> None:
    path, value = (base64.b64encode(text).decode() for text in (f"/registry/{key}".encode(), msgspec.json.encode(body)))
    pair = {"key": path, "mod_revision": str(revision), "create_revision": str(revision), "value": value}
    change = parse_event({"kv": pair, "type": "DELETE", "prev_kv": pair} if deleted else {"kv": pair}, seconds=float(revision))
    assert change is not None
    histories.add(change)


@pytest.mark.parametrize("inline", [False, True])
def test_the_cron_of_the_operator_has_what_the_history_of_the_job_asks_for(inline: bool) -> None:
    script = next(script for script in draw_job_crons(seed=1) if script.is_inline is inline)
    histories, body = CronHistories(), script.body("chaos")
    body["metadata"] |= {"uid": "u", "generation": 2}
    key = f"{script.kind.job_type.group}/{script.kind.job_type.plural}/chaos/{script.name}"
    watch(histories, key, body, revision=1)
    made = cron_manifest(script.kind(_decode_job(msgspec.json.encode(body))), script.policy_fields())
    watch(histories, f"{CRON_RESOURCE}/chaos/{script.name}", made | {"metadata": made["metadata"] | {"uid": "c"}}, revision=2)
    source, cron = histories.entries[script.name]
    assert isinstance(source, SourceChange)
    assert isinstance(cron, CronChange)
    assert (source.uid, source.generation, source.content) == ("u", 2, cron.content)
    assert (cron.uid, cron.source) == ("c", made["metadata"]["annotations"][SOURCE_ANNOTATION])
    assert histories.crons == {script.name: cron}


def test_a_job_that_loses_its_policy_or_is_deleted_asks_for_no_cron() -> None:
    script = job_cron()
    histories, body = CronHistories(), script.body("chaos")
    body["metadata"] |= {"uid": "u"}
    key = f"{script.kind.job_type.group}/{script.kind.job_type.plural}/chaos/{script.name}"
    watch(histories, key, body, revision=1)
    watch(histories, key, script.job.body("chaos") | {"metadata": body["metadata"]}, revision=2)
    watch(histories, key, body, revision=3, deleted=True)
    entries = [entry for entry in histories.entries[script.name] if isinstance(entry, SourceChange)]
    assert [(entry.content is None, entry.deleted) for entry in entries] == [(False, False), (True, False), (True, True)]
