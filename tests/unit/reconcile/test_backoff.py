"""What is started again waits for it, longer each time; what has gone well for a while does not."""

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
Strike = Callable[[World], None]

FAILURES: dict[str, Strike] = {
    "its program fails": lambda world: world.fail(FIRST, code=137),
    "its pod fails": lambda world: world.fail(FIRST),
}
DISRUPTIONS: dict[str, Strike] = {
    "it is evicted": lambda world: world.fail(FIRST, reason="Evicted"),
    "its node has no room": lambda world: world.fail(FIRST, reason="OutOfcpu"),
    "somebody deletes it": lambda world: world.delete_pod(FIRST),
    "it vanishes": lambda world: world.lose(FIRST),
}


def running(**arguments: object) -> World:
    world = World(ring(**{"policy": "ExitCode", **arguments}))  # type: ignore[arg-type]
    run(world)
    return world


def run(world: World) -> None:
    world.settle()
    world.run()
    world.settle()


def lose(world: World, times: int = 1, strike: Strike = FAILURES["its program fails"]) -> None:
    """A replica is lost, and started again when its time has come, so many times."""
    for _ in range(times):
        while not world.is_running(FIRST):
            if world.look_again_at is not None and FIRST not in world.pods:
                world.now = world.look_again_at
            run(world)
        strike(world)
        world.settle()


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
@pytest.mark.parametrize(
    ("strike", "most"), [(strike, 19) for strike in FAILURES.values()] + [(strike, 20) for strike in DISRUPTIONS.values()]
)
def test_what_is_lost_again_and_again_is_created_a_few_times_in_an_hour(scope: str, strike: Strike, most: int) -> None:
    world = running(restartScope=scope, helpers=1)
    while world.now < START + 3600:
        lose(world, strike=strike)
    assert most - 2 <= world.writes[f"create {FIRST}"] <= most + 1
    assert world.writes["status"] < 6 * most


def test_delays_double_up_to_five_minutes_and_a_disruption_is_forgiven_once_more_than_a_failure() -> None:
    assert [delay_seconds(losses, ReplicaState.RESTARTING) for losses in range(1, 10)] == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    assert [delay_seconds(losses, ReplicaState.DISRUPTED) for losses in range(1, 10)] == [0, 0, 10, 20, 40, 80, 160, 300, 300]
    assert delay_seconds(2**62, ReplicaState.RESTARTING) == 300


def test_the_first_restart_comes_at_once_and_the_second_after_ten_seconds() -> None:
    world = running()
    lose(world)
    assert FIRST in world.pods
    lose(world)
    assert FIRST not in world.pods
    assert world.look_again_at == START + 10
    world.now = START + 9.5
    assert world.plan().pods == ()
    world.now = START + 10
    assert [creation.name for creation in world.plan().pods] == [FIRST]


def test_the_old_pod_goes_at_once_and_its_peers_run_on() -> None:
    world = running()
    peer = world.uids()["ring-trainer-1"]
    lose(world, times=3)
    assert world.uids() == {"ring-trainer-1": peer}
    assert world.phase == "Running"


def test_one_replica_does_not_wait_for_another() -> None:
    world = running()
    lose(world, times=3)
    world.fail("ring-trainer-1", code=137)
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]


@pytest.mark.parametrize(("scope", "left"), [("Role", ["ring-helper-0"]), ("Job", [])])
def test_what_is_started_again_as_one_waits_as_one(scope: str, left: list[str]) -> None:
    world = running(restartScope=scope, helpers=1)
    lose(world, times=2)
    assert list(world.pods) == left
    world.pass_time(10)
    run(world)
    assert len(world.pods) == 3
    assert world.pods[FIRST]["metadata"]["labels"][ATTEMPT_LABEL] == "2"


def test_what_has_gone_on_for_ten_minutes_is_started_again_at_once() -> None:
    world = running()
    lose(world, times=3)
    world.pass_time(20)
    run(world)
    world.pass_time(600)
    lose(world)
    assert FIRST in world.pods
    assert world.record["retries"] == {f"{TRAINER}/0": [1, "2027-01-15T08:10:30Z"]}


def test_the_status_names_the_pod_and_the_moment_and_does_not_change_while_it_waits() -> None:
    world = running()
    lose(world, times=2)
    blocked = world.condition("Blocked")
    assert blocked["reason"] == "BackOff"
    assert blocked["message"] == "pod ring-trainer-0: it ended 2 times in a row, and is started again at 2027-01-15T08:00:10Z"
    writes = world.writes["status"]
    for _ in range(8):
        world.now += 1
        world.settle()
    assert world.writes["status"] == writes
    assert [(event.type, event.message) for event in world.events if event.reason == "BackOff"] == [(EventType.WARNING, blocked["message"])]
    world.pass_time(2)
    assert ("Blocked", "True") not in world.conditions


@pytest.mark.parametrize(("scope", "what"), [("Role", "role Trainer"), ("Job", "job ring")])
def test_the_status_names_what_waits_as_one(scope: str, what: str) -> None:
    world = running(restartScope=scope)
    lose(world, times=2)
    assert world.condition("Blocked")["message"].startswith(f"{what}: ")


def test_an_edit_of_the_spec_is_a_new_try() -> None:
    world = running()
    lose(world, times=5)
    world.set_image(TRAINER, "example.org/train:2")
    world.settle()
    assert world.images()[FIRST] == "example.org/train:2"
    assert "retries" not in world.record


def test_suspending_ends_the_wait() -> None:
    world = running()
    lose(world, times=5)
    world.set_run_policy(suspend=True)
    world.settle()
    assert world.look_again_at is None
    world.set_run_policy(suspend=False)
    world.settle()
    assert FIRST in world.pods


def test_nothing_is_remembered_of_a_job_that_has_ended() -> None:
    world = running(backoffLimit=2)
    lose(world, times=3)
    assert world.phase == "Failed"
    assert "retries" not in world.record
    assert world.look_again_at is None


def test_waiting_does_not_use_up_the_start_deadline() -> None:
    world = running(startDeadlineSeconds=5)
    lose(world, times=4)
    world.pass_time(39)
    assert world.phase == "Running"


def test_the_wait_survives_an_operator_that_dies_at_any_write() -> None:
    for writes in range(4):
        world = running()
        lose(world)
        run(world)
        world.fail(FIRST, code=137)
        for _ in range(3):
            world.carry_out(world.plan(), writes=writes)
        world.settle()
        assert world.record["retries"] == {f"{TRAINER}/0": [2, "2027-01-15T08:00:10Z"]}
        assert FIRST not in world.pods


@pytest.mark.parametrize("until", ["", "soon", "3027-01-15T08:00:00Z"])
def test_a_moment_that_no_delay_reaches_is_not_waited_for(until: str) -> None:
    world = running()
    lose(world, times=2)
    world.status = copy.deepcopy(world.status)
    world.status["dlop"]["retries"] = {f"{TRAINER}/0": [2, until], "Nobody/x": [1, "2027-01-15T08:00:10Z"], "": [1, "2027-01-15T08:00:09Z"]}
    world.settle()
    assert FIRST in world.pods
