"""Jobs that wait for a name are indexed by that name."""

from __future__ import annotations

from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey
from dlop.kube.resources import PODS, Resource

ONE, TWO = (JobKey(Resource("example.org", "v1", f"{kind}s", kind.title()), "team", "train") for kind in ("one", "two"))


def two_waiting_jobs() -> JobStates:
    job_states = JobStates()
    job_states.add_conflict("uid-1", ONE, PODS, "train-worker-0", {})
    job_states.add_conflict("uid-2", TWO, PODS, "train-worker-0", {})
    return job_states


def test_all_jobs_with_a_conflict_wait_for_the_name() -> None:
    assert two_waiting_jobs().keys_waiting_for(PODS, "team", "train-worker-0") == (ONE, TWO)


def test_clearing_the_conflict_of_one_job_leaves_the_others_waiting() -> None:
    job_states = two_waiting_jobs()
    job_states.clear_conflict("uid-2", PODS, "train-worker-0")
    assert job_states.keys_waiting_for(PODS, "team", "train-worker-0") == (ONE,)


def test_a_deleted_job_does_not_wait() -> None:
    job_states = two_waiting_jobs()
    job_states.forget("uid-1")
    job_states.forget("uid-2")
    assert job_states.keys_waiting_for(PODS, "team", "train-worker-0") == ()
