"""The Crons of `hack/chaos`: their scripts are valid, and the judge finds every violation of their rules."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from chaos_crons import CRON_RESOURCE, Content, CronChange, CronEntry, CronHistories, CronJobChange, CronScript, draw_crons, judge_crons
from chaos_feature_rules import IN_FLIGHT_SECONDS
from chaos_report import format_violation
from chaos_watch import Histories, parse_event

from dlop.api.cron import ConcurrencyPolicy, read_cron_spec
from dlop.api.schedule import Schedule
from dlop.kube.objects import CustomObject, object_decoder
from dlop.kube.types import JsonObject

pytestmark = pytest.mark.selftest

_decode_job = object_decoder(CustomObject)


def cron(policy: ConcurrencyPolicy = ConcurrencyPolicy.FORBID) -> CronScript:
    script = next(script for script in draw_crons(seed=1) if script.policy is policy)
    return replace(script, history_limit=2)


class History:
    """The history of a Cron. Each change has the next revision, and takes one second."""

    def __init__(self) -> None:
        self.entries: list[CronEntry] = []
        self._seconds = 0.0
        self.cron()

    def _next(self) -> dict[str, Any]:
        self._seconds += 1.0
        return {"revision": len(self.entries) + 1, "seconds": self._seconds}

    def cron(self, **fields: Any) -> History:
        self.entries.append(CronChange(**self._next(), **fields))
        return self

    def job(self, uid: str, *, time: str = "", **fields: Any) -> History:
        self.entries.append(CronJobChange(**self._next(), name=f"cron-{uid}", uid=uid, scheduled_time=time or uid, **fields))
        return self

    def created(self, uid: str, *, time: str = "", cron: str = "") -> History:
        return self.job(uid, time=time, created=True, cron_uid=cron)

    def wait(self, seconds: float) -> History:
        self._seconds += seconds
        return self


def rules(history: History, policy: ConcurrencyPolicy = ConcurrencyPolicy.FORBID) -> list[str]:
    script = cron(policy)
    return [violation.rule for violation in judge_crons([script], CronHistories({script.name: history.entries}))]


def test_a_seed_determines_one_valid_cron_for_each_policy() -> None:
    assert draw_crons(seed=3) == draw_crons(seed=3) != draw_crons(seed=4)
    for seed in range(5):
        scripts = draw_crons(seed=seed)
        specs = [read_cron_spec(script.body("chaos")["spec"], namespace="chaos") for script in scripts]
        assert [spec.concurrency_policy for spec in specs] == list(ConcurrencyPolicy)
        assert [script.is_deleted for script in scripts].count(True) == 1
        for script, spec in zip(scripts, specs, strict=True):
            assert spec.schedule == Schedule("", interval_seconds=script.every_seconds)
            job = {"metadata": {"name": "job"}, "spec": spec.template.spec}
            assert [role.name for role in script.kind(_decode_job(msgspec.json.encode(job))).spec.roles] == ["Worker"]


@pytest.mark.parametrize("policy", ConcurrencyPolicy)
def test_jobs_one_after_another_are_no_violation(policy: ConcurrencyPolicy) -> None:
    history = History().created("1").job("1", finished=True).cron(history=1).created("2").job("2", deleted=True).created("3")
    assert rules(history.job("3", finished=True).cron(history=2), policy) == []


def test_two_jobs_for_one_scheduled_time_are_a_violation() -> None:
    history = History().created("1").job("1", deleted=True).created("2", time="1")
    assert rules(history) == ["scheduled twice"]


@pytest.mark.parametrize(("policy", "expected"), [("Allow", []), ("Forbid", ["two active jobs"]), ("Replace", ["two active jobs"])])
def test_only_allow_may_have_two_active_jobs(policy: str, expected: list[str]) -> None:
    assert rules(History().created("1").created("2"), ConcurrencyPolicy(policy)) == expected


@pytest.mark.parametrize("state", [{"suspended": True}, {"deleted": True}])
@pytest.mark.parametrize(("delay", "expected"), [(0.0, []), (IN_FLIGHT_SECONDS, ["scheduled after the end"])])
def test_a_suspended_or_deleted_cron_creates_no_jobs(state: dict[str, Any], delay: float, expected: list[str]) -> None:
    history = History().created("1").job("1", finished=True).cron(**state).wait(delay)
    assert rules(history.created("2").job("2", finished=True)) == expected


def test_writes_of_the_status_do_not_extend_the_time_of_creates_in_flight() -> None:
    history = History().created("1").job("1", finished=True).cron(suspended=True).wait(IN_FLIGHT_SECONDS).cron(suspended=True, history=1)
    assert rules(history.created("2").job("2", finished=True)) == ["scheduled after the end"]


def test_a_resumed_cron_creates_jobs_again() -> None:
    history = History().created("1").job("1", finished=True).cron(suspended=True).wait(60).cron()
    assert rules(history.created("2").job("2", finished=True)) == []


def test_a_cron_that_was_deleted_and_created_again_has_jobs_of_its_own() -> None:
    again = History().cron(uid="a").created("1", cron="a").cron(uid="a", deleted=True).cron(uid="b", created=True).wait(60)
    assert rules(again.created("2", time="1", cron="b").job("1", deleted=True).job("2", finished=True, cron_uid="b")) == []


def test_a_job_of_a_deleted_cron_is_a_violation_although_the_cron_was_created_again() -> None:
    again = History().cron(uid="a").cron(uid="a", deleted=True).cron(uid="b", created=True).wait(IN_FLIGHT_SECONDS)
    assert rules(again.created("1", cron="a").job("1", deleted=True)) == ["scheduled after the end"]


def test_a_history_that_exceeds_its_limit_is_a_violation() -> None:
    assert rules(History().created("1").job("1", finished=True).cron(history=2)) == []
    assert rules(History().created("1").job("1", finished=True).cron(history=3)) == ["long history"]


def test_a_cron_without_jobs_is_a_violation() -> None:
    assert rules(History()) == ["no scheduled job"]
    script = cron()
    assert judge_crons([script], CronHistories({script.name: History().entries}), uncertain=[script.name]) == []


def test_a_status_that_lists_ended_jobs_as_active_is_a_violation() -> None:
    history = History().created("1").job("1", finished=True)
    assert rules(history.cron(active=("cron-1",))) == ["wrong active jobs"]
    assert rules(history.cron(deleted=True, active=("cron-1",))) == []


def test_a_violation_is_printed_with_the_history_of_the_cron() -> None:
    script = cron()
    (violation,) = judge_crons([script], CronHistories({script.name: History().created("1").created("2").entries}))
    lines = format_violation(violation, None, seed=1).splitlines()
    assert lines[0] == "VIOLATION two active jobs: Cron cron-forbid (Forbid): job cron-2 (2) was created while cron-1 (1) is active"
    assert lines[-1].endswith("job cron-2 (2, scheduled for 2): created")


# --- the watch -------------------------------------------------------------------------------------------------------


def watch(
    histories: CronHistories, key: str, body: JsonObject, *, revision: int, created: int = 1, operator: Histories | None = None
) -> None:
    path, value = (base64.b64encode(text).decode() for text in (f"/registry/{key}".encode(), msgspec.json.encode(body)))
    pair = {"key": path, "mod_revision": str(revision), "create_revision": str(created), "value": value}
    change = parse_event({"kv": pair}, seconds=float(revision))
    assert change is not None
    histories.add(change)
    if operator is not None:
        operator.add(change)


def test_crons_and_their_jobs_are_read_from_etcd() -> None:
    histories, script = CronHistories(), cron()
    body = script.body("chaos") | {"status": {"history": [{}, {}], "active": [{"name": "cron-1"}]}}
    body["metadata"]["uid"] = "c"
    watch(histories, f"{CRON_RESOURCE}/chaos/{script.name}", body, revision=1)
    content = Content(script.policy_fields(), body["spec"]["template"]["workload"]["spec"])
    labels, annotations = {"kubedl.io/cron-name": script.name}, {"dlop.dev/scheduled-time": "7"}
    owners = [{"kind": "Cron", "uid": "c"}]
    job: JsonObject = {"metadata": {"name": "job", "uid": "u", "labels": labels, "annotations": annotations, "ownerReferences": owners}}
    watch(histories, "kubeflow.org/tfjobs/chaos/job", job, revision=2, created=2)
    assert histories.unfinished() == {"job"}
    assert histories.finished_jobs(script.name) == set()
    watch(histories, "kubeflow.org/tfjobs/chaos/job", job | {"status": {"dlop": {"phase": "Succeeded"}}}, revision=3, created=2)
    assert histories.unfinished() == set()
    assert histories.finished_jobs(script.name) == {"job"}
    assert histories.entries == {
        script.name: [
            CronChange(revision=1, seconds=1.0, history=2, active=("cron-1",), uid="c", created=True, content=content),
            CronJobChange(revision=2, seconds=2.0, name="job", uid="u", scheduled_time="7", cron_uid="c", created=True),
            CronJobChange(revision=3, seconds=3.0, name="job", uid="u", scheduled_time="7", cron_uid="c", finished=True),
        ]
    }


def test_a_write_of_a_cron_at_rest_is_recorded() -> None:
    operator, script = Histories({}, namespace="chaos", others=(CRON_RESOURCE,)), cron()
    operator.late_changes = []
    watch(CronHistories(), f"{CRON_RESOURCE}/chaos/{script.name}", script.body("chaos"), revision=1, operator=operator)
    assert [change.key for change in operator.late_changes] == [f"{CRON_RESOURCE} {script.name}"]
