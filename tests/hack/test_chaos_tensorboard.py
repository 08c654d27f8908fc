"""TensorBoards in `hack/chaos`: the judge finds every violation of their rules."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from chaos_feature_rules import IN_FLIGHT_SECONDS, STALE_SECONDS
from chaos_features import Features, TensorBoardDraft
from chaos_history import CompanionChange, Entry, JobChange, PodChange
from chaos_judge import judge
from chaos_scripts import End, JobScript, RoleDraft, SpecDraft
from chaos_tensorboard_rules import CREATE_SECONDS
from chaos_watch import Histories, parse_event

from dlop.api.record import Record
from dlop.api.spec import RestartPolicy, RestartScope
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.kube.types import JsonObject

pytestmark = pytest.mark.selftest

WORKER = ("Worker", 0)
TTL_SECONDS = 2
TENSORBOARD = Features(tensorboard=TensorBoardDraft(TTL_SECONDS, has_ingress=False, is_deleted=False))


def script(features: Features = TENSORBOARD) -> JobScript:
    return JobScript(
        name="job",
        kind=JAXJob,
        draft=SpecDraft((RoleDraft("Worker", 1, RestartPolicy.EXIT_CODE),), features=features),
        end=End.SUCCEEDED,
        decisive=WORKER,
        culprit=None,
        culprit_fault=None,
        faults={},
        edits=(),
        scaled_role="",
        scope=RestartScope.REPLICA,
    )


class History:
    """The history of a job that runs. Each change has the next revision, and takes one second."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._seconds = 0.0
        self.job(phase="Running").pod(created=True).pod(phase="Running")

    def _next(self) -> dict[str, Any]:
        self._seconds += 1.0
        return {"revision": len(self.entries) + 1, "seconds": self._seconds}

    def job(self, *, deleted: bool = False, suspended: bool = False, **record: Any) -> History:
        stored = Record(observed_generation=1, **record)
        self.entries.append(JobChange(**self._next(), deleted=deleted, suspended=suspended, replicas={"Worker": 1}, record=stored))
        return self

    def pod(self, **fields: Any) -> History:
        self.entries.append(PodChange(**self._next(), name="job-worker-0", uid="p", replica=WORKER, attempt=0, **fields))
        return self

    def created(self, uid: str = "t") -> History:
        return self.tensorboard(uid, created=True)

    def tensorboard(self, uid: str = "t", *, key: str = "pods job-tensorboard-0", **fields: Any) -> History:
        self.entries.append(CompanionChange(**self._next(), key=key, uid=uid, is_pod=key.startswith("pods"), **fields))
        return self

    def wait(self, seconds: float) -> History:
        self._seconds += seconds
        return self

    def end(self) -> History:
        self.pod(phase="Succeeded", exit_code=0, finished_at=self._seconds)
        return self.job(phase="Succeeded", completed_indexes={"Worker": "0"})


def rules(history: History, features: Features = TENSORBOARD, *, is_over: bool = True) -> list[str]:
    return sorted({violation.rule for violation in judge(script(features), history.entries, is_over=is_over)})


def test_a_tensorboard_that_is_deleted_after_its_time_to_live_is_no_violation() -> None:
    history = History().tensorboard("s", key="services/specs job-tensorboard-0", created=True).created().end()
    assert rules(history.tensorboard(deleted=True).tensorboard("s", key="services/specs job-tensorboard-0", deleted=True)) == []


@pytest.mark.parametrize("key", ["pods job-tensorboard-0", "services/specs job-tensorboard-0"])
def test_an_object_that_survives_is_a_violation_when_nothing_changes_any_more(key: str) -> None:
    history = History().tensorboard("s", key=key, created=True).end()
    assert rules(history) == ["TensorBoard survives"]
    assert rules(history, is_over=False) == []


def test_only_a_pod_that_survives_its_deleted_job_is_a_violation() -> None:
    history = History().tensorboard("s", key="services/specs job-tensorboard-0", created=True).created().end().job(deleted=True)
    assert rules(history) == ["TensorBoard survives"]
    assert rules(history.tensorboard(deleted=True)) == []


def test_two_tensorboards_at_once_are_a_violation() -> None:
    history = History().created().created("u").tensorboard(deleted=True).tensorboard("u", deleted=True)
    assert rules(history, is_over=False) == ["two TensorBoards"]


def test_a_tensorboard_is_replaced_after_its_deletion() -> None:
    assert rules(History().created().tensorboard(deleted=True).created("u"), is_over=False) == []


def test_a_tensorboard_that_the_job_does_not_ask_for_is_a_violation() -> None:
    assert rules(History().created(), Features(), is_over=False) == ["unexpected TensorBoard"]


@pytest.mark.parametrize(("delay", "expected"), [(CREATE_SECONDS / 2, []), (CREATE_SECONDS + 1, ["no TensorBoard"])])
def test_a_job_that_runs_without_a_tensorboard_is_a_violation(delay: float, expected: list[str]) -> None:
    assert rules(History().wait(delay).pod(phase="Running"), is_over=False) == expected
    assert rules(History().created().tensorboard(deleted=True).wait(delay).pod(phase="Running"), is_over=False) == expected
    assert (
        rules(History().tensorboard("s", key="services/specs a", created=True).wait(delay).pod(phase="Running"), is_over=False) == expected
    )


def test_a_job_that_has_a_tensorboard_or_asks_for_none_may_run_for_long() -> None:
    assert rules(History().created().wait(2 * CREATE_SECONDS).pod(phase="Running"), is_over=False) == []
    assert rules(History().wait(2 * CREATE_SECONDS).pod(phase="Running"), Features(), is_over=False) == []


def test_a_suspended_job_has_no_tensorboard() -> None:
    history = History().job(phase="Running", suspended=True).wait(2 * CREATE_SECONDS).pod(phase="Running")
    assert rules(history, is_over=False) == []


@pytest.mark.parametrize(("delay", "expected"), [(0.0, []), (STALE_SECONDS, ["created after the end"])])
def test_a_tensorboard_may_be_created_during_the_time_to_live(delay: float, expected: list[str]) -> None:
    history = History().end().wait(TTL_SECONDS + delay).created().tensorboard(deleted=True)
    assert rules(history) == expected


@pytest.mark.parametrize(("delay", "expected"), [(0.0, []), (IN_FLIGHT_SECONDS, ["created after the end"])])
def test_a_tensorboard_of_a_deleted_job_is_a_violation(delay: float, expected: list[str]) -> None:
    history = History().end().job(deleted=True).wait(delay).created().tensorboard(deleted=True)
    assert rules(history) == expected


def test_the_pod_of_a_tensorboard_is_no_replica() -> None:
    job = script().body("chaos")
    histories = Histories({"kubeflow.org/jaxjobs": JAXJob}, namespace="chaos")
    metadata: JsonObject = {"name": "job-tensorboard-0", "uid": "t", "labels": {"dlop.dev/companion": "tensorboard"}}
    pod = {"metadata": metadata | {"ownerReferences": [{"name": "job", "uid": "u", "controller": True}]}, "spec": {}, "status": {}}
    for number, (key, body) in enumerate([("kubeflow.org/jaxjobs/chaos/job", job), ("pods/chaos/job-tensorboard-0", pod)], start=1):
        path, value = (base64.b64encode(text).decode() for text in (f"/registry/{key}".encode(), msgspec.json.encode(body)))
        change = parse_event(
            {"kv": {"key": path, "mod_revision": str(number), "create_revision": str(number), "value": value}}, seconds=1.0
        )
        assert change is not None
        histories.add(change)
    (_, entry) = histories.entries["job"]
    assert entry == CompanionChange(revision=2, seconds=1.0, key="pods job-tensorboard-0", uid="t", is_pod=True, created=True)
