"""Jobs whose replicas are told how many there are, scaled while they run: they begin anew as a whole, and nobody counts it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from dlop.api.constants import ATTEMPT_LABEL, SIZE_ANNOTATION
from dlop.replica import Replica
from tests.unit.reconcile.ring import HELPER, TRAINER, RingJob, ring
from tests.unit.reconcile.world import World

SCOPES = ("Replica", "Role", "Job")


class FixedJob(RingJob):
    """Every replica is told how many trainers there are; helpers may come and go."""

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"SIZE": str(self.replicas(TRAINER))}

    def fixed_roles(self) -> tuple[str, ...]:
        return (TRAINER,)


def running(**arguments: object) -> World:
    world = World(ring(**{"helpers": 1, **arguments}), kind=FixedJob)  # type: ignore[arg-type]
    world.settle()
    world.run()
    world.settle()
    return world


def told(world: World) -> set[str]:
    return {variable["value"] for pod in world.pods.values() for variable in pod["spec"]["containers"][0]["env"]}


def attempts(world: World) -> set[str]:
    return {pod["metadata"]["labels"][ATTEMPT_LABEL] for pod in world.pods.values()}


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("trainers", [1, 3])
def test_everybody_begins_anew_with_the_new_size_and_nothing_counts_it(scope: str, trainers: int) -> None:
    world = running(restartScope=scope, backoffLimit=0, disruptionLimit=0)
    before = set(world.uids().values())
    world.scale(TRAINER, trainers)
    world.settle()
    assert world.phase == "Restarting"
    world.run()
    world.settle()
    assert (world.phase, told(world), attempts(world)) == ("Running", {str(trainers)}, {"1"})
    assert len(world.pods) == trainers + 1
    assert before.isdisjoint(world.uids().values())
    assert {"restarts", "disruptions", "retries"}.isdisjoint(world.record)
    assert [event.reason for event in world.events].count("Resized") == 1


@pytest.mark.parametrize("scope", SCOPES)
def test_nobody_of_the_new_size_is_there_before_the_last_one_of_the_old_size_is_gone(scope: str) -> None:
    world = running(restartScope=scope)
    world.scale(TRAINER, 1)
    while world.carry_out(world.plan()) or world.let_go(most=1):
        assert len(attempts(world)) <= 1
    assert (attempts(world), len(world.pods)) == ({"1"}, 2)


def test_what_is_known_of_the_old_size_is_written_down_before_anything_is_deleted() -> None:
    world = running()
    world.scale(TRAINER, 3)
    world.carry_out(world.plan())
    assert (world.record["attempt"], len(world.pods)) == (1, 3)
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())


def test_the_condition_says_why_also_where_something_had_failed_before() -> None:
    world = running()
    world.exit("ring-trainer-0", 1)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    words = "scaled from Trainer=2 to Trainer=3: all replicas start again, for each is told how many there are"
    assert (world.condition("Restarting")["reason"], world.condition("Restarting")["message"]) == ("RingJobRestarting", words)


def test_a_role_that_may_come_and_go_is_scaled_without_harm() -> None:
    world = running()
    before = world.uids()
    world.scale(HELPER, 2)
    world.settle()
    assert before.items() <= world.uids().items()
    assert len(world.pods) == 4


def test_a_replica_that_is_done_begins_anew_too_for_the_others_would_wait_for_it() -> None:
    world = running(policy="Never")
    world.exit("ring-trainer-0", 0)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    assert (len(world.pods), attempts(world), "completed" in world.record) == (4, {"1"}, False)


def test_pods_that_have_not_started_are_only_made_anew() -> None:
    world = World(ring(), kind=FixedJob)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    assert (told(world), attempts(world), len(world.pods)) == ({"3"}, {"0"}, 3)


def test_a_pod_that_waits_for_a_side_car_has_begun_all_the_same() -> None:
    world = running()
    for pod in world.pods.values():
        pod["status"]["phase"] = "Pending"
        pod["status"]["containerStatuses"].append({"name": "aside", "restartCount": 0, "state": {"waiting": {"reason": "ErrImagePull"}}})
    world.scale(TRAINER, 3)
    world.settle()
    assert (told(world), attempts(world), len(world.pods)) == ({"3"}, {"1"}, 4)


def test_a_job_that_is_resumed_with_another_size_before_its_pods_are_gone_says_both() -> None:
    world = running()
    world.edit(lambda spec: spec["runPolicy"].update(suspend=True))
    world.carry_out(world.plan())
    world.edit(lambda spec: spec["runPolicy"].update(suspend=False))
    world.scale(TRAINER, 3)
    world.settle()
    assert (told(world), attempts(world)) == ({"3"}, {"1"})
    assert [event.reason for event in world.events][-5:-2].count("Resumed") == 1


def test_roles_that_were_started_again_before_are_all_part_of_the_new_attempt() -> None:
    world = running(restartScope="Role", policy="ExitCode")
    world.exit("ring-trainer-0", 137)
    world.settle()
    world.run()
    world.settle()
    assert world.record["roleAttempts"] == {TRAINER: 1}
    world.scale(TRAINER, 3)
    world.settle()
    assert (attempts(world), "roleAttempts" in world.record) == ({"2"}, False)


def test_an_edit_that_is_taken_back_before_anybody_has_looked_changes_nothing() -> None:
    world = running()
    before = world.uids()
    world.scale(TRAINER, 3)
    world.scale(TRAINER, 2)
    world.settle()
    assert world.uids() == before


def test_pods_that_do_not_say_what_they_were_told_are_left_alone() -> None:
    world = running()
    for pod in world.pods.values():
        del pod["metadata"]["annotations"][SIZE_ANNOTATION]
    before = world.uids()
    world.scale(TRAINER, 3)
    world.settle()
    assert before.items() <= world.uids().items()


def test_scaled_and_done_in_the_same_moment_is_done() -> None:
    world = running(policy="Never")
    for index in range(2):
        world.exit(f"ring-trainer-{index}", 0)
    world.scale(TRAINER, 1)
    world.settle()
    assert world.phase == "Succeeded"


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("writes", range(8))
def test_an_operator_may_die_after_any_write(scope: str, writes: int) -> None:
    world = running(restartScope=scope)
    world.scale(TRAINER, 3)
    while writes > 0:
        plan = world.plan()
        world.carry_out(plan, writes=writes)
        writes -= max(1, len(world.effects(plan)))
    world.settle()
    world.run()
    world.settle()
    assert (world.phase, told(world), len(attempts(world))) == ("Running", {"3"}, 1)
