"""Whoever waits for a name is told when something happens to it."""

from __future__ import annotations

from dlop.controller.job_state import JobStates
from dlop.controller.kinds import JobKey
from dlop.kube.resources import PODS, Resource

ONE, TWO = (JobKey(Resource("example.org", "v1", f"{kind}s", kind.title()), "team", "train") for kind in ("one", "two"))


def two_waiting() -> JobStates:
    memories = JobStates()
    memories.take_note("uid-1", ONE, PODS, "train-worker-0", {})
    memories.take_note("uid-2", TWO, PODS, "train-worker-0", {})
    return memories


def test_all_jobs_that_need_a_name_wait_for_it() -> None:
    assert two_waiting().who_waits_for(PODS, "team", "train-worker-0") == (ONE, TWO)


def test_a_job_that_got_the_name_leaves_the_others_waiting() -> None:
    memories = two_waiting()
    memories.is_free("uid-2", PODS, "train-worker-0")
    assert memories.who_waits_for(PODS, "team", "train-worker-0") == (ONE,)


def test_a_job_that_is_gone_waits_no_more() -> None:
    memories = two_waiting()
    memories.forget("uid-1")
    memories.forget("uid-2")
    assert memories.who_waits_for(PODS, "team", "train-worker-0") == ()
