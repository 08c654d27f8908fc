"""Pods that the API server has marked as deleted and not removed."""

from __future__ import annotations

import pytest

from dlop.kube.resources import PODS
from dlop.reconcile.deletion import RETRY_DELETE_AFTER_SECONDS
from dlop.reconcile.snapshot import TerminatingConflict
from tests.unit.reconcile.ring import TRAINER, ring
from tests.unit.reconcile.world import GRACE_SECONDS, START, World


def running_world() -> World:
    world = World(ring(trainers=2, policy="Never"))
    world.settle()
    world.run()
    world.settle()
    return world


@pytest.mark.parametrize("state", ["running", "suspended", "finished"])
def test_an_interrupted_delete_is_retried_until_the_pod_is_gone(state: str) -> None:
    world = running_world()
    if state == "suspended":
        world.set_run_policy(suspend=True)
        world.execute(world.plan())
    elif state == "finished":
        world.exit("ring-trainer-0", 0)
        world.exit("ring-trainer-1", 0)
        world.settle()
    world.interrupt_delete("ring-trainer-0")
    world.settle()
    assert "ring-trainer-0" in world.pods
    assert world.requeue_at == world.now + 1 + RETRY_DELETE_AFTER_SECONDS
    world.now = world.requeue_at
    for _ in range(2):
        plan = world.plan()
        assert [(delete.name, delete.grace_seconds) for delete in plan.deletes] == [("ring-trainer-0", 0)]
        assert "ForceDeletedPods" not in [event.reason for event in plan.events]
    world.pods["ring-trainer-0"]["metadata"]["finalizers"] = ["example.org/keep"]
    assert world.plan().deletes == ()


def test_an_interrupted_delete_of_a_pod_of_a_deleted_job_of_the_same_name_is_retried() -> None:
    conflict = TerminatingConflict(resource=PODS, name="ring-trainer-0", owner="RingJob ring", uid="old", grace_seconds=0, since=START)
    world = World(ring(), terminating_conflicts=(conflict,))
    assert world.plan().requeue_at == START + RETRY_DELETE_AFTER_SECONDS
    world.now = START + RETRY_DELETE_AFTER_SECONDS
    assert [(delete.name, delete.uid) for delete in world.plan().deletes] == [("ring-trainer-0", "old")]


# --- results ---


def world_with_succeeded_pod() -> World:
    """A job with a pod that has succeeded. The record does not show it yet."""
    world = running_world()
    world.exit("ring-trainer-0", 0)
    return world


def restart_operator_after_the_first_write(world: World) -> None:
    world.execute(world.plan(), writes=1)
    world.settle()


def test_the_result_of_a_pod_is_stored_before_its_delete_is_retried() -> None:
    world = world_with_succeeded_pod()
    world.interrupt_delete("ring-trainer-0")
    world.wait(60)
    restart_operator_after_the_first_write(world)
    assert world.record["completedIndexes"] == {TRAINER: "0"}
    assert list(world.pods) == ["ring-trainer-1"]


def test_the_result_of_a_pod_is_stored_before_it_is_force_deleted() -> None:
    world = world_with_succeeded_pod()
    world.pods["ring-trainer-0"]["metadata"] |= {
        "deletionTimestamp": "2027-01-15T08:01:00Z",
        "deletionGracePeriodSeconds": GRACE_SECONDS,
    }
    world.lost_nodes.add("ring-trainer-0")
    world.wait(600)
    restart_operator_after_the_first_write(world)
    assert world.record["completedIndexes"] == {TRAINER: "0"}
    assert list(world.pods) == ["ring-trainer-1"]
