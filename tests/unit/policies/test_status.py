from __future__ import annotations

from typing import Any

import pytest

from dlop import Outcome, Phase, Progress, ReplicaProgress, ReplicaState, ReplicaType, RoleProgress
from dlop.api.record import Blocked, Record
from dlop.kube.types import JsonObject
from tests.unit.job.jobs import PairJob, make, pair, template


def progress(**states: list[ReplicaState]) -> Progress:
    spec = pair().spec
    roles = []
    for role in spec.roles:
        role_states = states.get(role.name, [ReplicaState.MISSING] * role.replicas)
        replicas = tuple(ReplicaProgress(role=role.name, index=index, state=state) for index, state in enumerate(role_states))
        roles.append(RoleProgress(spec=role, replicas=replicas))
    return Progress(roles=tuple(roles))


def outcome(phase: Phase, *, now: float = 0.0, blocked: str = "", **more: Any) -> Outcome:
    record = Record(blocked=Blocked(object="pod x", reason="ImagePullBackOff", message=blocked) if blocked else None)
    fields = {"reason": phase.value, "message": "", "progress": progress(), "started_at": 0.0, "finished_at": None} | more
    return Outcome(phase=phase, record=record, now=now, **fields)


def write(status: Any, outcome: Outcome) -> JsonObject:
    """The status of a job after this outcome."""
    return PairJob.status.write(pair(status=status), outcome)


def history(*phases: Phase, **last: Any) -> JsonObject:
    """The status of a job that went through these phases, a minute each."""
    status: JsonObject = {}
    for minute, phase in enumerate(phases):
        more = last if minute == len(phases) - 1 else {}
        status = write(status, outcome(phase, now=60.0 * minute, **more))
    return status


def summary(status: JsonObject) -> list[tuple[str, str, str]]:
    return [(condition["type"], condition["status"], condition["reason"]) for condition in status["conditions"]]


CREATED = ("Created", "True", "PairJobCreated")
RUNNING = ("Running", "True", "PairJobRunning")


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([Phase.CREATED], [CREATED]),
        ([Phase.CREATED, Phase.RUNNING], [CREATED, RUNNING]),
        ([Phase.RUNNING, Phase.SUCCEEDED], [CREATED, ("Running", "False", "PairJobRunning"), ("Succeeded", "True", "PairJobSucceeded")]),
        ([Phase.RUNNING, Phase.FAILED], [CREATED, ("Running", "False", "PairJobRunning"), ("Failed", "True", "PairJobFailed")]),
        ([Phase.RUNNING, Phase.RESTARTING], [CREATED, ("Restarting", "True", "PairJobRestarting")]),
        ([Phase.RUNNING, Phase.RESTARTING, Phase.RUNNING], [CREATED, RUNNING]),
        ([Phase.RUNNING, Phase.SUSPENDED], [CREATED, ("Running", "False", "PairJobSuspended"), ("Suspended", "True", "PairJobSuspended")]),
        ([Phase.RUNNING, Phase.CREATED], [CREATED, ("Running", "False", "NoReplicas")]),
        ([Phase.RUNNING, Phase.RESTARTING, Phase.CREATED], [CREATED]),
        ([Phase.RUNNING, Phase.CREATED, Phase.RUNNING], [CREATED, RUNNING]),
        ([Phase.SUSPENDED, Phase.RUNNING], [CREATED, ("Suspended", "False", "PairJobResumed"), RUNNING]),
        ([Phase.RUNNING, Phase.SUSPENDED, Phase.RUNNING], [CREATED, ("Suspended", "False", "PairJobResumed"), RUNNING]),
    ],
)
def test_the_conditions_after_a_sequence_of_phases(phases: list[Phase], expected: list[tuple[str, str, str]]) -> None:
    assert summary(history(*phases)) == expected


@pytest.mark.parametrize("phase", list(Phase))
def test_writing_the_same_outcome_twice_changes_nothing(phase: Phase) -> None:
    status = history(Phase.RUNNING, phase)
    assert write(status, outcome(phase, now=9999.0)) == status


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.INVALID])
def test_the_phase_can_be_read_back(phase: Phase) -> None:
    assert PairJob.status.read_phase(history(Phase.CREATED, phase)) is phase


def test_an_invalid_spec_is_a_failed_condition_that_is_removed_when_the_spec_is_fixed() -> None:
    invalid = history(Phase.CREATED, Phase.INVALID, reason="InvalidSpec", message="spec.replicaSpecs: is missing")
    assert summary(invalid)[-1] == ("Failed", "True", "InvalidSpec")
    assert PairJob.status.read_phase(invalid) is Phase.INVALID
    assert summary(write(invalid, outcome(Phase.RUNNING))) == [CREATED, RUNNING]


def test_another_error_in_an_invalid_spec_replaces_the_first() -> None:
    first = history(Phase.INVALID, reason="InvalidSpec", message="spec.a: is missing")
    status = write(first, outcome(Phase.INVALID, now=60.0, reason="InvalidSpec", message="spec.b: is missing"))
    failed = status["conditions"][-1]
    assert (failed["message"], failed["lastUpdateTime"]) == ("spec.b: is missing", "1970-01-01T00:01:00Z")
    assert failed["lastTransitionTime"] == first["conditions"][-1]["lastTransitionTime"]


def test_an_exceeded_limit_has_its_own_reason() -> None:
    status = history(Phase.RUNNING, Phase.FAILED, reason="BackoffLimitExceeded", message="the backoff limit of 3 is exceeded")
    assert (status["conditions"][-1]["reason"], status["conditions"][-1]["message"]) == (
        "BackoffLimitExceeded",
        "the backoff limit of 3 is exceeded",
    )


def test_blocked_is_the_last_condition_while_the_job_is_blocked() -> None:
    blocked = history(Phase.CREATED, blocked="pod train-leader-0 cannot pull its image")
    assert summary(blocked) == [CREATED, ("Blocked", "True", "ImagePullBackOff")]
    assert write(blocked, outcome(Phase.CREATED, now=500.0, blocked="pod train-leader-0 cannot pull its image")) == blocked
    assert summary(write(blocked, outcome(Phase.RUNNING))) == [CREATED, RUNNING]


def test_the_timestamps_are_those_of_the_change() -> None:
    status = history(Phase.CREATED, Phase.RUNNING, Phase.SUCCEEDED, finished_at=120.0)
    for time in ("lastTransitionTime", "lastUpdateTime"):
        assert [(condition["type"], condition[time]) for condition in status["conditions"]] == [
            ("Created", "1970-01-01T00:00:00Z"),
            ("Running", "1970-01-01T00:02:00Z"),
            ("Succeeded", "1970-01-01T00:02:00Z"),
        ]
    assert (status["startTime"], status["completionTime"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:02:00Z")


def test_replicas_are_counted_by_role_and_zeros_are_omitted() -> None:
    states = progress(Leader=[ReplicaState.RUNNING], Follower=[ReplicaState.SUCCEEDED, ReplicaState.RESTARTING])
    status = write({}, outcome(Phase.RUNNING, progress=states))
    assert status["replicaStatuses"] == {
        "Leader": {"active": 1, "selector": "dlop.dev/job-name=train,dlop.dev/replica-type=leader"},
        "Follower": {"succeeded": 1, "failed": 1, "selector": "dlop.dev/job-name=train,dlop.dev/replica-type=follower"},
    }


@pytest.mark.parametrize("stored", [{"conditions": None}, {"conditions": "x"}, {"conditions": [1, {"type": 2}, {}]}, [], "x"])
def test_a_malformed_status_is_replaced(stored: Any) -> None:
    job = pair(status=stored)
    assert PairJob.status.read_phase(job.stored_status) is None
    assert summary(write(stored, outcome(Phase.CREATED))) == [CREATED]


@pytest.mark.parametrize(
    ("states", "succeeded"),
    [
        ({}, None),
        ({"Leader": [ReplicaState.RUNNING]}, None),
        ({"Leader": [ReplicaState.SUCCEEDED]}, True),
        ({"Leader": [ReplicaState.RUNNING], "Follower": [ReplicaState.SUCCEEDED, ReplicaState.SUCCEEDED]}, None),
        ({"Leader": [ReplicaState.RUNNING], "Follower": [ReplicaState.RUNNING, ReplicaState.FAILED]}, False),
        ({"Leader": [ReplicaState.RESTARTING]}, None),
    ],
)
def test_a_job_succeeds_with_its_required_roles_and_fails_with_any_replica(states: Any, succeeded: bool | None) -> None:
    result = PairJob.lifecycle.evaluate(pair(), progress(**states))
    assert (result.succeeded if result is not None else None) is succeeded


def test_without_required_roles_all_roles_are_required() -> None:
    class LooseJob(PairJob):
        replica_types = (ReplicaType("Leader"), ReplicaType("Follower", required_for_success=False))

    job = make(LooseJob, {"replicaSpecs": {"Follower": {"template": template()}}})
    assert LooseJob.lifecycle.required_roles(job) == ("Follower",)
