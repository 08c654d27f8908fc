"""Jobs that another operator has started or finished: existing pods and status are taken over."""

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
    assert (plan.pods, plan.status, plan.requeue_at) == ((), None, START + 30)


def finished_elsewhere(run_policy: JsonObject) -> World:
    """A job with pods that another operator has set to Failed, without a completion time."""
    world = World(ring())
    world.settle()
    world.spec = {**ring(), "runPolicy": run_policy}
    condition = {"type": "Failed", "status": "True", "reason": "RingJobFailed", "lastTransitionTime": "2027-01-15T07:59:30Z"}
    world.status = {"conditions": [condition]}
    return world


def test_without_a_completion_time_the_ttl_starts_at_the_transition_time_of_the_condition() -> None:
    world = finished_elsewhere({"ttlSecondsAfterFinished": 60})
    assert (world.plan().delete_job, world.plan().requeue_at) == (False, START + 30)
    world.now += 30
    assert world.plan().delete_job


def test_a_finished_job_with_an_invalid_spec_is_cleaned_up_and_expires() -> None:
    world = finished_elsewhere({"ttlSecondsAfterFinished": 60, "cleanPodPolicy": "All", "backoffLimit": "many"})
    world.settle()
    assert (world.pods, world.services, world.requeue_at) == ({}, {}, START + 30)
    world.pass_time(30)
    assert world.is_deleted


@pytest.mark.parametrize("run_policy", [{"cleanPodPolicy": "most"}, {"cleanPodPolicy": ["All"]}])
def test_the_pods_of_a_finished_job_are_kept_if_the_clean_pod_policy_is_invalid(run_policy: JsonObject) -> None:
    world = finished_elsewhere(run_policy)
    assert not world.effects(world.plan())
    world.spec["runPolicy"] = "invalid"
    assert not world.effects(world.plan())


def rename_pod(world: World, old: str, new: str) -> None:
    """Rename a pod, as if another operator had created it."""
    pod = world.pods.pop(old)
    pod["metadata"]["name"] = new
    world.pods[new] = pod


def test_a_pod_with_another_name_belongs_to_the_replica_of_its_labels() -> None:
    world = World(ring(policy="ExitCode"))
    world.settle()
    rename_pod(world, "ring-trainer-1", "other-name")
    world.run()
    before = world.uids()
    world.settle()
    assert (world.uids(), world.phase) == (before, "Running")
    world.exit("other-name", 137)
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0", "ring-trainer-1"}
    assert world.record["restarts"] == {"Trainer": 1}


def test_of_two_pods_of_one_replica_the_one_with_the_desired_name_is_used() -> None:
    world = World(ring())
    world.settle()
    rename_pod(world, "ring-trainer-1", "other-name")
    twin = copy.deepcopy(world.pods["other-name"])
    twin["metadata"] |= {"name": "ring-trainer-1", "uid": "twin"}
    world.pods["ring-trainer-1"] = twin
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0", "ring-trainer-1"}


def test_a_pod_with_another_name_is_deleted_if_its_replica_has_completed() -> None:
    world = World(ring())
    world.settle()
    world.run()
    twin = copy.deepcopy(world.pods["ring-trainer-1"])
    world.exit("ring-trainer-1", 0)
    world.settle()
    world.pods = {"ring-trainer-0": world.pods["ring-trainer-0"], "other-name": twin}
    twin["metadata"] |= {"name": "other-name", "uid": "twin"}
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0"}
    assert "disruptions" not in world.record


def test_a_pod_with_another_name_is_deleted_when_its_replica_is_scaled_down() -> None:
    world = World(ring())
    world.settle()
    rename_pod(world, "ring-trainer-1", "other-name")
    world.settle()
    world.scale("Trainer", 1)
    world.settle()
    assert world.pods.keys() == {"ring-trainer-0"}
