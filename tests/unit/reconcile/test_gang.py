"""Gang scheduling in the planner: creation, admission, updates and deletion of the PodGroup."""

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

VOLCANO = Options(gang_scheduler_name="volcano")
SCHEDULER_PLUGINS = Options(gang_scheduler_name="scheduler-plugins-scheduler")
GROUP = (VOLCANO_POD_GROUPS, "ring")


def volcano_world(**run_policy: Any) -> World:
    return World(ring(**run_policy), options=VOLCANO)


def set_status(world: World, phase: str, **more: Any) -> None:
    """Set the status of the PodGroup, as the scheduler does."""
    world.children[GROUP]["status"] = {"phase": phase, **more}


def running_world(**run_policy: Any) -> World:
    world = volcano_world(**run_policy)
    world.settle()
    set_status(world, "Inqueue")
    world.settle()
    world.run()
    set_status(world, "Running")
    world.settle()
    return world


def reasons(world: World) -> list[str]:
    return [event.reason for event in world.events]


def group_events(world: World) -> list[str]:
    return [event.message for event in world.events if "podgroup" in event.message]


# --- creation -------------------------------------------------------------------------------------------------------------


def test_with_volcano_everything_else_is_created_after_the_group_is_admitted() -> None:
    world = volcano_world()
    world.settle()
    assert list(world.children) == [GROUP]
    for phase in ("", "Pending"):
        set_status(world, phase)
        world.settle()
        assert not world.pods
        assert not world.services
    set_status(world, "Inqueue")
    world.settle()
    assert len(world.pods) == len(world.services) == 2
    assert world.writes["create ring"] == 1


def test_with_other_schedulers_everything_is_created_at_once() -> None:
    plan = World(ring(), options=SCHEDULER_PLUGINS).plan()
    assert [(create.resource, create.name) for create in plan.children] == [(SCHEDULER_PLUGINS_POD_GROUPS, "ring")]
    assert len(plan.services) == len(plan.pods) == 2


def test_a_job_starts_when_its_group_is_admitted() -> None:
    world = volcano_world(activeDeadlineSeconds=100)
    world.pass_time(1000)
    assert world.phase == "Created"
    assert "startTime" not in world.status
    set_status(world, "Inqueue")
    world.settle()
    assert world.status["startTime"]
    world.pass_time(99)
    assert world.phase == "Created"
    world.pass_time(2)
    assert world.phase == "Failed"


def test_a_resumed_job_starts_when_its_new_group_is_admitted() -> None:
    world = running_world(activeDeadlineSeconds=100)
    suspend(world)
    world.settle()
    world.set_run_policy(suspend=False)
    world.pass_time(1000)
    assert world.phase == "Created"
    assert "startTime" not in world.status
    assert world.requeue_at is None  # there is no deadline
    set_status(world, "Inqueue")
    world.settle()
    world.pass_time(99)
    assert world.phase == "Created"
    world.pass_time(2)
    assert world.phase == "Failed"


def test_a_job_without_pods_has_no_group() -> None:
    world = running_world()
    world.scale(TRAINER, 0)
    world.settle()
    assert not world.children
    world.scale(TRAINER, 1)
    world.settle()
    assert world.children[GROUP]["spec"]["minMember"] == 1


def test_a_template_with_another_scheduler_is_reported_once_and_the_group_is_created() -> None:
    world = volcano_world()
    world.spec["replicaSpecs"][TRAINER]["template"]["spec"]["schedulerName"] = "mine"
    world.settle()
    set_status(world, "Inqueue")
    world.settle()
    world.run()
    world.settle()
    (message,) = [event.message for event in world.events if event.reason == Reason.SCHEDULER_MISMATCH]
    path = "spec.replicaSpecs.Trainer.template.spec.schedulerName"
    assert message == f"{path}: these pods are scheduled by mine and not by the gang scheduler volcano; remove the field to change this"
    assert {pod["spec"]["schedulerName"] for pod in world.pods.values()} == {"mine"}


def test_a_min_available_above_the_number_of_pods_is_reported_once_per_generation() -> None:
    world = World(ring(trainers=4, schedulingPolicy={"minAvailable": 3}), options=SCHEDULER_PLUGINS)
    world.settle()
    assert Reason.MIN_AVAILABLE_TOO_HIGH not in reasons(world)
    world.scale(TRAINER, 2)
    world.pass_time(3600)
    (message,) = [event.message for event in world.events if event.reason == Reason.MIN_AVAILABLE_TOO_HIGH]
    assert message == (
        "spec.runPolicy.schedulingPolicy.minAvailable: is 3, but the job has only 2 pods "
        "and can never be scheduled; set it to at most 2, or remove it"
    )
    assert [group["spec"]["minMember"] for group in world.children.values()] == [3]


# --- admission ------------------------------------------------------------------------------------------------------------


def test_a_group_that_is_not_admitted_is_reported_once_after_a_delay() -> None:
    world = volcano_world()
    world.pass_time(29)
    assert group_events(world) == []
    set_status(world, "Pending", conditions=[{"type": "Unschedulable", "status": "True", "message": "2/2 tasks unschedulable"}])
    world.pass_time(2)
    assert group_events(world) == ["podgroup ring: the scheduler volcano has not admitted it: 2/2 tasks unschedulable"]
    assert world.condition("Blocked")["reason"] == Reason.GANG_NOT_ADMITTED
    again = {"type": "Unschedulable", "status": "True", "message": "another message", "lastTransitionTime": format_time(world.now)}
    set_status(world, "Pending", conditions=[again])
    writes = dict(world.writes)
    world.pass_time(3600)
    assert dict(world.writes) == writes
    set_status(world, "Inqueue")
    world.settle()
    assert ("Blocked", "True") not in world.conditions


def test_status_updates_of_the_group_do_not_delay_the_report() -> None:
    world = volcano_world()
    world.settle()
    for attempt in range(3):
        refreshed = {
            "type": "Unschedulable",
            "status": "True",
            "message": f"attempt {attempt}",
            "lastTransitionTime": format_time(world.now),
        }
        set_status(world, "Pending", conditions=[refreshed])
        world.pass_time(20)
    assert group_events(world) == ["podgroup ring: the scheduler volcano has not admitted it: attempt 1"]


@pytest.mark.parametrize("options", [VOLCANO, SCHEDULER_PLUGINS])
def test_a_group_that_does_not_terminate_is_reported_with_its_finalizers(options: Options) -> None:
    world = World(ring(), options=options)
    world.settle()
    world.pods.clear()
    world.services.clear()
    (group,) = world.children.values()
    group["metadata"].update(deletionTimestamp=format_time(world.now), finalizers=["example.org/hold"])
    world.pass_time(29)
    assert group_events(world) == []
    world.pass_time(2)
    assert group_events(world) == ["podgroup ring is still terminating: finalizers example.org/hold; remove them, or wait"]
    assert world.condition("Blocked")["reason"] == Reason.TERMINATING


def test_the_start_deadline_does_not_apply_before_admission() -> None:
    world = volcano_world(startDeadlineSeconds=60)
    world.pass_time(3600)
    assert world.phase == "Created"


def test_nothing_is_created_while_the_previous_group_is_terminating() -> None:
    world = World(ring(), options=SCHEDULER_PLUGINS)
    world.settle()
    group = (SCHEDULER_PLUGINS_POD_GROUPS, "ring")
    world.pods.clear()
    world.services.clear()
    world.children[group]["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    plan = world.plan()
    assert (plan.children, plan.services, plan.pods, plan.patches, plan.deletes) == ((), (), (), (), ())
    del world.children[group]
    plan = world.plan()
    assert len(plan.children) == 1
    assert len(plan.pods) == 2


# --- updates ------------------------------------------------------------------------------------------------------------


def test_the_group_follows_the_size_of_the_job_and_is_not_written_otherwise() -> None:
    world = running_world()
    before = dict(world.writes)
    world.pass_time(3600)
    assert dict(world.writes) == before
    world.scale(TRAINER, 5)
    world.settle()
    assert world.children[GROUP]["spec"]["minMember"] == 5
    world.run()
    world.settle()
    world.scale(TRAINER, 1)
    world.settle()
    assert world.children[GROUP]["spec"]["minMember"] == 1
    assert world.writes["patch ring"] == 2


def test_changes_of_the_group_are_reverted_except_for_the_queue_and_unmanaged_fields() -> None:
    world = running_world()
    world.children[GROUP]["spec"].update(minMember=9, queue="moved", minTaskMember={"trainer": 1})
    world.settle()
    assert world.children[GROUP]["spec"] == {"minMember": 2, "queue": "moved", "minTaskMember": {"trainer": 1}}


def test_an_equivalent_group_of_another_operator_is_not_patched() -> None:
    world = volcano_world()
    world.settle()
    existing: JsonObject = copy.deepcopy(world.children[GROUP])
    existing["metadata"].pop("labels", None)
    existing["spec"] = {"minMember": 2, "minResources": {}, "queue": "default", "priorityClassName": ""}
    world = volcano_world()
    world.children[GROUP] = {**existing, "status": {"phase": "Running"}}
    world.settle()
    assert world.writes["create ring"] == world.writes["patch ring"] == 0
    assert len(world.pods) == 2


def test_min_resources_are_the_sum_of_the_pod_requests() -> None:
    world = volcano_world()
    container = world.spec["replicaSpecs"][TRAINER]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    world.settle()
    assert world.children[GROUP]["spec"]["minResources"] == {"cpu": "1", "memory": "2Gi"}


def test_after_a_resumption_the_group_does_not_wait_for_completed_replicas() -> None:
    world = running_world(trainers=3)
    world.exit("ring-trainer-1", 0)
    world.settle()
    assert world.children[GROUP]["spec"]["minMember"] == 3
    suspend(world)
    world.settle()
    world.set_run_policy(suspend=False)
    world.settle()
    assert world.children[GROUP]["spec"]["minMember"] == 2
    set_status(world, "Inqueue")
    world.settle()
    assert len(world.pods) == 2


# --- deletion --------------------------------------------------------------------------------------------------------------


def succeed(world: World) -> None:
    for name in list(world.pods):
        world.exit(name, 0)


def exceed_deadline(world: World) -> None:
    world.wait(1000)


def suspend(world: World) -> None:
    world.set_run_policy(suspend=True)


@pytest.mark.parametrize("stop", [succeed, exceed_deadline, suspend])
def test_the_group_is_deleted_once_when_the_job_finishes_or_is_suspended(stop: Any) -> None:
    world = running_world(activeDeadlineSeconds=500)
    stop(world)
    world.settle()
    assert not world.children
    world.pass_time(3600)
    assert reasons(world).count(Reason.DELETED_POD_GROUP) == world.writes["delete ring"] == 1


@pytest.mark.parametrize("options", [Options(), SCHEDULER_PLUGINS])
def test_a_group_that_is_no_longer_needed_is_deleted_after_its_last_pod(options: Options) -> None:
    world = running_world()
    world.options = options
    world.settle()
    assert GROUP in world.children
    assert world.writes["delete ring"] == 0
    for name in list(world.pods):
        world.remove_pod(name)
    world.settle()
    assert GROUP not in world.children
    assert len(world.pods) == 2


def test_a_resumed_job_gets_a_new_group_and_waits_for_its_admission() -> None:
    world = running_world()
    suspend(world)
    world.settle()
    world.set_run_policy(suspend=False)
    world.settle()
    assert list(world.children) == [GROUP]
    assert not world.pods
    set_status(world, "Inqueue")
    world.settle()
    assert len(world.pods) == 2


# --- crashes -------------------------------------------------------------------------------------------------------------


def run_scenario(world: World, *, crash_after: int | None) -> None:
    """From creation to resumption. The operator crashes after `crash_after` writes of every pass."""

    def settle() -> None:
        for _ in range(60):
            plan = world.plan()
            if not world.effects(plan) and not world.confirm_deletions():
                return
            world.execute(plan, writes=crash_after)
        raise AssertionError("the planner does not settle")

    settle()
    set_status(world, "Inqueue")
    settle()
    world.run()
    world.scale(TRAINER, 3)
    settle()
    world.run()
    suspend(world)
    settle()
    world.set_run_policy(suspend=False)
    settle()


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_crashes_do_not_change_the_final_state(writes: int) -> None:
    reference, crashing = volcano_world(), volcano_world()
    run_scenario(reference, crash_after=None)
    run_scenario(crashing, crash_after=writes)
    assert crashing.children.keys() == reference.children.keys() == {GROUP}
    assert crashing.children[GROUP]["spec"] == reference.children[GROUP]["spec"]
    assert crashing.pods == reference.pods == {}
    assert crashing.writes["create ring"] == reference.writes["create ring"] == 2
