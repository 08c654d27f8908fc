"""The life cycle of a job, from its first pass to its last."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dlop.api.child_objects import Create
from dlop.api.constants import ATTEMPT_LABEL
from dlop.kube.objects import ObjectMeta
from dlop.kube.resources import CONFIG_MAPS, SERVICES
from dlop.policies import ChildObjects
from dlop.reconcile.plan import Plan
from tests.unit.reconcile.ring import HELPER, TRAINER, OrderedJob, RingJob, ring
from tests.unit.reconcile.world import START, World


def running(**arguments: object) -> World:
    world = World(ring(**arguments))  # type: ignore[arg-type]
    world.settle()
    world.run()
    world.settle()
    return world


# --- start to completion ---


def test_a_successful_job_needs_four_status_writes_and_has_the_conditions_of_kubeflow() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    world.exit("ring-trainer-1", 0)
    world.settle()
    assert world.conditions == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert world.writes["status"] == 4
    assert world.status["completionTime"] == world.record["finishedAt"]


def test_the_first_pass_creates_services_and_pods_of_attempt_0_with_one_event() -> None:
    plan = World(ring(helpers=1)).plan()
    assert [create.name for create in plan.services] == ["ring-trainer-0", "ring-trainer-1", "ring-helper-0"]
    assert [create.name for create in plan.pods] == [create.name for create in plan.services]
    assert {create.body["metadata"]["labels"][ATTEMPT_LABEL] for create in plan.pods} == {"0"}
    assert [event.message for event in plan.events] == ["Created 3 pods and 3 services"]


def test_a_restart_policy_in_a_template_without_effect_is_reported_once_per_generation() -> None:
    world = World(ring(helpers=1, policy="ExitCode"))
    world.spec["replicaSpecs"][TRAINER]["template"]["spec"]["restartPolicy"] = "Always"
    world.spec["replicaSpecs"][HELPER]["template"]["spec"]["restartPolicy"] = "Never"
    world.settle()
    path = "spec.replicaSpecs.Trainer.template.spec.restartPolicy"
    message = f"{path}: Always has no effect; the restartPolicy of the role sets it to Never"
    assert [event.message for event in world.events if event.reason == "SetPodTemplateRestartPolicy"] == [message]
    world.set_image(TRAINER, "example.org/train:2")
    world.pass_time(60)
    assert [event.message for event in world.events if event.reason == "SetPodTemplateRestartPolicy"] == [message, message]


def test_a_job_is_running_as_soon_as_a_required_replica_is() -> None:
    world = World(ring(helpers=1))
    world.settle()
    world.run("ring-helper-0")
    world.settle()
    assert world.phase == "Created"
    world.run("ring-trainer-1")
    world.settle()
    assert world.phase == "Running"


def test_a_role_that_may_not_start_yet_is_not_created() -> None:
    world = World(ring(helpers=1), kind=OrderedJob)
    first = world.plan()
    assert [create.name for create in first.pods] == ["ring-helper-0"]
    assert len(first.services) == 3
    world.settle()
    assert len(world.pods) == 3


def test_a_completed_index_stays_completed_when_its_pod_is_gone() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    del world.pods["ring-trainer-0"]
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    assert world.record["completedIndexes"] == {TRAINER: "0"}
    assert "disruptions" not in world.record


def test_a_running_sidecar_does_not_keep_a_replica_from_completing() -> None:
    world = running(trainers=1)
    world.pods["ring-trainer-0"]["status"]["containerStatuses"] = [
        {"name": "proxy", "state": {"running": {}}},
        {"name": "main", "state": {"terminated": {"exitCode": 0}}},
    ]
    world.settle()
    assert world.phase == "Succeeded"


def test_the_last_failure_has_pod_node_exit_code_and_signal() -> None:
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


def test_of_several_failures_in_one_pass_the_latest_is_recorded() -> None:
    world = running(policy="ExitCode")
    world.exit("ring-trainer-1", 137)
    world.now += 5
    world.exit("ring-trainer-0", 139)
    world.settle()
    assert world.record["lastFailure"]["pod"] == "ring-trainer-0"
    world.run()
    world.settle()
    assert world.record["restarts"] == {TRAINER: 2}


def test_child_objects_are_created_once() -> None:
    class ConfigMapAndService(ChildObjects[RingJob]):
        resources = (CONFIG_MAPS,)

        def build(self, job: RingJob) -> tuple[Create, ...]:
            return (
                Create(CONFIG_MAPS, {"metadata": job.child_metadata("ring-file")}),
                Create(SERVICES, {"metadata": job.child_metadata("ring")}),
            )

    class WithConfigMap(RingJob):
        children = (ConfigMapAndService(),)

    world = World(ring(), kind=WithConfigMap)
    assert [create.name for create in world.plan().children] == ["ring-file", "ring"]
    world.settle()
    assert world.writes["create ring-file"] == world.writes["create ring"] == 1
    assert "ring" in world.services


# --- restarts ---


def test_nothing_is_created_in_the_pass_that_detects_a_lost_replica() -> None:
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


def test_a_surplus_pod_belongs_to_the_old_attempt_too() -> None:
    world = running(restartScope="Role")
    world.lost_nodes.add("ring-trainer-1")
    world.fail("ring-trainer-0", code=1)
    world.scale(TRAINER, 1)
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    world.lost_nodes.clear()
    world.settle()
    assert list(world.pods) == ["ring-trainer-0"]


def test_peers_that_fail_with_a_disrupted_replica_do_not_count_against_the_backoff_limit() -> None:
    world = running(restartScope="Job", backoffLimit=0)
    world.fail("ring-trainer-0", code=1)
    world.fail("ring-trainer-1", reason="Preempting")
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}
    assert "restarts" not in world.record


def test_a_job_fails_when_it_exceeds_the_backoff_limit() -> None:
    world = running(backoffLimit=2, trainers=1)
    for phase in ("Running", "Running", "Failed"):
        world.exit("ring-trainer-0", 1)
        world.settle()
        assert world.phase == phase
    assert world.condition("Failed")["reason"] == "BackoffLimitExceeded"
    assert "backoff limit of 2" in world.condition("Failed")["message"]


def test_restarts_of_a_replaced_pod_still_count() -> None:
    world = running(backoffLimit=2, trainers=1)
    world.exit("ring-trainer-0", 1)
    world.settle()
    world.fail("ring-trainer-0", code=1)
    world.settle()
    world.run()
    world.settle()
    assert world.record["restarts"] == {TRAINER: 2}
    assert world.phase == "Running"


def test_a_pod_that_exits_with_0_after_its_deletion_has_not_completed() -> None:
    world = running(trainers=1)
    world.delete_pod("ring-trainer-0")
    world.now += 5
    world.exit("ring-trainer-0", 0)
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}
    assert world.pods["ring-trainer-0"]["status"]["phase"] == "Pending"


def test_a_pod_that_exits_with_0_before_its_deletion_has_completed() -> None:
    world = running(trainers=1)
    world.exit("ring-trainer-0", 0)
    world.pods["ring-trainer-0"]["metadata"] |= {"deletionTimestamp": "2027-01-15T08:01:00Z", "deletionGracePeriodSeconds": 30}
    world.settle()
    assert world.phase == "Succeeded"


# --- scaling ---


def test_scaling_down_deletes_the_highest_indexes_and_is_not_a_disruption() -> None:
    world = running(trainers=4)
    world.scale(TRAINER, 2)
    world.settle()
    assert list(world.pods) == list(world.services) == ["ring-trainer-0", "ring-trainer-1"]
    assert world.record["startedIndexes"] == {TRAINER: "0-1"}
    assert "disruptions" not in world.record


@pytest.mark.parametrize("writes", range(4))
def test_scaling_down_and_up_is_not_a_disruption_even_with_crashes(writes: int) -> None:
    world = running(trainers=3)
    world.scale(TRAINER, 2)
    world.execute(world.plan(), writes=writes)
    world.execute(world.plan(), writes=writes)
    world.scale(TRAINER, 3)
    world.settle()
    assert len(world.pods) == 3
    assert "disruptions" not in world.record


def test_scaling_up_only_adds_the_missing_replicas() -> None:
    world = running(trainers=1)
    before = world.uids()
    world.scale(TRAINER, 3)
    world.settle()
    assert before.items() < world.uids().items()
    assert len(world.pods) == len(world.services) == 3


def test_the_pods_of_a_removed_role_are_deleted() -> None:
    world = running(helpers=2)
    world.edit(lambda spec: spec["replicaSpecs"].pop(HELPER))
    world.settle()
    assert list(world.pods) == ["ring-trainer-0", "ring-trainer-1"]


# --- suspending ---


def test_suspending_deletes_pods_and_services_and_resuming_resets_the_start_time() -> None:
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
def test_suspending_and_resuming_is_not_a_disruption_even_with_crashes(writes: int) -> None:
    world = running()
    world.set_run_policy(suspend=True)
    world.execute(world.plan(), writes=writes)
    world.execute(world.plan(), writes=writes)
    world.set_run_policy(suspend=False)
    world.settle()
    assert len(world.pods) == 2
    assert "disruptions" not in world.record


def test_a_replica_that_completes_during_suspension_is_recorded_even_with_crashes() -> None:
    world = running()
    world.set_run_policy(suspend=True)
    world.execute(world.plan())
    world.exit("ring-trainer-0", 0)
    world.execute(world.plan(), writes=1)
    world.settle()
    assert world.record["completedIndexes"] == {TRAINER: "0"}


def test_a_job_that_is_created_suspended_has_no_start_time_and_no_pods() -> None:
    world = World(ring(suspend=True))
    world.settle()
    assert world.conditions == [("Created", "True"), ("Suspended", "True")]
    assert "startTime" not in world.status
    assert (world.pods, world.services) == ({}, {})


def test_resuming_resets_the_start_time_even_after_an_invalid_spec() -> None:
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
    assert world.requeue_at == world.now + 60


def test_the_deadline_of_a_suspended_job_does_not_apply() -> None:
    world = running(activeDeadlineSeconds=60)
    world.set_run_policy(suspend=True)
    world.settle()
    world.now += 600
    assert world.plan() == Plan()


# --- finished jobs ---


@pytest.mark.parametrize(
    ("policy", "remaining"), [("None", ["ring-trainer-0", "ring-helper-0"]), ("Running", ["ring-trainer-0"]), ("All", [])]
)
def test_pods_and_services_of_a_finished_job_are_deleted_by_clean_pod_policy(policy: str, remaining: list[str]) -> None:
    world = running(trainers=1, helpers=1, cleanPodPolicy=policy)
    world.exit("ring-trainer-0", 0)
    world.settle()
    assert world.phase == "Succeeded"
    assert list(world.pods) == list(world.services) == remaining
    assert world.requeue_at is None


def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    world = running(trainers=1, ttlSecondsAfterFinished=100)
    world.exit("ring-trainer-0", 0)
    world.settle()
    assert world.requeue_at == START + 100
    world.now = START + 99
    world.settle()
    assert not world.is_deleted
    world.now = START + 100
    world.settle()
    assert world.is_deleted


def test_a_change_of_the_spec_does_not_restart_a_finished_job() -> None:
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


# --- deadlines and blocked jobs ---


def test_a_job_fails_at_its_active_deadline() -> None:
    world = running(activeDeadlineSeconds=60)
    assert world.requeue_at == START + 60
    world.now = START + 60
    world.settle()
    assert world.condition("Failed")["reason"] == "DeadlineExceeded"
    assert world.pods == {}


def set_waiting(world: World, name: str, reason: str, message: str = "no such image") -> None:
    world.pods[name]["status"]["containerStatuses"] = [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError"])
def test_a_pod_that_cannot_start_is_reported_at_once(reason: str) -> None:
    world = World(ring())
    world.settle()
    set_waiting(world, "ring-trainer-1", reason)
    world.settle()
    message = world.condition("Blocked")["message"]
    assert all(part in message for part in ("ring-trainer-1", "no such image"))
    world.run()
    world.settle()
    assert world.conditions == [("Created", "True"), ("Running", "True")]
    assert "blocked" not in world.record


def test_an_unschedulable_pod_is_reported_once_even_if_its_message_changes() -> None:
    world = World(ring(trainers=1))
    world.settle()
    for nodes in (5, 6, 7):
        message = f"0/{nodes} nodes are available"
        world.pods["ring-trainer-0"]["status"]["conditions"] = [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        ]
        world.settle()
    assert "0/5 nodes" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("Unschedulable") == 1


def test_alternating_image_pull_errors_do_not_cause_writes() -> None:
    world = World(ring(trainers=1))
    world.settle()
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull"):
        set_waiting(world, "ring-trainer-0", reason, reason)
        world.settle()
    assert world.writes["status"] == 2


def test_a_pod_that_exceeds_the_start_deadline_fails_the_job() -> None:
    world = World(ring(startDeadlineSeconds=120))
    world.settle()
    world.run("ring-trainer-0")
    set_waiting(world, "ring-trainer-1", "ImagePullBackOff")
    world.settle()
    assert world.requeue_at == START + 120
    world.now = START + 120
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "StartDeadlineExceeded"
    assert all(part in failed["message"] for part in ("ring-trainer-1", "ImagePullBackOff", "no such image"))


def test_the_start_deadline_applies_without_any_pod_event() -> None:
    world = World(ring(startDeadlineSeconds=120))
    plan = world.plan()
    world.execute(plan)
    assert plan.requeue_at == START + 120
    world.pass_time(120)
    assert world.condition("Failed")["reason"] == "StartDeadlineExceeded"


def test_a_replacement_pod_gets_the_full_start_deadline() -> None:
    world = World(ring(trainers=1, startDeadlineSeconds=120))
    world.settle()
    world.run()
    world.settle()
    world.now = START + 1000
    world.fail("ring-trainer-0", reason="Evicted")
    world.settle()
    assert world.phase == "Restarting"
    assert world.requeue_at == START + 1120


# --- jobs that are left alone ---


def test_a_job_that_another_controller_manages_is_left_alone() -> None:
    assert World(ring(managedBy="example.org/queue")).plan() == Plan()


def test_a_terminating_job_is_left_alone() -> None:
    class TerminatingJob(RingJob):
        @property
        def metadata(self) -> ObjectMeta:
            return ObjectMeta(name="ring", uid="job-uid", deletion_timestamp=datetime.now(UTC))

    assert World(ring(), kind=TerminatingJob).plan() == Plan()
