"""Lifecycles as pure functions of a job and its progress."""

from __future__ import annotations

from typing import Any

import pytest

from dlop import DLJob, JobResult, Progress, ReplicaProgress, ReplicaState, RoleProgress
from dlop.policies import LeaderRole, Lifecycle
from tests.unit.job.jobs import PairJob, make, pair, pair_spec, template

S = ReplicaState
LEADER: LeaderRole[DLJob] = LeaderRole("Leader", "Follower")
DEFAULT: Lifecycle[DLJob] = Lifecycle()


def progress(job: DLJob, **states: list[ReplicaState]) -> Progress:
    def role(name: str) -> tuple[ReplicaProgress, ...]:
        return tuple(ReplicaProgress(role=name, index=index, state=state) for index, state in enumerate(states[name]))

    return Progress(roles=tuple(RoleProgress(spec=each, replicas=role(each.name)) for each in job.spec.roles))


def summary(result: JobResult | None) -> Any:
    """None, True, or the role and index of the replica that failed the job."""
    if result is None or result.succeeded:
        return result and True
    return (result.failed_replica.role, result.failed_replica.index) if result.failed_replica else False


@pytest.mark.parametrize(
    ("leader", "followers", "expected_of_leader", "expected_of_default"),
    [
        ([S.RUNNING], [S.RUNNING, S.RUNNING], None, None),
        ([S.SUCCEEDED], [S.RUNNING, S.RUNNING], True, True),
        ([S.RUNNING], [S.SUCCEEDED, S.SUCCEEDED], None, None),
        ([S.RUNNING], [S.RUNNING, S.FAILED], ("Follower", 1), ("Follower", 1)),
        ([S.RUNNING], [S.RUNNING, S.RESTARTING], None, None),
        # The leader's success takes precedence.
        ([S.SUCCEEDED], [S.RUNNING, S.FAILED], True, ("Follower", 1)),
        ([S.FAILED], [S.FAILED, S.SUCCEEDED], ("Leader", 0), ("Leader", 0)),
    ],
)
def test_the_result_of_a_job(leader: Any, followers: Any, expected_of_leader: Any, expected_of_default: Any) -> None:
    job = pair()
    observed = progress(job, Leader=leader, Follower=followers)
    assert summary(LEADER.evaluate(job, observed)) == expected_of_leader
    assert summary(DEFAULT.evaluate(job, observed)) == expected_of_default


def test_without_the_first_role_the_next_one_leads() -> None:
    job = make(PairJob, {**pair_spec(), "replicaSpecs": {"Leader": {"template": template()}, "Follower": {"template": template()}}})
    assert (LEADER.leader(job), LEADER.required_roles(job)) == ("Leader", ("Leader",))
    only_follower: LeaderRole[DLJob] = LeaderRole("Follower")
    assert only_follower.leader(job) == "Follower"
    nobody: LeaderRole[DLJob] = LeaderRole("Captain")
    assert (nobody.leader(job), nobody.required_roles(job)) == (None, ("Leader",))


@pytest.mark.parametrize(("leader", "follower", "running"), [(S.RUNNING, S.PENDING, True), (S.PENDING, S.RUNNING, False)])
def test_a_job_runs_as_soon_as_its_leader_runs(leader: ReplicaState, follower: ReplicaState, running: bool) -> None:
    job = pair(followers=1)
    assert LEADER.is_running(job, progress(job, Leader=[leader], Follower=[follower])) is running


@pytest.mark.parametrize(
    ("policy", "scope", "expected"),
    [("Always", "Replica", "Always"), ("OnFailure", "Replica", "OnFailure"), ("ExitCode", "Replica", "Never"), ("Always", "Job", "Never")],
)
def test_the_kubelet_restarts_containers_only_if_the_operator_does_not_decide(policy: str, scope: str, expected: str) -> None:
    spec = pair_spec(run_policy={"restartScope": scope})
    spec["replicaSpecs"]["Leader"]["restartPolicy"] = policy
    job = make(PairJob, spec)
    assert DEFAULT.pod_restart_policy(job, job.spec.roles[0], 0) == expected
