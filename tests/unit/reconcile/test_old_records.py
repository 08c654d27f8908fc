"""Records that know less than the pods: wiped out, put back by hand, or old copies of the one that is stored."""

from __future__ import annotations

import copy

import pytest

from dlop.api.constants import ATTEMPT_LABEL
from tests.unit.reconcile.ring import HELPER, TRAINER, ring
from tests.unit.reconcile.world import World


def in_its_second_attempt(scope: str) -> tuple[World, World]:
    """A job whose trainers were started again; and the world as it was when one trainer had finished in the first attempt."""
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
@pytest.mark.parametrize("is_wiped", [True, False], ids=["wiped out", "put back"])
def test_the_pods_tell_the_attempt_and_run_on(scope: str, is_wiped: bool) -> None:
    world, before = in_its_second_attempt(scope)
    status, uids = copy.deepcopy(world.status), world.uids()
    world.status = {} if is_wiped else copy.deepcopy(before.status)
    world.settle()
    assert world.uids() == uids
    assert (world.phase, world.record.get("attempt"), world.record.get("roleAttempts")) == (
        "Running",
        status["dlop"].get("attempt"),
        status["dlop"].get("roleAttempts"),
    )
    assert world.record["started"] == {TRAINER: "0-1", HELPER: "0"}
    assert "completed" not in world.record
    for name in ("ring-trainer-0", "ring-trainer-1"):
        world.exit(name, 0)
    world.settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize("scope", ["Role", "Job"])
def test_before_the_attempt_is_written_down_nothing_else_is_done(scope: str) -> None:
    world, before = in_its_second_attempt(scope)
    world.lose("ring-trainer-0")
    plan = before.job().reconcile(world.snapshot(), world.now)
    assert (plan.deletions, plan.services, plan.pods, plan.events) == ((), (), (), ())
    assert plan.status is not None


@pytest.mark.parametrize("scope", ["Role", "Job"])
def test_an_old_copy_of_the_record_changes_nothing(scope: str) -> None:
    world, before = in_its_second_attempt(scope)
    status, uids, writes = copy.deepcopy(world.status), world.uids(), world.writes.copy()
    world.carry_out(before.job().reconcile(world.snapshot(), world.now), version=before.version)
    assert (world.status, world.uids(), world.writes) == (status, uids, writes)


def test_what_another_operator_wrote_of_the_start_is_kept() -> None:
    world, _ = in_its_second_attempt("Job")
    world.status = {"startTime": "2027-01-15T07:00:00Z"}
    world.settle()
    assert world.status["startTime"] == "2027-01-15T07:00:00Z"


def test_a_label_that_is_no_attempt_is_that_of_a_pod_before_there_were_any() -> None:
    world, _ = in_its_second_attempt("Job")
    world.pods["ring-trainer-0"]["metadata"]["labels"][ATTEMPT_LABEL] = "9" * 60
    world.settle()
    assert world.record["attempt"] == 2
    assert {pod["metadata"]["labels"][ATTEMPT_LABEL] for pod in world.pods.values()} == {"2"}


def test_a_record_that_does_not_say_under_which_names_it_claims_keeps_its_claims() -> None:
    """Records of earlier versions do not."""
    world, _ = in_its_second_attempt("Job")
    claims, names, uids = world.record["started"], world.record["claimedAs"], world.uids()
    del world.record["claimedAs"]
    world.settle()
    assert (world.record["started"], world.record["claimedAs"], world.uids()) == (claims, names, uids)
    assert "disruptions" not in world.record
    del world.record["claimedAs"]
    world.lose("ring-helper-0")
    world.settle()
    assert world.record["disruptions"] == {HELPER: 1}
