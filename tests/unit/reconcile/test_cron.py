"""The plan of a pass over a Cron: which job is due, what waits for it, and what the status says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlop.api.cron import CRONS, MAX_HISTORY, SCHEDULED_TIME_ANNOTATION, read_cron_spec
from dlop.api.phase import Phase
from dlop.api.record import Blocked
from dlop.api.spec import Problem, SpecError
from dlop.console.crons import render_cron_page
from dlop.jobs.crons import CronHandle, build_cron_view
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.resources import Resource
from dlop.kube.timestamps import format_time, parse_time
from dlop.kube.types import JsonObject
from dlop.reconcile.cron import CreatedJob, CronPlan, CronSnapshot, finish_pass, next_run, plan_cron

START = 1_767_225_600.0  # 2026-01-01T00:00:00Z
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
JOBS = Resource("example.org", "v1", "ringjobs", "RingJob")
WATCHED = frozenset({(JOBS.group, JOBS.kind)})
decode = object_decoder(CustomObject)


def cron_spec(schedule: str = "@hourly", **fields: Any) -> JsonObject:
    workload = {"metadata": fields.pop("metadata", {}), "spec": {"replicas": 1}}
    return {"schedule": schedule, "template": {"apiVersion": "example.org/v1", "kind": "RingJob", "workload": workload}, **fields}


def cron(spec: JsonObject | None = None, status: JsonObject | None = None, **metadata: Any) -> CustomObject:
    own = {"name": "nightly", "namespace": "team", "uid": "cron-uid", "creationTimestamp": format_time(START), **metadata}
    body = {"apiVersion": CRONS.api_version, "kind": "Cron", "metadata": own, "spec": spec or cron_spec(), "status": status or {}}
    return decode(msgspec.json.encode(body))


def created_job(at: float, phase: Phase | None = Phase.RUNNING, **fields: Any) -> CreatedJob:
    name = f"nightly-{int(at)}"
    values = {"resource": JOBS, "name": name, "uid": f"uid-{name}", "created_at": at, "scheduled_at": at, "phase": phase}
    return CreatedJob(**{**values, "finished_at": "", "is_terminating": False, **fields})


def snapshot(stored: CustomObject, *jobs: CreatedJob, **fields: Any) -> CronSnapshot:
    spec = read_cron_spec(msgspec.json.decode(stored.spec), namespace="team")
    return CronSnapshot(**{"cron": stored, "spec": spec, "job_resource": JOBS, "jobs": jobs, "watched": WATCHED, **fields})


def plan_at(seconds: float, stored: CustomObject, *jobs: CreatedJob, **fields: Any) -> CronPlan:
    """The plan this many seconds after the creation of the Cron."""
    return plan_cron(snapshot(stored, *jobs, **fields), now=START + seconds)


def due(plan: CronPlan) -> float | None:
    """Seconds after the creation of the Cron for which a job is created."""
    return None if plan.create is None else plan.scheduled_at - START


def last_run(seconds: float) -> JsonObject:
    return {"lastScheduleTime": format_time(START + seconds)}


# --- when ----------------------------------------------------------------------------------------------------------------


def test_no_job_is_created_before_its_time() -> None:
    plan = plan_at(HOUR - 1, cron())
    assert (due(plan), plan.requeue_at, plan.status) == (None, START + HOUR, {})


def test_the_first_job_is_created_at_the_first_time_after_the_creation_of_the_cron() -> None:
    assert due(plan_at(HOUR, cron())) == HOUR
    assert due(plan_at(HOUR, cron(cron_spec("@every 25m")))) == 50 * MINUTE


def test_a_job_is_created_once() -> None:
    assert due(plan_at(HOUR + 5, cron(status=last_run(HOUR)))) is None
    # The status write was lost, and the job exists.
    assert due(plan_at(HOUR + 5, cron(), created_job(START + HOUR))) is None


def test_of_all_missed_jobs_only_the_latest_is_created() -> None:
    plan = plan_at(5.5 * HOUR, cron(status=last_run(HOUR)))
    assert due(plan) == 5 * HOUR
    assert [event.reason for event in plan.create_events] == ["SuccessfulCreate"]


def test_more_than_a_hundred_missed_jobs_are_reported() -> None:
    plan = plan_at(102 * HOUR, cron())
    assert due(plan) == 102 * HOUR
    assert [event.reason for event in plan.create_events] == ["SuccessfulCreate", "TooManyMissedTimes"]
    assert [event.reason for event in plan_at(100 * HOUR, cron()).create_events] == ["SuccessfulCreate"]


def test_a_job_is_not_created_when_it_is_too_late_for_it() -> None:
    stored = cron(cron_spec(startingDeadlineSeconds=600))
    assert due(plan_at(HOUR + 599, stored)) == HOUR
    assert due(plan_at(HOUR + 600, stored)) is None
    assert due(plan_at(5 * HOUR + 10, stored)) == 5 * HOUR


def test_a_suspended_cron_creates_nothing_and_has_no_timer() -> None:
    plan = plan_at(9 * HOUR, cron(cron_spec(suspend=True)))
    assert (due(plan), plan.requeue_at) == (None, None)


def test_a_resumed_cron_creates_the_latest_missed_job() -> None:
    assert due(plan_at(9.5 * HOUR, cron(status=last_run(HOUR)))) == 9 * HOUR


def test_nothing_is_created_from_the_deadline_on() -> None:
    stored = cron(cron_spec(deadline=format_time(START + 2 * HOUR)))
    assert due(plan_at(HOUR, stored)) == HOUR
    before = plan_at(1.2 * HOUR, cron(cron_spec(deadline=format_time(START + 1.5 * HOUR)), last_run(HOUR)))
    assert (due(before), before.requeue_at) == (None, START + 1.5 * HOUR)
    after = plan_at(2 * HOUR, stored)
    assert (due(after), after.requeue_at) == (None, None)
    assert after.blocked == Blocked(reason="Deadline", message="spec.deadline 2026-01-01T02:00:00Z has passed; no more jobs are created")


def test_a_cron_that_is_being_deleted_creates_nothing() -> None:
    assert due(plan_at(HOUR, cron(deletionTimestamp=format_time(START)))) is None


def test_the_next_run_is_known() -> None:
    hourly = cron(status=last_run(HOUR))
    assert next_run(hourly, read_cron_spec(cron_spec(), namespace="team"), now=START + 90 * MINUTE) == START + 2 * HOUR
    every = read_cron_spec(cron_spec("@every 7m"), namespace="team")
    assert next_run(hourly, every, now=START + HOUR + 8 * MINUTE) == START + HOUR + 14 * MINUTE
    for fields in ({"suspend": True}, {"deadline": format_time(START + 2 * HOUR)}):
        assert next_run(hourly, read_cron_spec(cron_spec(**fields), namespace="team"), now=START + 90 * MINUTE) is None


# --- earlier jobs --------------------------------------------------------------------------------------------------------


def test_allow_creates_a_job_beside_one_that_runs() -> None:
    assert due(plan_at(2 * HOUR, cron(), created_job(START + HOUR))) == 2 * HOUR


def test_forbid_waits_for_the_earlier_job_and_says_so() -> None:
    stored = cron(cron_spec(concurrencyPolicy="Forbid"))
    plan = plan_at(2 * HOUR, stored, created_job(START + HOUR))
    assert (due(plan), plan.deletes, plan.requeue_at) == (None, (), START + 3 * HOUR)
    assert plan.blocked is not None
    waits = f"a job is due and waits until RingJob nightly-{int(START + HOUR)} has finished, because spec.concurrencyPolicy is Forbid"
    assert (plan.blocked.reason, plan.blocked.message) == ("AlreadyActive", waits)
    assert due(plan_at(2.5 * HOUR, stored, created_job(START + HOUR, Phase.SUCCEEDED))) == 2 * HOUR


def test_forbid_waits_until_a_terminating_job_is_gone() -> None:
    stored = cron(cron_spec(concurrencyPolicy="Forbid"))
    assert due(plan_at(2 * HOUR, stored, created_job(START + HOUR, is_terminating=True))) is None


def test_forbid_waits_for_a_job_whose_kind_cannot_be_read() -> None:
    active = [{"apiVersion": "other.org/v1", "kind": "StarJob", "name": "star", "uid": "u"}]
    plan = plan_at(2 * HOUR, cron(cron_spec(concurrencyPolicy="Forbid"), {"active": active}))
    assert plan.blocked is not None
    assert "waits until StarJob star has finished" in plan.blocked.message
    assert plan.status["active"] == active


def test_a_waiting_job_is_given_up_when_it_is_too_late_for_it() -> None:
    stored = cron(cron_spec(concurrencyPolicy="Forbid", startingDeadlineSeconds=600))
    plan = plan_at(2 * HOUR, stored, created_job(START + HOUR))
    assert plan.requeue_at == START + 2 * HOUR + 600
    late = plan_at(2 * HOUR + 600, stored, created_job(START + HOUR))
    assert (late.blocked, late.requeue_at) == (None, START + 3 * HOUR)


def test_replace_deletes_the_earlier_job_first() -> None:
    stored, running = cron(cron_spec(concurrencyPolicy="Replace")), created_job(START + HOUR)
    plan = plan_at(2 * HOUR, stored, running, created_job(START, Phase.FAILED))
    assert [(delete.name, delete.uid) for delete in plan.deletes] == [(running.name, running.uid)]
    assert due(plan) is None
    assert [event.reason for event in plan.events] == ["SuccessfulDelete"]
    assert due(plan_at(2 * HOUR + 1, stored, replace(running, is_terminating=True))) == 2 * HOUR
    assert due(plan_at(2 * HOUR + 1, stored)) == 2 * HOUR


def test_jobs_with_a_fixed_name_do_not_overlap() -> None:
    stored = cron(cron_spec(metadata={"name": "train"}))
    first = plan_at(HOUR, stored)
    assert first.create is not None
    assert first.create.name == "train"
    assert [event.reason for event in first.create_events] == ["SuccessfulCreate", "OverridePolicy"]
    running = created_job(START + HOUR, name="train")
    waiting = plan_at(2 * HOUR, stored, running).blocked
    assert waiting is not None
    assert (waiting.reason, "metadata.name is set" in waiting.message) == ("AlreadyActive", True)
    finished = plan_at(2 * HOUR, stored, replace(running, phase=Phase.SUCCEEDED))
    assert (due(finished), finished.blocked and finished.blocked.reason) == (None, "NameConflict")
    assert due(plan_at(2 * HOUR, cron(cron_spec(metadata={"name": "train"}), last_run(HOUR)))) == 2 * HOUR


# --- the job -------------------------------------------------------------------------------------------------------------


def test_a_job_has_the_template_and_the_names_of_kubedl() -> None:
    metadata = {"labels": {"team": "a"}, "annotations": {"note": "b"}, "generateName": "x-", "uid": "u", "ownerReferences": [{}]}
    plan = plan_at(HOUR, cron(cron_spec(metadata=metadata)))
    assert plan.create is not None
    owner = {"apiVersion": "apps.kubedl.io/v1alpha1", "kind": "Cron", "name": "nightly", "uid": "cron-uid"}
    assert plan.create.resource == JOBS
    assert plan.create.body == {
        "apiVersion": "example.org/v1",
        "kind": "RingJob",
        "metadata": {
            "name": f"nightly-{int(START + HOUR)}",
            "namespace": "team",
            "labels": {"team": "a", "kubedl.io/cron-name": "nightly"},
            "annotations": {"note": "b", SCHEDULED_TIME_ANNOTATION: str(int(START + HOUR))},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {"replicas": 1},
    }


def test_names_and_labels_stay_within_their_limits() -> None:
    name = "a" * 253
    plan = plan_at(HOUR, cron(name=name))
    assert plan.create is not None
    assert len(plan.create.name) <= 63
    assert plan.create.name.endswith(f"-{int(START + HOUR)}")
    assert len(plan.create.body["metadata"]["labels"]["kubedl.io/cron-name"]) <= 63


# --- the status ----------------------------------------------------------------------------------------------------------


def finish(stored: CustomObject, plan: CronPlan, *, created: bool = False, at: float = 0.0) -> tuple[JsonObject, list[str]]:
    status, events = finish_pass(stored, plan, created=created, rejection=None, now=START + at)
    return status, [event.reason for event in events]


def test_the_status_says_when_the_last_job_was_created() -> None:
    stored = cron()
    assert finish(stored, plan_at(HOUR, stored), created=True)[0] == last_run(HOUR)
    assert finish(stored, plan_at(HOUR, stored), created=False)[0] == {}


def test_jobs_are_active_and_then_finished() -> None:
    running, stored = created_job(START + HOUR), cron()
    status, _ = finish(stored, plan_at(HOUR + 1, stored, running))
    entry = {
        "object": {"apiGroup": "example.org", "kind": "RingJob", "name": running.name},
        "status": "Running",
        "created": "2026-01-01T01:00:00Z",
    }
    reference = {"apiVersion": "example.org/v1", "kind": "RingJob", "namespace": "team", "name": running.name, "uid": running.uid}
    assert status == {**last_run(HOUR), "active": [reference], "history": [entry]}
    stored = cron(status=status)
    finished = replace(running, phase=Phase.SUCCEEDED, finished_at="2026-01-01T01:30:00Z")
    status, events = finish(stored, plan_at(1.5 * HOUR, stored, finished))
    assert status == {**last_run(HOUR), "history": [{**entry, "status": "Succeeded", "finished": "2026-01-01T01:30:00Z"}]}
    assert events == ["SawCompletedWorkload"]
    stored = cron(status=status)
    assert finish(stored, plan_at(1.5 * HOUR, stored, finished)) == (status, [])
    assert finish(stored, plan_at(1.6 * HOUR, stored)) == (status, [])  # the job was deleted after its time to live


def test_a_job_that_was_deleted_is_no_longer_active() -> None:
    running, stored = created_job(START + HOUR), cron()
    stored = cron(status=finish(stored, plan_at(HOUR + 1, stored, running))[0])
    status, events = finish(stored, plan_at(HOUR + 2, stored))
    assert ("active" in status, events) == (False, ["MissingWorkload"])


@pytest.mark.parametrize(
    ("phase", "text"), [(None, "Created"), (Phase.INVALID, "Failed"), (Phase.SUSPENDED, "Suspended"), (Phase.RESTARTING, "Restarting")]
)
def test_the_history_has_the_words_of_conditions(phase: Phase | None, text: str) -> None:
    stored = cron()
    [entry] = plan_at(HOUR, stored, created_job(START, phase)).status["history"]
    assert entry["status"] == text


def test_the_history_keeps_the_newest_jobs() -> None:
    jobs = [created_job(START + number * HOUR, Phase.SUCCEEDED) for number in range(MAX_HISTORY + 5)]
    limited = plan_at(0, cron(cron_spec(historyLimit=2)), *jobs).status["history"]
    assert [entry["object"]["name"] for entry in limited] == [job.name for job in jobs[-2:]]
    assert "history" not in plan_at(0, cron(cron_spec(historyLimit=0)), *jobs).status
    assert len(plan_at(0, cron(), *jobs).status["history"]) == MAX_HISTORY


def test_a_block_is_reported_once_and_ends() -> None:
    spec = cron_spec(concurrencyPolicy="Forbid")
    stored, running = cron(spec), created_job(START + HOUR)
    status, events = finish(stored, plan_at(2 * HOUR, stored, running), at=2 * HOUR)
    [condition] = status["conditions"]
    since = "2026-01-01T02:00:00Z"
    assert (condition["type"], condition["status"], condition["lastTransitionTime"], events) == (
        "Blocked",
        "True",
        since,
        ["AlreadyActive"],
    )
    stored = cron(spec, status)
    assert finish(stored, plan_at(3 * HOUR, stored, running), at=3 * HOUR) == (status, [])
    done = plan_at(3 * HOUR, stored, replace(running, phase=Phase.SUCCEEDED))
    assert "conditions" not in finish(stored, done, created=True)[0]


def test_an_invalid_spec_is_reported_and_the_jobs_are_still_observed() -> None:
    stored = cron(cron_spec("every day", historyLimit=1))
    with pytest.raises(SpecError) as error:
        read_cron_spec(msgspec.json.decode(stored.spec), namespace="team")
    jobs = (created_job(START, Phase.SUCCEEDED), created_job(START + HOUR))
    view = CronSnapshot(cron=stored, spec=None, problems=error.value.problems, jobs=jobs, watched=WATCHED)
    plan = plan_cron(view, now=START + 2 * HOUR)
    assert plan.blocked is not None
    assert plan.blocked.reason == "InvalidSpec"
    assert plan.blocked.message.startswith("spec.schedule: must have five fields, got 2 in 'every day'")
    assert (len(plan.status["history"]), len(plan.status["active"]), plan.requeue_at) == (1, 1, None)


def test_problems_of_the_job_are_reported_before_it_is_due() -> None:
    problems = (Problem("spec.template.workload.spec.replicas", "must be at least 1"),)
    plan = plan_at(0, cron(), problems=problems)
    assert plan.blocked == Blocked(reason="InvalidSpec", message="spec.template.workload.spec.replicas: must be at least 1")


@pytest.mark.parametrize(
    "status",
    [
        {"active": "x", "history": {"a": 1}, "conditions": 7, "lastScheduleTime": 5},
        {"active": [None, {}], "history": [3, {"object": "x"}, {}], "conditions": [[], {"type": []}], "lastScheduleTime": "yesterday"},
        {"active": [{"uid": {}, "apiVersion": []}], "history": [{"created": [], "object": {"name": {}}}], "lastScheduleTime": []},
    ],
)
def test_a_status_that_was_edited_by_hand_is_repaired(status: JsonObject) -> None:
    stored = cron(status=status)
    plan = plan_at(HOUR, stored, created_job(START, Phase.SUCCEEDED))
    assert due(plan) == HOUR
    assert finish(stored, plan, created=True)[0]["lastScheduleTime"] == format_time(START + HOUR)


# --- bad specs -----------------------------------------------------------------------------------------------------------


TEMPLATE: JsonObject = cron_spec()["template"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schedule": None}, "spec.schedule: is missing; add a cron line, such as '0 2 * * *'"),
        ({"schedule": 5}, "spec.schedule: must be a string, got 5"),
        ({"timeZone": "Mars"}, "spec.timeZone: must be the name of a time zone, such as Europe/Paris, got 'Mars'"),
        ({"timeZone": 1}, "spec.timeZone: must be a string, got 1"),
        (
            {"schedule": "TZ=UTC @daily", "timeZone": "UTC"},
            "spec.schedule: must not have a time zone, because timeZone is set; remove the prefix",
        ),
        ({"concurrencyPolicy": "Never"}, "spec.concurrencyPolicy: must be one of Allow, Forbid, Replace, got 'Never'"),
        ({"suspend": "yes"}, "spec.suspend: must be true or false, got 'yes'"),
        ({"deadline": "tomorrow"}, "spec.deadline: must be a time with a time zone, such as 2030-12-31T23:00:00Z, got 'tomorrow'"),
        (
            {"deadline": "2030-01-01T00:00:00"},
            "spec.deadline: must be a time with a time zone, such as 2030-12-31T23:00:00Z, got '2030-01-01T00:00:00'",
        ),
        ({"startingDeadlineSeconds": 0}, "spec.startingDeadlineSeconds: must be from 1 to 2147483647, got 0"),
        ({"historyLimit": -1}, "spec.historyLimit: must be from 0 to 2147483647, got -1"),
        ({"template": None}, "spec.template: is missing; add apiVersion, kind and workload of the job"),
        ({"template": []}, "spec.template: must be an object, got a list"),
        ({"template": {**TEMPLATE, "kind": None}}, "spec.template.kind: is missing"),
        ({"template": {**TEMPLATE, "apiVersion": 1}}, "spec.template.apiVersion: must be a string, got 1"),
        ({"template": {**TEMPLATE, "workload": None}}, "spec.template.workload: is missing; add the job to create, with its spec"),
        ({"template": {**TEMPLATE, "workload": "x"}}, "spec.template.workload: must be an object, got 'x'"),
        (
            {"template": {**TEMPLATE, "workload": {"kind": "TFJob"}}},
            "spec.template.workload.kind: must be RingJob, as in spec.template.kind, got 'TFJob'",
        ),
        (
            {"template": {**TEMPLATE, "workload": {"metadata": {"namespace": "other"}}}},
            "spec.template.workload.metadata.namespace: must be the namespace of the Cron, team, got 'other'; remove it",
        ),
        (
            {"template": {**TEMPLATE, "workload": {"metadata": {"labels": {"a": 1}}}}},
            "spec.template.workload.metadata.labels.a: must be a string, got 1",
        ),
        (
            {"template": {**TEMPLATE, "workload": {"metadata": {"name": 5}}}},
            "spec.template.workload.metadata.name: must be a string, got 5",
        ),
    ],
)
def test_a_bad_field_is_named(change: JsonObject, problem: str) -> None:
    with pytest.raises(SpecError) as error:
        read_cron_spec({**cron_spec(), **change}, namespace="team")
    assert problem in map(str, error.value.problems)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "metadata", "labels", "name", "spec"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.sampled_from(["schedule", "timeZone", "concurrencyPolicy", "suspend", "deadline", "historyLimit", "template"]),
        JSON | st.fixed_dictionaries({"apiVersion": JSON, "kind": JSON, "workload": JSON}),
    )
    | JSON
)
def test_any_spec_is_read_or_explained(raw: Any) -> None:
    try:
        read_cron_spec(raw, namespace="team")
    except SpecError as error:
        assert all(problem.path.startswith("spec") for problem in error.problems)  # noqa: PT017 - most specs are errors


FIELD_NAMES = ["uid", "name", "object", "created", "type", "apiVersion", "kind", "finished"]
STATUS_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELD_NAMES), inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["active", "history", "conditions", "lastScheduleTime"]), STATUS_VALUES) | STATUS_VALUES)
def test_any_status_is_replaced(status: Any) -> None:
    stored = cron(status=status)
    plan = plan_at(HOUR, stored, created_job(START, Phase.SUCCEEDED))
    assert due(plan) == HOUR
    repaired, _ = finish(stored, plan, created=True)
    assert repaired["lastScheduleTime"] == format_time(START + HOUR)
    assert f"nightly-{int(START)}" in [entry["object"]["name"] for entry in repaired["history"] if isinstance(entry.get("object"), dict)]
    view = build_cron_view(CronHandle(stored), now=START)
    assert (view.name, view.next_scheduled_at) == ("nightly", "2026-01-01T01:00:00Z")
    assert render_cron_page(view, now=START)


# --- over time -----------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A Cron, its jobs, and an operator that runs passes at any time and may crash after any write."""

    spec: JsonObject
    now: float = START
    status: JsonObject = field(default_factory=dict)
    jobs: dict[str, CreatedJob] = field(default_factory=dict)
    starts: list[float] = field(default_factory=list)
    """The scheduled times for which a job was created, each time that it was."""

    def stored(self) -> CustomObject:
        return cron(self.spec, self.status)

    def active(self) -> list[CreatedJob]:
        return [job for job in self.jobs.values() if not job.is_finished]

    def run_pass(self, *, crash_after_create: bool = False) -> None:
        stored = self.stored()
        plan = plan_cron(snapshot(stored, *self.jobs.values()), now=self.now)
        for delete in plan.deletes:
            del self.jobs[delete.name]
        if plan.create is not None:
            self.create(plan)
            if crash_after_create:
                return
        self.status, _ = finish_pass(stored, plan, created=plan.create is not None, rejection=None, now=self.now)

    def create(self, plan: CronPlan) -> None:
        assert plan.create is not None
        assert not self.spec.get("suspend")
        assert plan.scheduled_at <= self.now
        if plan.create.name not in self.jobs:
            self.starts.append(plan.scheduled_at)
            job = created_job(plan.scheduled_at, None, created_at=self.now, name=plan.create.name)
            self.jobs[job.name] = job

    def check(self, limit: int) -> None:
        assert len(self.starts) == len(set(self.starts))
        assert self.starts == sorted(self.starts)
        assert len(self.status.get("history", ())) <= limit
        if self.spec["concurrencyPolicy"] != "Allow":
            assert len(self.active()) <= 1


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pass", "crash", "finish", "suspend", "resume", "delete"]),
        st.floats(0, 3 * HOUR),
    ),
    max_size=40,
)


@given(
    st.sampled_from(["*/10 * * * *", "@every 17m", "30 2 * * *"]),
    st.sampled_from(["Allow", "Forbid", "Replace"]),
    st.integers(0, 4),
    STEPS,
)
def test_whatever_happens_no_time_is_served_twice_and_policies_hold(
    schedule: str, policy: str, limit: int, steps: list[tuple[str, float]]
) -> None:
    world = World(cron_spec(schedule, concurrencyPolicy=policy, historyLimit=limit))
    for action, seconds in steps:
        world.now += seconds
        if action in ("pass", "crash"):
            world.run_pass(crash_after_create=action == "crash")
        elif action == "finish" and world.active():
            job = world.active()[0]
            world.jobs[job.name] = replace(job, phase=Phase.SUCCEEDED, finished_at=format_time(world.now))
        elif action == "delete" and world.status.get("lastScheduleTime"):
            # A job may only be deleted after a status write that followed its creation.
            recorded = parse_time(world.status["lastScheduleTime"]) or 0.0
            world.jobs = {name: job for name, job in world.jobs.items() if (job.scheduled_at or 0.0) > recorded or not job.is_finished}
        else:
            world.spec = {**world.spec, "suspend": action == "suspend"}
        world.check(limit)


@given(st.sampled_from(["*/10 * * * *", "@every 17m"]), st.lists(st.floats(0, 600), min_size=1, max_size=30))
def test_a_pass_at_rest_changes_nothing(schedule: str, delays: list[float]) -> None:
    world = World(cron_spec(schedule, concurrencyPolicy="Forbid"))
    for delay in delays:
        world.now += delay
        for _ in range(3):
            world.run_pass()
        before = world.status
        world.run_pass()
        assert world.status == before
