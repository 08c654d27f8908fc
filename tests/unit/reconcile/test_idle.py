"""Jobs whose required roles have no replicas."""

from __future__ import annotations

from tests.unit.reconcile.ring import TRAINER, ring
from tests.unit.reconcile.world import World


def running() -> World:
    world = World(ring())
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_job_without_required_replicas_does_not_finish_and_names_the_roles_to_scale() -> None:
    world = World(ring(trainers=0, helpers=1, startDeadlineSeconds=60))
    world.settle()
    world.run()
    world.exit("ring-helper-0", 0)
    world.pass_time(3600)
    assert (world.phase, list(world.pods)) == ("Created", ["ring-helper-0"])
    blocked = world.condition("Blocked")
    assert blocked["reason"] == "NoReplicas"
    assert "raise the replicas of Trainer above 0" in blocked["message"]
    world.scale(TRAINER, 1)
    world.settle()
    assert "ring-trainer-0" in world.pods
    assert ("Blocked", "True") not in world.conditions


def test_a_running_job_that_is_scaled_to_zero_waits_to_be_scaled_up() -> None:
    world = running()
    world.scale(TRAINER, 0)
    world.settle()
    assert (world.phase, world.pods) == ("Created", {})
    assert [event.reason for event in world.events].count("NoReplicas") == 1
    world.scale(TRAINER, 1)
    world.settle()
    assert list(world.pods) == ["ring-trainer-0"]


def test_a_job_that_is_scaled_to_zero_after_replicas_have_succeeded_has_succeeded() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    world.scale(TRAINER, 0)
    world.settle()
    assert world.phase == "Succeeded"


def test_a_job_without_required_replicas_fails_with_other_replicas() -> None:
    world = World(ring(trainers=0, helpers=1, policy="Never"))
    world.settle()
    world.run()
    world.exit("ring-helper-0", 1)
    world.settle()
    assert world.phase == "Failed"
