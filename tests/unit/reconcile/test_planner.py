"""The life of a job, from its first pass to its last."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dlop.api.child_objects import Create
from dlop.api.constants import ATTEMPT_LABEL
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import CONFIG_MAPS, SERVICES
from dlop.reconcile.plan import Plan
from tests.unit.reconcile.ring import HELPER, TRAINER, OrderedJob, RingJob, ring
from tests.unit.reconcile.world import START, World


def running(**arguments: object) -> World:
    world = World(ring(**arguments))  # type: ignore[arg-type]
    world.settle()
    world.run()
    world.settle()
    return world


# --- from start to end ---


def test_a_plain_success_takes_four_status_writes_and_ends_with_the_conditions_of_kubeflow() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    world.exit("ring-trainer-1", 0)
    world.settle()
    assert world.conditions == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert world.writes["status"] == 4
    assert world.status["completionTime"] == world.record["finishedAt"]


def test_the_first_pass_makes_services_and_pods_of_attempt_0_and_says_so_once() -> None:
    plan = World(ring(helpers=1)).plan()
    assert [creation.name for creation in plan.services] == ["ring-trainer-0", "ring-trainer-1", "ring-helper-0"]
    assert [creation.name for creation in plan.pods] == [creation.name for creation in plan.services]
    assert {creation.body["metadata"]["labels"][ATTEMPT_LABEL] for creation in plan.pods} == {"0"}
    assert [event.message for event in plan.events] == ["Created 3 pods and 3 services"]


def test_a_restart_policy_in_a_template_that_the_pods_do_not_get_is_told_once_for_each_edit() -> None:
    world = World(ring(helpers=1, policy="ExitCode"))
    world.spec["replicaSpecs"][TRAINER]["template"]["spec"]["restartPolicy"] = "Always"
    world.spec["replicaSpecs"][HELPER]["template"]["spec"]["restartPolicy"] = "Never"
    world.settle()
    path = "spec.replicaSpecs.Trainer.template.spec.restartPolicy"
    told = f"{path}: Always has no effect: the restartPolicy of the role is what counts, by which pods get Never"
    assert [event.message for event in world.events if event.reason == "SetPodTemplateRestartPolicy"] == [told]
    world.set_image(TRAINER, "example.org/train:2")
    world.pass_time(60)
    assert [event.message for event in world.events if event.reason == "SetPodTemplateRestartPolicy"] == [told, told]


def test_a_job_runs_as_soon_as_a_replica_that_decides_does() -> None:
    world = World(ring(helpers=1))
    world.settle()
    world.run("ring-helper-0")
    world.settle()
    assert world.phase == "Created"
    world.run("ring-trainer-1")
    world.settle()
    assert world.phase == "Running"


def test_a_role_whose_turn_has_not_come_is_not_created() -> None:
    world = World(ring(helpers=1), kind=OrderedJob)
    first = world.plan()
    assert [creation.name for creation in first.pods] == ["ring-helper-0"]
    assert len(first.services) == 3
    world.settle()
    assert len(world.pods) == 3


def test_a_finished_index_stays_finished_when_its_pod_is_gone() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    del world.pods["ring-trainer-0"]
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    assert world.record["completed"] == {TRAINER: "0"}
    assert "disruptions" not in world.record


def test_a_side_car_does_not_keep_a_replica_from_ending() -> None:
    world = running(trainers=1)
    world.pods["ring-trainer-0"]["status"]["containerStatuses"] = [
        {"name": "proxy", "state": {"running": {}}},
        {"name": "main", "state": {"terminated": {"exitCode": 0}}},
    ]
    world.settle()
    assert world.phase == "Succeeded"


def test_a_failure_names_pod_node_exit_code_and_signal() -> None:
    world = running(policy="Never")
    world.exit("ring-trainer-1", 139)
    world.settle()
    assert world.record["lastFailure"] == {
        "pod": "ring-trainer-1",
        "role": TRAINER,
        "index": 1,
        "node": "node-of-ring-trainer-1",
        "exitCode": 139,
        "signal": 11,
        "time": "2027-01-15T08:00:00Z",
    }
    message = world.condition("Failed")["message"]
    assert all(part in message for part in ("ring-trainer-1", "node-of-ring-trainer-1", "139"))


def test_of_failures_found_at_once_the_last_one_is_told() -> None:
    world = running(policy="ExitCode")
    world.exit("ring-trainer-1", 137)
    world.now += 5
    world.exit("ring-trainer-0", 139)
    world.settle()
    assert world.record["lastFailure"]["pod"] == "ring-trainer-0"
    world.run()
    world.settle()
    assert world.record["restarts"] == {TRAINER: 2}


def test_what_the_kind_needs_besides_is_created_first_and_once() -> None:
    class WithFile(RingJob):
        def other_objects(self) -> tuple[Create, ...]:
            return (Create(CONFIG_MAPS, {"metadata": self.owned("ring-file")}), Create(SERVICES, {"metadata": self.owned("ring")}))

    world = World(ring(), kind=WithFile)
    assert [creation.name for creation in world.plan().others] == ["ring-file", "ring"]
    world.settle()
    assert world.writes["create ring-file"] == world.writes["create ring"] == 1
    assert "ring" in world.services


# --- restarts ---


def test_nothing_is_created_in_the_pass_that_finds_a_loss() -> None:
    world = running(restartScope="Job")
    world.fail("ring-trainer-0", reason="Evicted")
    world.scale(TRAINER, 3)
    assert world.plan().pods == ()


def test_a_new_attempt_waits_for_the_last_pod_of_the_old_one() -> None:
    world = running(restartScope="Job", helpers=1)
    world.lost_nodes.add("ring-helper-0")
    world.fail("ring-trainer-0", code=1)
    world.settle()
    assert list(world.pods) == ["ring-helper-0"]
    world.lost_nodes.clear()
    world.settle()
    assert {pod["metadata"]["labels"][ATTEMPT_LABEL] for pod in world.pods.values()} == {"1"}
    assert world.record["restarts"] == {TRAINER: 1}


def test_a_pod_that_is_no_longer_asked_for_belongs_to_the_old_attempt_too() -> None:
    world = running(restartScope="Role")
    world.lost_nodes.add("ring-trainer-1")
    world.fail("ring-trainer-0", code=1)
    world.scale(TRAINER, 1)
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    world.lost_nodes.clear()
    world.settle()
    assert list(world.pods) == ["ring-trainer-0"]


def test_peers_that_fail_with_a_disrupted_replica_use_up_no_backoff_limit() -> None:
    world = running(restartScope="Job", backoffLimit=0)
    world.fail("ring-trainer-0", code=1)
    world.fail("ring-trainer-1", reason="Preempting")
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}
    assert "restarts" not in world.record


def test_restarts_are_counted_up_to_the_limit_and_no_further() -> None:
    world = running(backoffLimit=2, trainers=1)
    for phase in ("Running", "Running", "Failed"):
        world.exit("ring-trainer-0", 1)
        world.settle()
        assert world.phase == phase
    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert "backoff limit of 2" in world.condition("Failed")["message"]


def test_restarts_before_a_pod_was_replaced_still_count() -> None:
    world = running(backoffLimit=2, trainers=1)
    world.exit("ring-trainer-0", 1)
    world.settle()
    world.fail("ring-trainer-0", code=1)
    world.settle()
    world.run()
    world.settle()
    assert world.record["restarts"] == {TRAINER: 2}
    assert world.phase == "Running"


def test_a_pod_that_ends_well_after_it_was_told_to_go_has_not_finished() -> None:
    world = running(trainers=1)
    world.delete_pod("ring-trainer-0")
    world.now += 5
    world.exit("ring-trainer-0", 0)
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}
    assert world.pods["ring-trainer-0"]["status"]["phase"] == "Pending"


def test_a_pod_that_ended_well_before_somebody_deleted_it_has_finished() -> None:
    world = running(trainers=1)
    world.exit("ring-trainer-0", 0)
    world.pods["ring-trainer-0"]["metadata"] |= {"deletionTimestamp": "2027-01-15T08:01:00Z", "deletionGracePeriodSeconds": 30}
    world.settle()
    assert world.phase == "Succeeded"


def test_a_lost_node_is_given_its_time_and_then_its_pod_is_removed_by_force_once() -> None:
    world = running(trainers=1)
    world.lost_nodes.add("ring-trainer-0")
    world.delete_pod("ring-trainer-0")
    world.settle()
    assert world.look_again_at == START + 30 + 60
    world.now = START + 90
    plan = world.plan()
    assert [(deletion.name, deletion.grace_seconds) for deletion in plan.deletions] == [("ring-trainer-0", 0)]
    assert [event.reason for event in plan.events] == ["NodeLost"]
    world.pods["ring-trainer-0"]["metadata"]["deletionGracePeriodSeconds"] = 0
    assert world.plan().deletions == ()


# --- scaling ---


def test_scaling_down_takes_the_highest_indexes_with_their_services_and_is_no_disruption() -> None:
    world = running(trainers=4)
    world.scale(TRAINER, 2)
    world.settle()
    assert list(world.pods) == list(world.services) == ["ring-trainer-0", "ring-trainer-1"]
    assert world.record["started"] == {TRAINER: "0-1"}
    assert "disruptions" not in world.record


@pytest.mark.parametrize("writes", range(4))
def test_scaling_down_and_up_again_is_no_disruption_whenever_the_operator_dies(writes: int) -> None:
    world = running(trainers=3)
    world.scale(TRAINER, 2)
    world.carry_out(world.plan(), writes=writes)
    world.carry_out(world.plan(), writes=writes)
    world.scale(TRAINER, 3)
    world.settle()
    assert len(world.pods) == 3
    assert "disruptions" not in world.record


def test_scaling_up_adds_the_missing_replicas_alone() -> None:
    world = running(trainers=1)
    before = world.uids()
    world.scale(TRAINER, 3)
    world.settle()
    assert before.items() < world.uids().items()
    assert len(world.pods) == len(world.services) == 3


def test_a_role_that_is_taken_out_of_the_spec_goes() -> None:
    world = running(helpers=2)
    world.edit(lambda spec: spec["replicaSpecs"].pop(HELPER))
    world.settle()
    assert list(world.pods) == ["ring-trainer-0", "ring-trainer-1"]


# --- suspending ---


def test_suspending_takes_pods_and_services_away_and_resuming_starts_the_clock_anew() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    world.set_run_policy(suspend=True)
    world.settle()
    assert (world.pods, world.services) == ({}, {})
    assert world.conditions == [("Created", "True"), ("Running", "False"), ("Suspended", "True")]
    world.now += 500
    world.set_run_policy(suspend=False)
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    assert world.status["startTime"] == "2027-01-15T08:08:20Z"
    world.run()
    world.settle()
    assert world.conditions[-2:] == [("Suspended", "False"), ("Running", "True")]
    assert [event.reason for event in world.events].count("Suspended") == 1
    assert [event.reason for event in world.events].count("Resumed") == 1
    assert "disruptions" not in world.record


@pytest.mark.parametrize("writes", range(4))
def test_suspending_and_resuming_at_once_is_no_disruption_whenever_the_operator_dies(writes: int) -> None:
    world = running()
    world.set_run_policy(suspend=True)
    world.carry_out(world.plan(), writes=writes)
    world.carry_out(world.plan(), writes=writes)
    world.set_run_policy(suspend=False)
    world.settle()
    assert len(world.pods) == 2
    assert "disruptions" not in world.record


def test_a_replica_that_finishes_while_its_job_is_being_suspended_has_finished_whenever_the_operator_dies() -> None:
    world = running()
    world.set_run_policy(suspend=True)
    world.carry_out(world.plan())
    world.exit("ring-trainer-0", 0)
    world.carry_out(world.plan(), writes=1)
    world.settle()
    assert world.record["completed"] == {TRAINER: "0"}


def test_a_job_born_suspended_has_no_start_time_and_no_pods() -> None:
    world = World(ring(suspend=True))
    world.settle()
    assert world.conditions == [("Created", "True"), ("Suspended", "True")]
    assert "startTime" not in world.status
    assert (world.pods, world.services) == ({}, {})


def test_a_suspended_job_that_made_no_sense_for_a_while_still_starts_its_clock_anew() -> None:
    world = running(activeDeadlineSeconds=60)
    world.set_run_policy(suspend=True)
    world.settle()
    world.set_run_policy(backoffLimit="many")
    world.settle()
    assert world.conditions[-2:] == [("Suspended", "True"), ("Blocked", "True")]
    world.now += 600
    world.set_run_policy(suspend=False, backoffLimit=1)
    world.settle()
    assert world.phase == "Created"
    assert world.look_again_at == world.now + 60


def test_the_time_of_a_suspended_job_does_not_run_out() -> None:
    world = running(activeDeadlineSeconds=60)
    world.set_run_policy(suspend=True)
    world.settle()
    world.now += 600
    assert world.plan() == Plan()


# --- after the end ---


@pytest.mark.parametrize(("policy", "left"), [("None", ["ring-trainer-0", "ring-helper-0"]), ("Running", ["ring-trainer-0"]), ("All", [])])
def test_the_pods_of_a_finished_job_go_as_its_policy_says_and_services_go_with_them(policy: str, left: list[str]) -> None:
    world = running(trainers=1, helpers=1, cleanPodPolicy=policy)
    world.exit("ring-trainer-0", 0)
    world.settle()
    assert world.phase == "Succeeded"
    assert list(world.pods) == list(world.services) == left
    assert world.look_again_at is None


def test_a_finished_job_is_deleted_when_its_time_to_live_is_over_and_not_before() -> None:
    world = running(trainers=1, ttlSecondsAfterFinished=100)
    world.exit("ring-trainer-0", 0)
    world.settle()
    assert world.look_again_at == START + 100
    world.now = START + 99
    world.settle()
    assert not world.is_deleted
    world.now = START + 100
    world.settle()
    assert world.is_deleted


def test_no_edit_brings_a_finished_job_back() -> None:
    world = running(trainers=1)
    world.exit("ring-trainer-0", 0)
    world.settle()
    before = world.status
    world.scale(TRAINER, 3)
    world.settle()
    world.edit(lambda spec: spec["replicaSpecs"][TRAINER].update(replicas="many"))
    world.settle()
    assert world.status == before
    assert list(world.pods) == ["ring-trainer-0"]


# --- deadlines, and what is in the way ---


def test_a_job_that_is_active_too_long_fails_on_time() -> None:
    world = running(activeDeadlineSeconds=60)
    assert world.look_again_at == START + 60
    world.now = START + 60
    world.settle()
    assert world.condition("Failed")["reason"] == "DeadlineExceeded"
    assert world.pods == {}


def waiting(world: World, name: str, reason: str, message: str = "no such image") -> None:
    world.pods[name]["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"])
def test_a_pod_that_cannot_start_is_named_with_its_reason_at_once(reason: str) -> None:
    world = World(ring())
    world.settle()
    waiting(world, "ring-trainer-1", reason)
    world.settle()
    message = world.condition("Blocked")["message"]
    assert all(part in message for part in ("ring-trainer-1", "no such image"))
    world.run()
    world.settle()
    assert world.conditions == [("Created", "True"), ("Running", "True")]
    assert "blocked" not in world.record


def test_an_unschedulable_pod_is_told_once_however_its_reasons_change() -> None:
    world = World(ring(trainers=1))
    world.settle()
    for nodes in (5, 6, 7):
        text = f"0/{nodes} nodes are available"
        world.pods["ring-trainer-0"]["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        ]
        world.settle()
    assert "0/5 nodes" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("Unschedulable") == 1


def test_taking_turns_between_pull_errors_writes_nothing() -> None:
    world = World(ring(trainers=1))
    world.settle()
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        waiting(world, "ring-trainer-0", reason, reason)
        world.settle()
    assert world.writes["status"] == 2


def test_a_pod_that_does_not_start_in_time_fails_the_job_and_is_named() -> None:
    world = World(ring(startDeadlineSeconds=120))
    world.settle()
    world.run("ring-trainer-0")
    waiting(world, "ring-trainer-1", "ImagePullBackOff")
    world.settle()
    assert world.look_again_at == START + 120
    world.now = START + 120
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "StartDeadlineExceeded"
    assert all(part in failed["message"] for part in ("ring-trainer-1", "ImagePullBackOff", "no such image"))


def test_a_pod_to_which_nothing_ever_happens_misses_its_start_deadline_too() -> None:
    world = World(ring(startDeadlineSeconds=120))
    plan = world.plan()
    world.carry_out(plan)
    assert plan.look_again_at == START + 120
    world.pass_time(120)
    assert world.condition("Failed")["reason"] == "StartDeadlineExceeded"


def test_a_replaced_pod_has_its_full_time_to_start() -> None:
    world = World(ring(trainers=1, startDeadlineSeconds=120))
    world.settle()
    world.run()
    world.settle()
    world.now = START + 1000
    world.fail("ring-trainer-0", reason="Evicted")
    world.settle()
    assert world.phase == "Restarting"
    assert world.look_again_at == START + 1120


# --- whose job it is ---


def test_a_job_that_is_managed_by_somebody_else_is_left_alone() -> None:
    assert World(ring(managedBy="example.org/queue")).plan() == Plan()


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    class Leaving(RingJob):
        @property
        def metadata(self) -> ObjectMeta:
            return ObjectMeta(name="ring", uid="job-uid", deletion_timestamp=datetime.now(UTC))

    assert World(ring(), kind=Leaving).plan() == Plan()
