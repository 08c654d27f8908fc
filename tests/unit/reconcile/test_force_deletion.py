"""Pods that their nodes do not confirm as deleted: when they are force-deleted, and what is reported."""

from __future__ import annotations

import pytest

from dlop.api.types import ForceDeletion, Options
from tests.unit.reconcile.ring import ring
from tests.unit.reconcile.world import START, World


def running_world() -> World:
    world = World(ring(trainers=1))
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_pod_on_a_lost_node_is_force_deleted_once_after_the_timeout() -> None:
    world = running_world()
    world.lost_nodes.add("ring-trainer-0")
    world.delete_pod("ring-trainer-0")
    world.settle()
    assert world.requeue_at == START + 30 + 60
    world.now = START + 90
    plan = world.plan()
    assert [(delete.name, delete.grace_seconds) for delete in plan.deletes] == [("ring-trainer-0", 0)]
    assert [event.reason for event in plan.events] == ["ForceDeletedPods"]
    world.pods["ring-trainer-0"]["metadata"] |= {"deletionGracePeriodSeconds": 0, "finalizers": ["example.org/keep"]}
    assert world.plan().deletes == ()


def world_with_overdue_pod(mode: ForceDeletion) -> World:
    """A job with a pod that its node has not confirmed as deleted within the timeout."""
    world = running_world()
    world.options = Options(force_deletion=mode)
    world.pods["ring-trainer-0"]["spec"]["nodeName"] = "node-1"
    world.lost_nodes.add("ring-trainer-0")
    world.delete_pod("ring-trainer-0")
    world.settle()
    world.now = START + 90
    return world


def test_by_default_pods_are_never_force_deleted() -> None:
    assert Options().force_deletion is ForceDeletion.NEVER
    world = world_with_overdue_pod(ForceDeletion.NEVER)
    world.down_nodes = {"node-1": "no longer exists"}
    uid = world.pods["ring-trainer-0"]["metadata"]["uid"]
    world.settle()
    world.now += 1_000_000
    world.settle()
    assert world.pods["ring-trainer-0"]["metadata"]["uid"] == uid


@pytest.mark.parametrize("mode", [ForceDeletion.NEVER, ForceDeletion.NODE_DOWN])
def test_a_job_whose_pod_is_not_force_deleted_is_blocked_until_the_pod_is_gone(mode: ForceDeletion) -> None:
    world = world_with_overdue_pod(mode)
    world.settle()
    blocked = world.record["blocked"]
    assert (blocked["object"], blocked["reason"]) == ("pod ring-trainer-0", "Terminating")
    assert "its node has not confirmed the deletion" in blocked["message"]
    world.lost_nodes.clear()
    world.settle()
    world.run()
    world.settle()
    assert (world.phase, world.record.get("blocked")) == ("Running", None)


def test_a_pod_is_force_deleted_when_its_node_is_seen_to_be_down_and_the_event_says_so() -> None:
    world = world_with_overdue_pod(ForceDeletion.NODE_DOWN)
    world.down_nodes = {"node-2": "no longer exists"}
    assert world.plan().deletes == ()
    world.down_nodes = {"node-1": "is not ready (NodeStatusUnknown)"}
    plan = world.plan()
    assert [(delete.name, delete.grace_seconds) for delete in plan.deletes] == [("ring-trainer-0", 0)]
    messages = [event.message for event in plan.events]
    assert messages == ["Force-deleted 1 pod (ring-trainer-0): node node-1 is not ready (NodeStatusUnknown)"]


def test_a_pod_on_a_node_that_is_down_is_not_force_deleted_before_its_deletion_is_overdue() -> None:
    world = world_with_overdue_pod(ForceDeletion.NODE_DOWN)
    world.down_nodes = {"node-1": "no longer exists"}
    world.now = START + 89
    plan = world.plan()
    assert (plan.deletes, plan.requeue_at) == ((), START + 90)


def test_the_event_of_a_force_deletion_by_timeout_does_not_claim_anything_about_the_node() -> None:
    world = world_with_overdue_pod(ForceDeletion.TIMEOUT)
    (event,) = world.plan().events
    assert event.message.endswith("was not confirmed within 60 seconds after the grace period; the node was not checked")
