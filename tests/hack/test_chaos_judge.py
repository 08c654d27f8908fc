"""The judge of `hack/chaos`: each violation is found in a history that contains it, and none in a correct one."""

from __future__ import annotations

import pytest
from chaos_feature_rules import IN_FLIGHT_SECONDS
from chaos_history import ChildChange, Entry, Injection, JobChange, PodChange, format_history
from chaos_judge import judge
from chaos_report import format_violation
from chaos_scripts import End, JobScript, PodFault, RoleDraft, SpecDraft

from dlop.api.record import Record
from dlop.api.spec import RestartPolicy, RestartScope
from dlop.frameworks.kubeflow.jaxjob import JAXJob

pytestmark = pytest.mark.selftest

WORKER = ("Worker", 0)
GRACE_SECONDS = 30


def script(end: End = End.SUCCEEDED, scope: RestartScope = RestartScope.REPLICA) -> JobScript:
    return JobScript(
        name="job",
        kind=JAXJob,
        draft=SpecDraft((RoleDraft("Worker", 1, RestartPolicy.EXIT_CODE),)),
        end=end,
        decisive=WORKER,
        culprit=WORKER if end is End.FAILED else None,
        culprit_fault=PodFault.FAIL_PERMANENTLY if end is End.FAILED else None,
        faults={},
        edits=(),
        scaled_role="Worker",
        scope=scope,
    )


class History:
    """Builds a history. Each change has the next revision, and takes one second."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def _next(self) -> tuple[int, float]:
        return len(self.entries) + 1, len(self.entries) + 1.0

    def job(self, *, generation: int = 1, workers: int = 1, suspended: bool = False, message: str = "", **record: object) -> History:
        revision, seconds = self._next
        stored = Record(**{"observed_generation": generation, **record})  # type: ignore[arg-type]
        self.entries.append(
            JobChange(
                revision=revision,
                seconds=seconds,
                generation=generation,
                suspended=suspended,
                replicas={"Worker": workers},
                record=stored,
                message=message,
            )
        )
        return self

    def job_deleted(self) -> History:
        revision, seconds = self._next
        self.entries.append(JobChange(revision=revision, seconds=seconds, deleted=True))
        return self

    def pod(
        self,
        uid: str,
        phase: str = "Pending",
        *,
        index: int = 0,
        attempt: int = 0,
        created: bool = False,
        deleted: bool = False,
        terminating: bool = False,
        exit_code: int | None = None,
        disrupted: bool = False,
        restarts: int = 0,
    ) -> History:
        revision, seconds = self._next
        self.entries.append(
            PodChange(
                revision=revision,
                seconds=seconds,
                name=f"job-worker-{index}",
                uid=uid,
                replica=("Worker", index),
                attempt=attempt,
                created=created,
                deleted=deleted,
                phase=phase,
                exit_code=exit_code,
                disrupted=disrupted,
                container_restarts=restarts,
                deletion_requested_at=seconds if terminating or deleted else None,
                finished_at=seconds if phase in ("Succeeded", "Failed") else None,
            )
        )
        return self

    def created(self, uid: str, *, index: int = 0, attempt: int = 0) -> History:
        return self.pod(uid, index=index, attempt=attempt, created=True)

    def succeeded(self, uid: str, *, attempt: int = 0) -> History:
        return self.pod(uid, "Succeeded", attempt=attempt, exit_code=0)

    def failed(self, uid: str, *, attempt: int = 0) -> History:
        return self.pod(uid, "Failed", attempt=attempt, exit_code=137)

    def gone(self, uid: str, *, attempt: int = 0) -> History:
        return self.pod(uid, "Failed", attempt=attempt, deleted=True)

    def user_deletes(self, uid: str) -> History:
        self.entries.append(Injection(revision=len(self.entries), seconds=0.0, description="delete", deleted_uid=uid))
        return self

    def end(self, phase: str = "Succeeded", **record: object) -> History:
        completed = {"completed_indexes": {"Worker": "0"}} if phase == "Succeeded" else {}
        return self.job(phase=phase, **{**completed, **record})  # type: ignore[arg-type]


def rules(history: History, script: JobScript) -> list[str]:
    return sorted({violation.rule for violation in judge(script, history.entries)})


def running() -> History:
    """A job whose pod runs and is claimed."""
    return History().job().created("a").pod("a", "Running").job(phase="Running", started_indexes={"Worker": "0"})


def test_a_correct_run_has_no_violations() -> None:
    assert rules(running().succeeded("a").end(), script()) == []


def test_a_correct_restart_has_no_violations() -> None:
    history = running().failed("a").job(restarts={"Worker": 1}).gone("a").created("b").succeeded("b").end(restarts={"Worker": 1})
    assert rules(history, script()) == []


def test_a_violation_has_the_rule_and_the_complete_history() -> None:
    (violation,) = judge(script(), running().entries)
    assert violation.job == "JAXJob.kubeflow.org job"
    assert violation.history == tuple(running().entries)


def test_a_violation_is_printed_with_the_seed_the_script_and_the_history() -> None:
    (violation,) = judge(script(), running().entries)
    lines = format_violation(violation, script(), seed=42).splitlines()
    assert lines[0] == "VIOLATION wrong end: JAXJob.kubeflow.org job: expected Succeeded; the job is in phase Running"
    assert lines[1] == "  seed 42"
    assert lines[-2].endswith("pod job-worker-0 (a, attempt 0): Running")


def test_a_long_history_is_shortened_at_the_front() -> None:
    text = format_history(list(running().entries), limit=1)
    assert text.splitlines()[0] == "  ... 3 earlier entries"
    assert "job: generation 1" in text.splitlines()[1]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_a_job_that_does_not_end_is_a_violation_only_when_the_test_is_over() -> None:
    assert rules(running(), script()) == ["wrong end"]
    assert judge(script(), running().entries, is_over=False) == []


@pytest.mark.parametrize(
    ("end", "phase", "message"),
    [
        (End.FAILED, "Succeeded", ""),
        (End.SUCCEEDED, "Failed", ""),
        (End.BACKOFF_LIMIT, "Failed", "the disruption limit of 1 is exceeded"),
        (End.DISRUPTION_LIMIT, "Failed", "it has reached the specified backoff limit"),
        (End.DEADLINE, "Failed", "a replica failed"),
    ],
)
def test_another_end_than_the_scripted_one_is_a_violation(end: End, phase: str, message: str) -> None:
    history = running().succeeded("a").end(phase, message=message, failed_indexes={"Worker": "0"})
    assert "wrong end" in rules(history, script(end))


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (End.BACKOFF_LIMIT, "it has reached the specified backoff limit"),
        (End.DISRUPTION_LIMIT, "the disruption limit of 1 is exceeded"),
        (End.DEADLINE, "it was active longer than specified deadline"),
    ],
)
def test_the_scripted_reason_of_a_failure_is_no_violation(end: End, message: str) -> None:
    assert rules(running().end("Failed", message=message), script(end)) == []


def test_a_success_without_the_decisive_replica_is_a_violation() -> None:
    assert rules(running().succeeded("a").end(completed_indexes={}), script()) == ["wrong count"]


def test_a_failure_without_the_failed_index_is_a_violation() -> None:
    history = running().pod("a", "Failed", exit_code=1)
    assert rules(history.end("Failed"), script(End.FAILED)) == ["wrong count"]


def test_a_failure_with_the_failed_index_is_no_violation() -> None:
    history = running().pod("a", "Failed", exit_code=1)
    assert rules(history.end("Failed", failed_indexes={"Worker": "0"}), script(End.FAILED)) == []


def test_a_pod_that_survives_its_deleted_job_is_a_violation() -> None:
    assert rules(running().job_deleted().gone("a"), script(End.DELETED)) == []
    assert rules(running().job_deleted(), script(End.DELETED)) == ["wrong end"]


# --- pods ------------------------------------------------------------------------------------------------------------


def test_two_live_pods_of_one_index_and_attempt_are_a_violation() -> None:
    history = running().created("b").gone("b").succeeded("a").end()
    assert rules(history, script()) == ["two live pods"]


def test_a_pod_that_is_created_while_a_pod_of_an_earlier_attempt_exists_is_a_violation() -> None:
    history = running().failed("a").job(attempt=1, restarts={"Worker": 1}).created("b", attempt=1).gone("a")
    end = history.succeeded("b", attempt=1).end(attempt=1, restarts={"Worker": 1})
    assert rules(end, script(scope=RestartScope.JOB)) == ["two attempts at once"]


def test_a_pod_of_an_attempt_that_is_not_recorded_is_a_violation() -> None:
    history = running().failed("a").gone("a").created("b", attempt=1).job(attempt=1, restarts={"Worker": 1})
    end = history.succeeded("b", attempt=1).end(attempt=1, restarts={"Worker": 1})
    assert rules(end, script(scope=RestartScope.JOB)) == ["attempt not recorded"]


def test_a_recorded_index_that_runs_again_is_a_violation_even_if_a_user_deletes_its_pod() -> None:
    history = running().succeeded("a").job(completed_indexes={"Worker": "0"}).user_deletes("a").gone("a").created("b").gone("b")
    assert rules(history.end(), script()) == ["finished index runs again"]


def test_an_index_that_runs_again_before_its_success_is_recorded_is_a_violation() -> None:
    history = running().succeeded("a").gone("a").created("b").succeeded("b").end()
    assert rules(history, script()) == ["finished index runs again"]


def test_a_success_that_a_user_deletes_before_it_is_recorded_may_run_again() -> None:
    history = running().succeeded("a").user_deletes("a").gone("a").created("b").succeeded("b")
    assert rules(history.end(disruptions={"Worker": 1}), script()) == []


def test_a_success_in_the_second_of_the_deletion_may_run_again() -> None:
    history = running().pod("a", "Succeeded", exit_code=0, terminating=True).pod("a", "Succeeded", exit_code=0, deleted=True)
    last = history.entries[-1]
    assert isinstance(last, PodChange)
    history.entries[-1] = PodChange(
        **{name: getattr(last, name) for name in last.__slots__ if name != "deletion_requested_at"}, deletion_requested_at=5.0
    )
    assert rules(history.created("b").succeeded("b").end(), script()) == []


def test_an_index_that_is_scaled_away_after_its_success_may_run_again_after_a_scale_up() -> None:
    history = History().job(workers=2).created("a").created("b", index=1).pod("b", "Succeeded", index=1, exit_code=0)
    history.job(generation=2, workers=1).pod("b", "Succeeded", index=1, deleted=True)
    history.job(generation=3, workers=2).created("c", index=1).succeeded("a")
    assert rules(history.end(), script()) == []


def test_an_index_that_runs_again_after_the_scale_down_of_higher_indexes_is_a_violation() -> None:
    history = History().job(workers=2).created("a").succeeded("a").gone("a").job(generation=2, workers=1).created("b").succeeded("b")
    assert rules(history.end(), script()) == ["finished index runs again"]


def test_a_completed_index_runs_again_in_a_new_attempt() -> None:
    history = running().succeeded("a").job(completed_indexes={"Worker": "0"}).created("c", index=1)
    history.pod("c", "Failed", index=1, exit_code=137).job(attempt=1, restarts={"Worker": 1}).gone("a")
    history.pod("c", "Failed", index=1, deleted=True).created("b", attempt=1).succeeded("b", attempt=1)
    assert rules(history.end(attempt=1, restarts={"Worker": 1}), script(scope=RestartScope.JOB)) == []


# --- after the end ---------------------------------------------------------------------------------------------------


def test_a_pod_that_is_created_after_the_end_is_a_violation() -> None:
    assert rules(running().succeeded("a").end().created("c", index=1), script()) == ["created after the end"]


def test_another_object_that_is_created_after_the_end_is_a_violation() -> None:
    history = running().succeeded("a").end()
    history.entries.append(ChildChange(revision=99, seconds=99.0, key="services/specs job-worker-0", created=True))
    assert rules(history, script()) == ["created after the end"]


@pytest.mark.parametrize(("delay", "found"), [(IN_FLIGHT_SECONDS - 1, []), (IN_FLIGHT_SECONDS + 1, ["created after the end"])])
def test_only_creates_in_flight_may_follow_the_deletion_of_a_job(delay: float, found: list[str]) -> None:
    history = running().gone("a").job_deleted()
    seconds = history.entries[-1].seconds + delay
    history.entries.append(ChildChange(revision=99, seconds=seconds, key="services/specs job-worker-0", created=True))
    assert rules(history, script(End.DELETED)) == found


def test_a_record_that_changes_after_the_end_is_a_violation() -> None:
    assert rules(running().succeeded("a").end().end(disruptions={"Worker": 0}), script()) == ["written after the end"]


# --- counts ----------------------------------------------------------------------------------------------------------


def test_a_count_that_decreases_is_a_violation() -> None:
    history = running().failed("a").job(restarts={"Worker": 1}).gone("a").created("b").succeeded("b").end()
    assert "count decreased" in rules(history, script())


def test_an_attempt_that_decreases_is_a_violation() -> None:
    history = running().failed("a").job(attempt=1, restarts={"Worker": 1}).gone("a").created("b", attempt=1).succeeded("b", attempt=1)
    assert "count decreased" in rules(history.end(restarts={"Worker": 1}), script(scope=RestartScope.JOB))


def test_a_completed_index_without_a_succeeded_pod_is_a_violation() -> None:
    assert rules(running().end(), script()) == ["completed without success"]


def test_a_completed_index_that_is_forgotten_is_a_violation() -> None:
    history = running().succeeded("a").job(completed_indexes={"Worker": "0"}).job().end()
    assert rules(history, script()) == ["completion forgotten"]


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_failure_that_is_not_counted_exactly_once_is_a_violation(restarts: int) -> None:
    counts = {"Worker": restarts} if restarts else {}
    history = running().failed("a").job(restarts=counts).gone("a").created("b").succeeded("b").end(restarts=counts)
    assert rules(history, script()) == ["wrong count"]


@pytest.mark.parametrize(("disruptions", "found"), [(0, ["wrong count"]), (1, []), (2, ["wrong count"])])
def test_the_deletion_of_a_claimed_pod_is_counted_exactly_once(disruptions: int, found: list[str]) -> None:
    counts = {"Worker": disruptions} if disruptions else {}
    history = running().user_deletes("a").pod("a", "Running", terminating=True).job(disruptions=counts).gone("a")
    assert rules(history.created("b").succeeded("b").end(disruptions=counts), script()) == found


def test_the_deletion_of_an_unclaimed_pod_may_be_counted_or_not() -> None:
    for counts in ({}, {"Worker": 1}):
        history = History().job().created("a").pod("a", "Running").user_deletes("a").pod("a", "Running", terminating=True)
        end = history.gone("a").created("b").succeeded("b").end(disruptions=counts)
        assert rules(end, script()) == []


def test_an_eviction_that_is_counted_as_a_restart_is_a_violation() -> None:
    history = running().pod("a", "Failed", exit_code=137, disrupted=True).job(restarts={"Worker": 1}).gone("a")
    assert rules(history.created("b").succeeded("b").end(restarts={"Worker": 1}), script()) == ["wrong count"]


def test_a_pod_that_fails_and_is_deleted_at_once_counts_as_either_but_only_once() -> None:
    for restarts, disruptions, found in ((1, 0, []), (0, 1, []), (1, 1, ["wrong count"])):
        history = running().user_deletes("a").failed("a").pod("a", "Failed", terminating=True).gone("a").created("b").succeeded("b")
        end = history.end(restarts={"Worker": restarts}, disruptions={"Worker": disruptions})
        assert rules(end, script()) == found


def test_a_failure_before_a_suspension_may_be_counted_or_not() -> None:
    for counts in ({}, {"Worker": 1}):
        history = running().failed("a").job(generation=2, suspended=True).gone("a").job(generation=3, restarts=counts)
        end = history.created("b").succeeded("b").job(generation=3, phase="Succeeded", restarts=counts, completed_indexes={"Worker": "0"})
        assert rules(end, script()) == []


@pytest.mark.parametrize(("restarts", "found"), [(1, ["wrong count"]), (2, []), (3, ["wrong count"])])
def test_container_restarts_of_a_completed_pod_are_counted_exactly(restarts: int, found: list[str]) -> None:
    history = running().pod("a", "Running", restarts=2).pod("a", "Succeeded", exit_code=0, restarts=2)
    assert rules(history.end(restarts={"Worker": restarts}), script()) == found


@pytest.mark.parametrize(("restarts", "found"), [(0, ["wrong count"]), (1, []), (2, ["wrong count"])])
def test_two_failures_of_one_attempt_count_once_in_the_scope_of_the_job(restarts: int, found: list[str]) -> None:
    counts = {"Worker": restarts} if restarts else {}
    history = running().created("c", index=1).failed("a").pod("c", "Failed", index=1, exit_code=137)
    history.job(attempt=1, restarts=counts).gone("a").pod("c", "Failed", index=1, deleted=True)
    end = history.created("b", attempt=1).succeeded("b", attempt=1).end(attempt=1, restarts=counts)
    assert rules(end, script(scope=RestartScope.JOB)) == found
