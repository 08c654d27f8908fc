"""Jobs that another operator has begun or ended: what it made and wrote is taken as it is."""

from __future__ import annotations

import copy

import pytest

from dlop.kube.types import JsonObject
from tests.unit.reconcile.ring import ring
from tests.unit.reconcile.world import START, World


def test_a_job_that_another_operator_has_finished_stays_finished() -> None:
    world = World(ring(ttlSecondsAfterFinished=60))
    condition = {"type": "Succeeded", "status": "True", "reason": "RingJobSucceeded"}
    world.status = {"conditions": [condition], "completionTime": "2027-01-15T07:59:30Z"}
    plan = world.plan()
    assert (plan.pods, plan.status, plan.look_again_at) == ((), None, START + 30)


def ended_elsewhere(run_policy: JsonObject) -> World:
    """A job that has failed under another operator, which has noted that in a condition only, and its pods."""
    world = World(ring())
    world.settle()
    world.spec = {**ring(), "runPolicy": run_policy}
    condition = {"type": "Failed", "status": "True", "reason": "RingJobFailed", "lastTransitionTime": "2027-01-15T07:59:30Z"}
    world.status = {"conditions": [condition]}
    return world


def test_a_job_whose_end_another_operator_has_not_timed_lives_on_from_when_its_condition_told_it() -> None:
    world = ended_elsewhere({"ttlSecondsAfterFinished": 60})
    assert (world.plan().delete_job, world.plan().look_again_at) == (False, START + 30)
    world.now += 30
    assert world.plan().delete_job


def test_a_finished_job_with_a_spec_that_makes_no_sense_any_more_is_cleaned_up_and_expires() -> None:
    world = ended_elsewhere({"ttlSecondsAfterFinished": 60, "cleanPodPolicy": "All", "backoffLimit": "many"})
    world.settle()
    assert (world.pods, world.services, world.look_again_at) == ({}, {}, START + 30)
    world.pass_time(30)
    assert world.is_deleted


@pytest.mark.parametrize("run_policy", [{"cleanPodPolicy": "most"}, {"cleanPodPolicy": ["All"]}])
def test_the_pods_of_a_finished_job_stay_where_it_cannot_be_read_what_is_to_become_of_them(run_policy: JsonObject) -> None:
    world = ended_elsewhere(run_policy)
    assert not world.effects(world.plan())
    world.spec["runPolicy"] = "nonsense"
    assert not world.effects(world.plan())


def renamed(world: World, old: str, new: str) -> None:
    """As if another operator had given a pod its name."""
    pod = world.pods.pop(old)
    pod["metadata"]["name"] = new
    world.pods[new] = pod


def test_a_pod_that_another_operator_has_named_is_the_replica_that_its_labels_tell() -> None:
    world = World(ring(policy="ExitCode"))
    world.settle()
    renamed(world, "ring-trainer-1", "as-others-call-it")
    world.run()
    before = world.uids()
    world.settle()
    assert (world.uids(), world.phase) == (before, "Running")
    world.exit("as-others-call-it", 137)
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0", "ring-trainer-1"}
    assert world.record["restarts"] == {"Trainer": 1}


def test_of_two_pods_of_one_replica_the_one_that_dlop_has_named_counts() -> None:
    world = World(ring())
    world.settle()
    renamed(world, "ring-trainer-1", "as-others-call-it")
    twin = copy.deepcopy(world.pods["as-others-call-it"])
    twin["metadata"] |= {"name": "ring-trainer-1", "uid": "twin"}
    world.pods["ring-trainer-1"] = twin
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0", "ring-trainer-1"}


def test_a_pod_of_another_name_goes_with_the_replica_when_the_job_is_scaled_down() -> None:
    world = World(ring())
    world.settle()
    renamed(world, "ring-trainer-1", "as-others-call-it")
    world.settle()
    world.scale("Trainer", 1)
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0"}
