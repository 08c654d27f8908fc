"""Records that are older than the pods: cleared, restored by hand, or stale in the cache."""

from __future__ import annotations

import copy

import pytest

from dlop.api.constants import ATTEMPT_LABEL
from tests.unit.reconcile.ring import HELPER, TRAINER, ring
from tests.unit.reconcile.world import World


def second_attempt(scope: str) -> tuple[World, World]:
    """A job whose trainers were restarted, and its state in the first attempt, in which one trainer had completed."""
    world = World(ring(restartScope=scope, helpers=1, policy="ExitCode"))
    world.settle()
    world.run()
    world.exit("ring-trainer-1", 0)
    world.settle()
    before = copy.deepcopy(world)
    world.fail("ring-trainer-0", code=137)
    world.settle()
    world.run()
    world.settle()
    assert world.pods["ring-trainer-0"]["metadata"]["labels"][ATTEMPT_LABEL] == "1"
    return world, before


@pytest.mark.parametrize("scope", ["Role", "Job"])
@pytest.mark.parametrize("is_cleared", [True, False], ids=["cleared", "restored"])
def test_the_attempt_is_taken_from_the_pods_which_keep_running(scope: str, is_cleared: bool) -> None:
    world, before = second_attempt(scope)
    status, uids = copy.deepcopy(world.status), world.uids()
    world.status = {} if is_cleared else copy.deepcopy(before.status)
    world.settle()
    assert world.uids() == uids
    assert (world.phase, world.record.get("attempt"), world.record.get("roleAttempts")) == (
        "Running",
        status["dlop"].get("attempt"),
        status["dlop"].get("roleAttempts"),
    )
    assert world.record["startedIndexes"] == {TRAINER: "0-1", HELPER: "0"}
    assert "completedIndexes" not in world.record
    for name in ("ring-trainer-0", "ring-trainer-1"):
        world.exit(name, 0)
    world.settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize("scope", ["Role", "Job"])
def test_only_the_attempt_is_written_at_first(scope: str) -> None:
    world, before = second_attempt(scope)
    world.remove_pod("ring-trainer-0")
    plan = before.job().reconcile(world.snapshot(), world.now)
    assert (plan.deletes, plan.services, plan.pods, plan.events) == ((), (), (), ())
    assert plan.status is not None


@pytest.mark.parametrize("scope", ["Role", "Job"])
def test_a_stale_record_in_the_cache_has_no_effect(scope: str) -> None:
    world, before = second_attempt(scope)
    status, uids, writes = copy.deepcopy(world.status), world.uids(), world.writes.copy()
    world.execute(before.job().reconcile(world.snapshot(), world.now), version=before.version)
    assert (world.status, world.uids(), world.writes) == (status, uids, writes)


def test_the_start_time_of_another_operator_is_kept() -> None:
    world, _ = second_attempt("Job")
    world.status = {"startTime": "2027-01-15T07:00:00Z"}
    world.settle()
    assert world.status["startTime"] == "2027-01-15T07:00:00Z"


def test_a_malformed_attempt_label_counts_as_attempt_0() -> None:
    world, _ = second_attempt("Job")
    world.pods["ring-trainer-0"]["metadata"]["labels"][ATTEMPT_LABEL] = "9" * 60
    world.settle()
    assert world.record["attempt"] == 2
    assert {pod["metadata"]["labels"][ATTEMPT_LABEL] for pod in world.pods.values()} == {"2"}


def test_a_record_without_claimed_as_keeps_its_claims() -> None:
    world, _ = second_attempt("Job")
    claims, names, uids = world.record["startedIndexes"], world.record["claimedAs"], world.uids()
    del world.record["claimedAs"]
    world.settle()
    assert (world.record["startedIndexes"], world.record["claimedAs"], world.uids()) == (claims, names, uids)
    assert "disruptions" not in world.record
    del world.record["claimedAs"]
    world.remove_pod("ring-helper-0")
    world.settle()
    assert world.record["disruptions"] == {HELPER: 1}
