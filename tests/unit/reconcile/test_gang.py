"""A job whose pods are placed together, pass by pass: its group comes first, is kept up, is waited for, and goes with the pods."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dlop.api.constants import Reason
from dlop.api.types import Options
from dlop.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS, VOLCANO_POD_GROUPS
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from tests.unit.reconcile.ring import TRAINER, ring
from tests.unit.reconcile.world import World

BY_VOLCANO = Options(gang_scheduler_name="volcano")
BY_PLUGINS = Options(gang_scheduler_name="scheduler-plugins-scheduler")
PLACE = (VOLCANO_POD_GROUPS, "ring")


def volcano_world(**run_policy: Any) -> World:
    return World(ring(**run_policy), options=BY_VOLCANO)


def say(world: World, phase: str, **more: Any) -> None:
    """What the scheduler says of the group."""
    world.others[PLACE]["status"] = {"phase": phase, **more}


def running_world(**run_policy: Any) -> World:
    world = volcano_world(**run_policy)
    world.settle()
    say(world, "Inqueue")
    world.settle()
    world.run()
    say(world, "Running")
    world.settle()
    return world


def reasons(world: World) -> list[str]:
    return [event.reason for event in world.events]


def group_events(world: World) -> list[str]:
    return [event.message for event in world.events if "podgroup" in event.message]


# --- coming --------------------------------------------------------------------------------------------------------------


def test_volcano_s_group_comes_alone_and_everything_else_when_it_is_let_in() -> None:
    world = volcano_world()
    world.settle()
    assert list(world.others) == [PLACE]
    for phase in ("", "Pending"):
        say(world, phase)
        world.settle()
        assert not world.pods
        assert not world.services
    say(world, "Inqueue")
    world.settle()
    assert len(world.pods) == len(world.services) == 2
    assert world.writes["create ring"] == 1


def test_the_group_of_another_scheduler_comes_first_and_nothing_waits_for_it() -> None:
    plan = World(ring(), options=BY_PLUGINS).plan()
    assert [(creation.resource, creation.name) for creation in plan.others] == [(SCHEDULER_PLUGINS_POD_GROUPS, "ring")]
    assert len(plan.services) == len(plan.pods) == 2


def test_the_clock_of_a_job_runs_when_its_group_is_let_in_and_not_before() -> None:
    world = volcano_world(activeDeadlineSeconds=100)
    world.pass_time(1000)
    assert world.phase == "Created"
    assert "startTime" not in world.status
    say(world, "Inqueue")
    world.settle()
    assert world.status["startTime"]
    world.pass_time(99)
    assert world.phase == "Created"
    world.pass_time(2)
    assert world.phase == "Failed"


def test_the_clock_of_a_resumed_job_runs_when_its_new_group_is_let_in_and_not_before() -> None:
    world = running_world(activeDeadlineSeconds=100)
    suspend(world)
    world.settle()
    world.set_run_policy(suspend=False)
    world.pass_time(1000)
    assert world.phase == "Created"
    assert "startTime" not in world.status
    assert world.look_again_at is None  # no deadline is waited for
    say(world, "Inqueue")
    world.settle()
    world.pass_time(99)
    assert world.phase == "Created"
    world.pass_time(2)
    assert world.phase == "Failed"


def test_a_job_that_asks_for_no_pods_has_no_group() -> None:
    world = running_world()
    world.scale(TRAINER, 0)
    world.settle()
    assert not world.others
    world.scale(TRAINER, 1)
    world.settle()
    assert world.others[PLACE]["spec"]["minMember"] == 1


def test_a_template_with_another_scheduler_is_told_once_and_the_group_is_made_all_the_same() -> None:
    world = volcano_world()
    world.spec["replicaSpecs"][TRAINER]["template"]["spec"]["schedulerName"] = "mine"
    world.settle()
    say(world, "Inqueue")
    world.settle()
    world.run()
    world.settle()
    (told,) = [event.message for event in world.events if event.reason == Reason.SCHEDULER_MISMATCH]
    path = "spec.replicaSpecs.Trainer.template.spec.schedulerName"
    assert told == f"{path}: mine stays, and volcano does not place these pods: leave it out if it is to"
    assert {pod["spec"]["schedulerName"] for pod in world.pods.values()} == {"mine"}


def test_more_members_than_there_are_pods_are_told_with_the_field_each_time_that_the_spec_is_edited() -> None:
    world = World(ring(trainers=4, schedulingPolicy={"minAvailable": 3}), options=BY_PLUGINS)
    world.settle()
    assert Reason.MIN_AVAILABLE_TOO_HIGH not in reasons(world)
    world.scale(TRAINER, 2)
    world.pass_time(3600)
    (told,) = [event.message for event in world.events if event.reason == Reason.MIN_AVAILABLE_TOO_HIGH]
    assert told == (
        "spec.runPolicy.schedulingPolicy.minAvailable: is 3, and the job has 2 pods: "
        "so many can never be placed together; write at most 2, or leave it out"
    )
    assert [group["spec"]["minMember"] for group in world.others.values()] == [3]


# --- waiting -------------------------------------------------------------------------------------------------------------


def test_a_group_that_waits_for_a_moment_is_not_worth_a_word_and_one_that_waits_longer_is_told_once() -> None:
    world = volcano_world()
    world.pass_time(29)
    assert group_events(world) == []
    say(world, "Pending", conditions=[{"type": "Unschedulable", "status": "True", "message": "2/2 tasks unschedulable"}])
    world.pass_time(2)
    assert group_events(world) == ["podgroup ring: the scheduler volcano has not let it in: 2/2 tasks unschedulable"]
    assert world.condition("Blocked")["reason"] == Reason.GANG_NOT_ADMITTED
    again = {"type": "Unschedulable", "status": "True", "message": "other words", "lastTransitionTime": format_time(world.now)}
    say(world, "Pending", conditions=[again])
    writes = dict(world.writes)
    world.pass_time(3600)
    assert dict(world.writes) == writes
    say(world, "Inqueue")
    world.settle()
    assert ("Blocked", "True") not in world.conditions


def test_a_scheduler_that_gives_its_reasons_again_and_again_does_not_hide_that_it_lets_nobody_in() -> None:
    world = volcano_world()
    world.settle()
    for attempt in range(3):
        refreshed = {"type": "Unschedulable", "status": "True", "message": f"try {attempt}", "lastTransitionTime": format_time(world.now)}
        say(world, "Pending", conditions=[refreshed])
        world.pass_time(20)
    assert group_events(world) == ["podgroup ring: the scheduler volcano has not let it in: try 1"]


@pytest.mark.parametrize("options", [BY_VOLCANO, BY_PLUGINS])
def test_a_group_that_does_not_go_is_told_with_what_holds_it_and_not_blamed_on_the_scheduler(options: Options) -> None:
    world = World(ring(), options=options)
    world.settle()
    world.pods.clear()
    world.services.clear()
    (group,) = world.others.values()
    group["metadata"].update(deletionTimestamp=format_time(world.now), finalizers=["example.org/hold"])
    world.pass_time(29)
    assert group_events(world) == []
    world.pass_time(2)
    assert group_events(world) == ["podgroup ring is still being deleted: finalizers example.org/hold; remove them, or wait"]
    assert world.condition("Blocked")["reason"] == Reason.TERMINATING


def test_no_deadline_for_starting_runs_while_the_scheduler_makes_the_job_wait() -> None:
    world = volcano_world(startDeadlineSeconds=60)
    world.pass_time(3600)
    assert world.phase == "Created"


def test_the_next_group_waits_until_the_last_one_is_gone_and_the_pods_wait_for_both() -> None:
    world = World(ring(), options=BY_PLUGINS)
    world.settle()
    place = (SCHEDULER_PLUGINS_POD_GROUPS, "ring")
    world.pods.clear()
    world.services.clear()
    world.others[place]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    plan = world.plan()
    assert (plan.others, plan.services, plan.pods, plan.changes, plan.deletions) == ((), (), (), (), ())
    del world.others[place]
    plan = world.plan()
    assert len(plan.others) == 1
    assert len(plan.pods) == 2


# --- keeping up ----------------------------------------------------------------------------------------------------------


def test_the_group_follows_the_job_and_at_rest_nobody_touches_it() -> None:
    world = running_world()
    before = dict(world.writes)
    world.pass_time(3600)
    assert dict(world.writes) == before
    world.scale(TRAINER, 5)
    world.settle()
    assert world.others[PLACE]["spec"]["minMember"] == 5
    world.run()
    world.settle()
    world.scale(TRAINER, 1)
    world.settle()
    assert world.others[PLACE]["spec"]["minMember"] == 1
    assert world.writes["change ring"] == 2


def test_what_somebody_changes_in_the_group_is_set_right_but_not_its_queue_nor_what_is_not_the_job_s() -> None:
    world = running_world()
    world.others[PLACE]["spec"].update(minMember=9, queue="moved", minTaskMember={"trainer": 1})
    world.settle()
    assert world.others[PLACE]["spec"] == {"minMember": 2, "queue": "moved", "minTaskMember": {"trainer": 1}}


def test_a_group_that_another_operator_has_made_is_taken_as_it_is() -> None:
    world = volcano_world()
    world.settle()
    made: JsonObject = copy.deepcopy(world.others[PLACE])
    made["metadata"].pop("labels", None)
    made["spec"] = {"minMember": 2, "minResources": {}, "queue": "default", "priorityClassName": ""}
    again = volcano_world()
    again.others[PLACE] = {**made, "status": {"phase": "Running"}}
    again.settle()
    assert again.writes["create ring"] == again.writes["change ring"] == 0
    assert len(again.pods) == 2


def test_what_the_pods_need_together_is_counted_from_whole_pods() -> None:
    world = volcano_world()
    container = world.spec["replicaSpecs"][TRAINER]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    world.settle()
    assert world.others[PLACE]["spec"]["minResources"] == {"cpu": "1", "memory": "2Gi"}


def test_a_replica_that_has_finished_is_not_waited_for_when_the_job_goes_on_after_a_rest() -> None:
    world = running_world(trainers=3)
    world.exit("ring-trainer-1", 0)
    world.settle()
    assert world.others[PLACE]["spec"]["minMember"] == 3
    suspend(world)
    world.settle()
    world.set_run_policy(suspend=False)
    world.settle()
    assert world.others[PLACE]["spec"]["minMember"] == 2
    say(world, "Inqueue")
    world.settle()
    assert len(world.pods) == 2


# --- going ---------------------------------------------------------------------------------------------------------------


def succeed(world: World) -> None:
    for name in list(world.pods):
        world.exit(name, 0)


def run_out_of_time(world: World) -> None:
    world.wait(1000)


def suspend(world: World) -> None:
    world.set_run_policy(suspend=True)


@pytest.mark.parametrize("ends", [succeed, run_out_of_time, suspend])
def test_the_group_goes_when_the_job_ends_or_holds_still_and_that_is_told_once(ends: Any) -> None:
    world = running_world(activeDeadlineSeconds=500)
    ends(world)
    world.settle()
    assert not world.others
    world.pass_time(3600)
    assert reasons(world).count(Reason.DELETED_POD_GROUP) == world.writes["delete ring"] == 1


@pytest.mark.parametrize("options", [Options(), BY_PLUGINS])
def test_a_group_that_nobody_asks_for_any_more_goes_after_its_last_pod(options: Options) -> None:
    world = running_world()
    world.options = options
    world.settle()
    assert PLACE in world.others
    assert world.writes["delete ring"] == 0
    for name in list(world.pods):
        world.lose(name)
    world.settle()
    assert PLACE not in world.others
    assert len(world.pods) == 2


def test_a_resumed_job_has_a_group_again_and_waits_for_it_again() -> None:
    world = running_world()
    suspend(world)
    world.settle()
    world.set_run_policy(suspend=False)
    world.settle()
    assert list(world.others) == [PLACE]
    assert not world.pods
    say(world, "Inqueue")
    world.settle()
    assert len(world.pods) == 2


# --- crashes -------------------------------------------------------------------------------------------------------------


def story(world: World, *, dies_after: int | None) -> None:
    """From the beginning to a resumption, by operators that die after so many writes of every pass."""

    def pass_on() -> None:
        for _ in range(60):
            plan = world.plan()
            if not world.effects(plan) and not world.let_go():
                return
            world.carry_out(plan, writes=dies_after)
        raise AssertionError("the engine does not come to rest")

    pass_on()
    say(world, "Inqueue")
    pass_on()
    world.run()
    world.scale(TRAINER, 3)
    pass_on()
    world.run()
    suspend(world)
    pass_on()
    world.set_run_policy(suspend=False)
    pass_on()


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_whenever_the_operator_dies_there_is_one_group_in_the_end_and_nothing_that_should_wait(writes: int) -> None:
    steady, shaky = volcano_world(), volcano_world()
    story(steady, dies_after=None)
    story(shaky, dies_after=writes)
    assert shaky.others.keys() == steady.others.keys() == {PLACE}
    assert shaky.others[PLACE]["spec"] == steady.others[PLACE]["spec"]
    assert shaky.pods == steady.pods == {}
    assert shaky.writes["create ring"] == steady.writes["create ring"] == 2
