"""Restarts are delayed by an exponential back-off, which is reset after a while."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from dlop.api.constants import ATTEMPT_LABEL
from dlop.api.progress import ReplicaState
from dlop.reconcile.backoff import delay_seconds
from dlop.reconcile.plan import EventType
from tests.unit.reconcile.ring import TRAINER, ring
from tests.unit.reconcile.world import START, World

FIRST = "ring-trainer-0"
Loss = Callable[[World], None]

FAILURES: dict[str, Loss] = {
    "its program fails": lambda world: world.fail(FIRST, code=137),
    "its pod fails": lambda world: world.fail(FIRST),
}
DISRUPTIONS: dict[str, Loss] = {
    "it is evicted": lambda world: world.fail(FIRST, reason="Evicted"),
    "its node is out of resources": lambda world: world.fail(FIRST, reason="OutOfcpu"),
    "it is deleted": lambda world: world.delete_pod(FIRST),
    "it vanishes": lambda world: world.remove_pod(FIRST),
}


def running(**arguments: object) -> World:
    world = World(ring(**{"policy": "ExitCode", **arguments}))  # type: ignore[arg-type]
    run(world)
    return world


def run(world: World) -> None:
    world.settle()
    world.run()
    world.settle()


def lose(world: World, times: int = 1, loss: Loss = FAILURES["its program fails"]) -> None:
    """Lose a replica and let it restart after its back-off, `times` times."""
    for _ in range(times):
        while not world.is_running(FIRST):
            if world.requeue_at is not None and FIRST not in world.pods:
                world.now = world.requeue_at
            run(world)
        loss(world)
        world.settle()


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
@pytest.mark.parametrize(("loss", "expected"), [(loss, 19) for loss in FAILURES.values()] + [(loss, 20) for loss in DISRUPTIONS.values()])
def test_a_replica_that_is_lost_repeatedly_is_created_only_a_few_times_per_hour(scope: str, loss: Loss, expected: int) -> None:
    world = running(restartScope=scope, helpers=1)
    while world.now < START + 3600:
        lose(world, loss=loss)
    assert expected - 2 <= world.writes[f"create {FIRST}"] <= expected + 1
    assert world.writes["status"] < 6 * expected


def test_delays_double_up_to_five_minutes_and_disruptions_get_one_more_immediate_restart() -> None:
    assert [delay_seconds(failures, ReplicaState.RESTARTING) for failures in range(1, 10)] == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    assert [delay_seconds(failures, ReplicaState.DISRUPTED) for failures in range(1, 10)] == [0, 0, 10, 20, 40, 80, 160, 300, 300]
    assert delay_seconds(2**62, ReplicaState.RESTARTING) == 300


def test_the_first_restart_is_immediate_and_the_second_after_ten_seconds() -> None:
    world = running()
    lose(world)
    assert FIRST in world.pods
    lose(world)
    assert FIRST not in world.pods
    assert world.requeue_at == START + 10
    world.now = START + 9.5
    assert world.plan().pods == ()
    world.now = START + 10
    assert [create.name for create in world.plan().pods] == [FIRST]


def test_the_old_pod_is_deleted_at_once_and_its_peers_keep_running() -> None:
    world = running()
    peer = world.uids()["ring-trainer-1"]
    lose(world, times=3)
    assert world.uids() == {"ring-trainer-1": peer}
    assert world.phase == "Running"


def test_the_back_off_of_one_replica_does_not_delay_another() -> None:
    world = running()
    lose(world, times=3)
    world.fail("ring-trainer-1", code=137)
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]


@pytest.mark.parametrize(("scope", "left"), [("Role", ["ring-helper-0"]), ("Job", [])])
def test_the_back_off_applies_to_the_whole_restart_scope(scope: str, left: list[str]) -> None:
    world = running(restartScope=scope, helpers=1)
    lose(world, times=2)
    assert list(world.pods) == left
    world.pass_time(10)
    run(world)
    assert len(world.pods) == 3
    assert world.pods[FIRST]["metadata"]["labels"][ATTEMPT_LABEL] == "2"


def test_the_back_off_is_reset_after_ten_minutes() -> None:
    world = running()
    lose(world, times=3)
    world.pass_time(20)
    run(world)
    world.pass_time(600)
    lose(world)
    assert FIRST in world.pods
    assert world.record["backoffs"] == {f"{TRAINER}/0": [1, "2027-01-15T08:10:30Z"]}


def test_the_blocked_condition_has_pod_and_time_and_does_not_change_during_the_back_off() -> None:
    world = running()
    lose(world, times=2)
    blocked = world.condition("Blocked")
    assert blocked["reason"] == "BackOff"
    assert blocked["message"] == "pod ring-trainer-0: back-off after 2 consecutive failures, next start at 2027-01-15T08:00:10Z"
    writes = world.writes["status"]
    for _ in range(8):
        world.now += 1
        world.settle()
    assert world.writes["status"] == writes
    assert [(event.type, event.message) for event in world.events if event.reason == "BackOff"] == [(EventType.WARNING, blocked["message"])]
    world.pass_time(2)
    assert ("Blocked", "True") not in world.conditions


@pytest.mark.parametrize(("scope", "subject"), [("Role", "role Trainer"), ("Job", "job ring")])
def test_the_blocked_condition_names_the_restart_scope(scope: str, subject: str) -> None:
    world = running(restartScope=scope)
    lose(world, times=2)
    assert world.condition("Blocked")["message"].startswith(f"{subject}: ")


def test_a_change_of_the_spec_resets_the_back_off() -> None:
    world = running()
    lose(world, times=5)
    world.set_image(TRAINER, "example.org/train:2")
    world.settle()
    assert world.images()[FIRST] == "example.org/train:2"
    assert "backoffs" not in world.record


def test_suspending_resets_the_back_off() -> None:
    world = running()
    lose(world, times=5)
    world.set_run_policy(suspend=True)
    world.settle()
    assert world.requeue_at is None
    world.set_run_policy(suspend=False)
    world.settle()
    assert FIRST in world.pods


def test_a_finished_job_has_no_back_off() -> None:
    world = running(backoffLimit=2)
    lose(world, times=3)
    assert world.phase == "Failed"
    assert "backoffs" not in world.record
    assert world.requeue_at is None


def test_the_back_off_does_not_count_against_the_start_deadline() -> None:
    world = running(startDeadlineSeconds=5)
    lose(world, times=4)
    world.pass_time(39)
    assert world.phase == "Running"


def test_the_back_off_survives_a_crash_after_any_write() -> None:
    for writes in range(4):
        world = running()
        lose(world)
        run(world)
        world.fail(FIRST, code=137)
        for _ in range(3):
            world.execute(world.plan(), writes=writes)
        world.settle()
        assert world.record["backoffs"] == {f"{TRAINER}/0": [2, "2027-01-15T08:00:10Z"]}
        assert FIRST not in world.pods


@pytest.mark.parametrize("not_before", ["", "soon", "3027-01-15T08:00:00Z"])
def test_an_invalid_or_distant_time_is_ignored(not_before: str) -> None:
    world = running()
    lose(world, times=2)
    world.status = copy.deepcopy(world.status)
    world.status["dlop"]["backoffs"] = {
        f"{TRAINER}/0": [2, not_before],
        "Unknown/x": [1, "2027-01-15T08:00:10Z"],
        "": [1, "2027-01-15T08:00:09Z"],
    }
    world.settle()
    assert FIRST in world.pods
