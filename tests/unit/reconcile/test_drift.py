"""Changes of the spec while pods are pending or running."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from dlop.api.constants import ATTEMPT_LABEL, JOB_UID_LABEL, TEMPLATE_HASH_ANNOTATION
from dlop.api.phase import JobResult
from dlop.api.progress import Progress
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.policies import Lifecycle
from dlop.replica import Replica
from tests.unit.reconcile.ring import HELPER, TRAINER, NamedJob, RenamedJob, RingJob, named_ring, ring
from tests.unit.reconcile.world import World

OLD, NEW = "example.org/train:1", "example.org/train:2"
FIRST = "ring-trainer-0"


class SizedJob(RingJob):
    """The environment contains the number of trainers."""

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"SIZE": str(self.replicas(TRAINER)), "ATTEMPT": str(replica.attempt)}


def waiting(**arguments: object) -> World:
    world = World(ring(**arguments))  # type: ignore[arg-type]
    world.settle()
    return world


def test_pods_that_have_not_started_are_replaced_without_counting() -> None:
    world = waiting(helpers=1, backoffLimit=0, disruptionLimit=0)
    helper = world.uids()["ring-helper-0"]
    world.set_image(TRAINER, NEW)
    world.settle()
    assert world.images() == {"ring-helper-0": OLD, FIRST: NEW, "ring-trainer-1": NEW}
    assert world.uids()["ring-helper-0"] == helper
    assert {"restarts", "disruptions", "attempt", "backoffs"}.isdisjoint(world.record)
    messages = [event.message for event in world.events if event.reason in ("ReplacedPods", "DeletedPods")]
    assert messages == ["Replaced 2 pods that had not started, because the job's spec has changed"]


def test_an_image_that_cannot_be_pulled_is_fixed_by_a_change_of_the_spec() -> None:
    world = waiting(trainers=1)
    state = {"waiting": {"reason": "ImagePullBackOff"}}
    world.pods[FIRST]["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state}]
    world.settle()
    assert world.condition("Blocked")["reason"] == "ImagePullBackOff"
    world.set_image(TRAINER, NEW)
    world.settle()
    world.run()
    world.settle()
    assert (world.phase, world.images()) == ("Running", {FIRST: NEW})
    assert ("Blocked", "True") not in world.conditions


def test_running_pods_keep_their_spec_until_they_are_restarted() -> None:
    world = waiting(policy="ExitCode")
    world.run()
    world.settle()
    before = world.uids()
    world.set_image(TRAINER, NEW)
    world.settle()
    assert world.uids() == before
    world.fail(FIRST, code=137)
    world.settle()
    assert world.images() == {FIRST: NEW, "ring-trainer-1": OLD}


@pytest.mark.parametrize("state", [{"running": {}}, {"terminated": {"exitCode": 1}}])
def test_a_pod_whose_sidecar_is_waiting_has_started(state: JsonObject) -> None:
    """A pod is Pending as long as any of its containers has not started."""
    world = waiting(trainers=1)
    sidecar = {"name": "proxy", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    world.pods[FIRST]["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state}, sidecar]
    before = world.uids()
    world.set_image(TRAINER, NEW)
    world.settle()
    assert world.uids().items() <= before.items()


def test_a_pod_that_starts_concurrently_is_not_replaced() -> None:
    world = waiting(trainers=1)
    world.set_image(TRAINER, NEW)
    plan, before = world.plan(), world.uids()
    assert [delete.name for delete in plan.deletes] == [FIRST]
    world.run()
    world.execute(plan)
    world.settle()
    assert world.uids() == before
    assert "disruptions" not in world.record


def test_a_change_that_does_not_affect_pods_replaces_none() -> None:
    world = waiting(helpers=1)
    before = world.uids()
    world.set_run_policy(backoffLimit=7)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    assert before.items() < world.uids().items()


def test_the_order_of_fields_does_not_cause_drift() -> None:
    world = waiting()
    before = world.uids()
    world.edit(lambda spec: spec.update(replicaSpecs={TRAINER: dict(reversed(spec["replicaSpecs"][TRAINER].items()))}))
    world.settle()
    assert world.uids() == before


def test_pending_pods_get_the_new_size() -> None:
    world = World(ring(restartScope="Job", policy="ExitCode"), kind=SizedJob)
    world.settle()
    world.run(FIRST)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    sizes = {name: pod["spec"]["containers"][0]["env"][0]["value"] for name, pod in world.pods.items()}
    assert sizes == {FIRST: "2", "ring-trainer-1": "3", "ring-trainer-2": "3"}


def test_the_attempt_does_not_cause_drift() -> None:
    world = World(ring(restartScope="Job", policy="ExitCode"), kind=SizedJob)
    world.settle()
    world.run()
    world.settle()
    world.fail(FIRST, code=137)
    world.settle()
    before = world.uids()
    assert world.pods[FIRST]["metadata"]["labels"][ATTEMPT_LABEL] == "1"
    world.set_run_policy(backoffLimit=7)
    world.settle()
    assert world.uids() == before


def test_nothing_is_rendered_if_the_spec_has_not_changed() -> None:
    class UnrenderableJob(RingJob):
        def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
            raise AssertionError("a pod is rendered")

    world = waiting()
    world.kind = UnrenderableJob
    world.run("ring-trainer-1")
    world.settle()
    assert world.phase == "Running"


@pytest.mark.parametrize("annotation", [None, "", "x", "1-", "9-abc"])
def test_a_pod_without_a_valid_template_hash_is_not_replaced(annotation: str | None) -> None:
    world = waiting(trainers=1)
    annotations = {} if annotation is None else {TEMPLATE_HASH_ANNOTATION: annotation}
    world.pods[FIRST]["metadata"]["annotations"] = annotations
    before = world.uids()
    world.set_image(TRAINER, NEW)
    world.settle()
    assert world.uids() == before


@pytest.mark.parametrize("writes", range(5))
def test_no_pod_of_the_old_spec_is_left_after_a_crash(writes: int) -> None:
    world = waiting(helpers=2)
    world.set_image(TRAINER, NEW)
    world.set_image(HELPER, NEW)
    world.execute(world.plan(), writes=writes)
    world.settle()
    assert set(world.images().values()) == {NEW}


def test_a_job_that_was_changed_before_it_started_equals_a_new_one() -> None:
    edited = waiting(helpers=2)
    edited.set_image(TRAINER, NEW)
    edited.edit(lambda spec: spec["replicaSpecs"].pop(HELPER))
    edited.settle()
    fresh = World(copy.deepcopy(edited.spec), generation=edited.generation)
    fresh.settle()
    assert edited.status == fresh.status
    assert {name: pod["spec"] for name, pod in edited.pods.items()} == {name: pod["spec"] for name, pod in fresh.pods.items()}


def test_only_a_service_whose_ports_change_is_replaced() -> None:
    world = waiting(helpers=1)
    before = {name: service["metadata"]["uid"] for name, service in world.services.items()}
    ports = [{"name": "metrics", "containerPort": 9100}]
    world.edit(lambda spec: spec["replicaSpecs"][HELPER]["template"]["spec"]["containers"][0].update(ports=ports))
    world.settle()
    assert {port["name"] for port in world.services["ring-helper-0"]["spec"]["ports"]} == {"metrics", "dlop-port"}
    after = {name: service["metadata"]["uid"] for name, service in world.services.items()}
    assert {name for name in before if before[name] != after[name]} == {"ring-helper-0"}


def test_services_of_another_operator_are_kept_when_their_job_is_taken_over() -> None:
    world = waiting(helpers=1)
    for service in world.services.values():
        service["spec"]["ports"] = [{"name": "dlop-port", "port": 2222}]
        del service["metadata"]["labels"][JOB_UID_LABEL]
    before = copy.deepcopy(world.services)
    del world.status["dlop"]
    world.settle()
    assert world.services == before


@pytest.mark.parametrize("writes", range(5))
def test_services_have_the_ports_of_a_spec_that_is_edited_before_the_first_status_is_stored(writes: int) -> None:
    world = World(ring(helpers=1))
    execute_writes(world, writes)
    ports = [{"name": "metrics", "containerPort": 9100}]
    world.edit(lambda spec: spec["replicaSpecs"][HELPER]["template"]["spec"]["containers"][0].update(ports=ports))
    world.settle()
    assert {port["name"] for port in world.services["ring-helper-0"]["spec"]["ports"]} == {"metrics", "dlop-port"}


def test_a_role_that_is_removed_from_a_suspended_job_leaves_no_services() -> None:
    world = waiting(helpers=1)

    def edit(spec: JsonObject) -> None:
        del spec["replicaSpecs"][HELPER]
        spec["runPolicy"]["suspend"] = True

    world.edit(edit)
    world.settle()
    assert (world.phase, world.pods, world.services) == ("Suspended", {}, {})


# --- changes that rename pods ------------------------------------------------------------------------------------------


def running_named(kind: type[RingJob] = RenamedJob, **run_policy: object) -> World:
    world = World(named_ring(**run_policy), kind=kind)
    world.settle()
    world.run()
    world.settle()
    return world


def rename(world: World, role: str, name: str) -> None:
    world.edit(lambda spec: spec["names"].update({role: name}))


def execute_writes(world: World, writes: int) -> None:
    """Run passes until they have made this many writes. The last pass is interrupted."""
    while writes > 0:
        plan = world.plan()
        world.execute(plan, writes=writes)
        writes -= max(1, len(world.effects(plan)))


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
def test_a_rename_replaces_the_pods_of_the_role_without_counting(scope: str) -> None:
    world = running_named(restartScope=scope, backoffLimit=0, disruptionLimit=0)
    helpers = {name: uid for name, uid in world.uids().items() if "helper" in name}
    rename(world, TRAINER, "n1")
    world.settle()
    world.run()
    world.settle()
    assert world.pods.keys() == {"ring-trainer-n1-0", "ring-trainer-n1-1", *helpers}
    assert helpers.items() <= world.uids().items()
    assert (world.phase, world.record["startedIndexes"]) == ("Running", {TRAINER: "0-1", HELPER: "0-1"})
    assert world.record["claimedAs"] == {TRAINER: "ring-trainer-n1-0", HELPER: "ring-helper-n0-0"}
    assert {"restarts", "disruptions", "attempt", "roleAttempts", "backoffs"}.isdisjoint(world.record)


def test_the_claims_are_released_in_the_record_before_the_old_pods_are_deleted() -> None:
    world = running_named()
    rename(world, TRAINER, "n1")
    world.execute(world.plan())
    assert (world.record["startedIndexes"], world.record["claimedAs"]) == ({HELPER: "0-1"}, {HELPER: "ring-helper-n0-0"})
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    world.execute(world.plan())
    terminating = {name for name, pod in world.pods.items() if "deletionTimestamp" in pod["metadata"]}
    assert terminating == {"ring-trainer-n0-0", "ring-trainer-n0-1"}


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
@pytest.mark.parametrize("writes", range(16))
def test_a_rename_that_is_reverted_after_any_write_counts_nothing(scope: str, writes: int) -> None:
    world = running_named(restartScope=scope)
    rename(world, TRAINER, "n1")
    execute_writes(world, writes)
    rename(world, TRAINER, "n0")
    world.settle()
    world.run()
    world.settle()
    assert world.pods.keys() == world.desired_pods()
    assert {"restarts", "disruptions", "attempt", "roleAttempts", "backoffs"}.isdisjoint(world.record)


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
@pytest.mark.parametrize("writes", range(16))
def test_container_restarts_are_counted_once_if_a_rename_is_reverted_after_any_write(scope: str, writes: int) -> None:
    world = running_named(restartScope=scope)
    world.exit("ring-trainer-n0-0", 137)
    world.settle()
    rename(world, TRAINER, "n1")
    execute_writes(world, writes)
    rename(world, TRAINER, "n0")
    world.settle()
    world.run()
    world.settle()
    assert (world.record["restarts"], set(world.pods)) == ({TRAINER: 1}, world.desired_pods())
    world.exit("ring-trainer-n0-0", 137)
    world.settle()
    assert (world.record["restarts"], "disruptions" in world.record) == ({TRAINER: 2}, False)


def test_container_restarts_of_pods_with_two_names_are_counted_once_each() -> None:
    world = running_named()
    world.lost_nodes = {"ring-trainer-n0-0", "ring-trainer-n1-0"}
    rename(world, TRAINER, "n1")
    world.settle()
    world.run()
    world.exit("ring-trainer-n1-0", 137)
    world.settle()
    for name in ("n0", "n1", "n0"):  # both pods are terminating
        rename(world, TRAINER, name)
        world.settle()
    world.lost_nodes.clear()
    world.settle()
    world.run()
    world.exit("ring-trainer-n0-0", 137)
    world.settle()
    assert (world.record["restarts"], set(world.pods)) == ({TRAINER: 2}, world.desired_pods())
    assert "disruptions" not in world.record


def test_a_running_pod_that_is_replaced_after_two_renames_is_not_a_disruption() -> None:
    world = running_named()
    body = copy.deepcopy(world.pods["ring-trainer-n0-0"])
    rename(world, TRAINER, "n1")
    world.settle()
    world.run()
    world.exit("ring-trainer-n1-0", 137)
    world.settle()
    world.pods["ring-trainer-n0-0"] = body  # Its delete was not executed.
    rename(world, TRAINER, "n0")
    world.settle()
    world.run()
    world.settle()
    assert world.record["restarts"] == {TRAINER: 1}
    assert "disruptions" not in world.record
    assert world.uids()["ring-trainer-n0-0"] != body["metadata"]["uid"]


@pytest.mark.parametrize("policy", ["OnFailure", "ExitCode"])
@pytest.mark.parametrize("writes", range(16))
def test_a_failure_is_counted_once_if_its_role_is_removed_and_added_again_after_any_write(policy: str, writes: int) -> None:
    world = running_named(policy=policy)
    helpers = world.spec["replicaSpecs"][HELPER]
    world.exit("ring-helper-n0-0", 137)
    world.execute(world.plan())
    assert world.record["restarts"] == {HELPER: 1}
    world.edit(lambda spec: spec["replicaSpecs"].pop(HELPER))
    execute_writes(world, writes)
    rename(world, HELPER, "n1")
    execute_writes(world, writes // 2)
    rename(world, HELPER, "n0")
    world.edit(lambda spec: spec["replicaSpecs"].update({HELPER: helpers}))
    world.settle()
    world.run()
    world.settle()
    assert (world.record["restarts"], set(world.pods)) == ({HELPER: 1}, world.desired_pods())
    assert "disruptions" not in world.record


def test_a_completed_replica_stays_completed_under_its_new_name() -> None:
    world = running_named(policy="Never")
    world.exit("ring-trainer-n0-0", 0)
    world.settle()
    rename(world, TRAINER, "n1")
    world.settle()
    assert "ring-trainer-n1-1" in world.pods
    assert "ring-trainer-n1-0" not in world.pods
    assert world.record["completedIndexes"] == {TRAINER: "0"}


class TrainersDecide(Lifecycle[RenamedJob]):
    """A helper that has failed for good does not fail the job."""

    def evaluate(self, job: RenamedJob, progress: Progress) -> JobResult | None:
        return JobResult(succeeded=True) if self.has_succeeded(job, progress) else None


class TrainersDecideJob(RenamedJob):
    lifecycle = TrainersDecide()


def finished_and_renamed(policy: str, code: int) -> World:
    """The first helper has finished in its old pod, while a pod that an interrupted rename has created waits under the new name."""
    world = running_named(TrainersDecideJob, policy=policy, backoffLimit=0)
    rename(world, TRAINER, "n1")  # keeps the surplus helpers, because the claims of the trainers are released first
    rename(world, HELPER, "n1")
    rejected = world.version - 1
    world.execute(world.plan(), version=rejected)
    world.exit("ring-helper-n0-0", code)
    rename(world, HELPER, "n0")
    world.execute(world.plan())
    rename(world, HELPER, "n1")
    assert {"ring-helper-n0-0", "ring-helper-n1-0"} <= world.pods.keys()
    assert {HELPER: "0"} in (world.record.get("completedIndexes"), world.record.get("failedIndexes"))
    return world


@pytest.mark.parametrize(("policy", "code"), [("OnFailure", 0), ("Never", 1)])
@pytest.mark.parametrize("restarts", [None, 0, 3])
@pytest.mark.parametrize("writes", range(6))
def test_the_second_pod_of_a_finished_replica_is_deleted_without_counting(
    policy: str, code: int, restarts: int | None, writes: int
) -> None:
    world = finished_and_renamed(policy, code)
    if restarts is not None:
        world.run("ring-helper-n1-0")
        world.pods["ring-helper-n1-0"]["status"]["containerStatuses"][0]["restartCount"] = restarts
    execute_writes(world, writes)
    world.settle()
    world.run()
    world.settle()
    assert world.pods.keys() == world.desired_pods() - {"ring-helper-n1-0"}
    assert {"restarts", "disruptions", "backoffs", "countedRestarts"}.isdisjoint(world.record)
    assert world.phase == "Running"


def test_the_second_pod_of_a_finished_replica_is_not_deleted_twice_while_it_terminates() -> None:
    world = finished_and_renamed("OnFailure", 0)
    world.run("ring-helper-n1-0")
    world.lost_nodes = {"ring-helper-n1-0"}
    world.settle()
    assert "deletionTimestamp" in world.pods["ring-helper-n1-0"]["metadata"]
    assert not world.effects(world.plan())


def test_the_second_pod_of_a_finished_replica_that_was_restarted_before_is_deleted_once() -> None:
    world = running_named(policy="ExitCode")
    first = copy.deepcopy(world.pods["ring-helper-n0-0"])
    for code in (137, 0):
        world.exit("ring-helper-n0-0", code)
        world.settle()
        world.run()
    assert (world.record["completedIndexes"], world.record["replacements"]) == ({HELPER: "0"}, {HELPER: {"1": "0"}})
    world.pods["ring-helper-n0-0"] = first
    assert [delete.name for delete in world.plan().deletes] == ["ring-helper-n0-0"]


def test_a_pod_whose_replica_has_finished_is_kept_if_it_finishes_before_it_is_deleted() -> None:
    world = finished_and_renamed("OnFailure", 0)
    world.run("ring-helper-n1-0")
    stale = world.plan()
    assert "ring-helper-n1-0" in {delete.name for delete in stale.deletes}
    world.exit("ring-helper-n1-0", 0)
    world.execute(stale)
    world.settle()
    assert world.pods.keys() == world.desired_pods()
    assert world.pods["ring-helper-n1-0"]["status"]["phase"] == "Succeeded"


def test_the_pod_of_a_completed_replica_is_kept_while_its_sidecar_runs() -> None:
    world = running_named()
    terminated = {"exitCode": 0, "finishedAt": "2027-01-15T08:00:00Z"}
    sidecar = {"name": "proxy", "restartCount": 0, "state": {"running": {}}}
    main = {"name": "main", "restartCount": 0, "state": {"terminated": terminated}}
    world.pods["ring-helper-n0-0"]["status"]["containerStatuses"] = [sidecar, main]
    before = world.uids()
    world.settle()
    assert world.record["completedIndexes"] == {HELPER: "0"}
    world.set_image(HELPER, NEW)
    world.settle()
    assert world.uids() == before


def test_pods_that_match_by_labels_are_kept_and_claimed_under_the_new_name() -> None:
    world = running_named(NamedJob)
    before = world.uids()
    world.exit("ring-trainer-n0-1", 137)
    world.settle()
    rename(world, TRAINER, "n1")
    world.settle()
    assert world.uids() == before
    assert (world.record["restarts"], world.record["countedRestarts"]) == ({TRAINER: 1}, {TRAINER: {"1": "1"}})
    assert (world.record["startedIndexes"][TRAINER], world.record["claimedAs"][TRAINER]) == ("0-1", "ring-trainer-n1-0")
    world.remove_pod("ring-trainer-n0-0")
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}


def test_an_accounted_surplus_pod_is_deleted_once() -> None:
    world = running_named(policy="ExitCode")
    world.fail("ring-trainer-n0-0", code=137)
    world.execute(world.plan())
    world.set_run_policy(suspend=True)
    world.execute(world.plan())
    rename(world, TRAINER, "n1")
    world.set_run_policy(suspend=False)
    deleted = [delete.name for delete in world.plan().deletes if delete.resource == PODS]
    assert sorted(deleted) == ["ring-trainer-n0-0", "ring-trainer-n0-1"]
    world.settle()
    assert world.pods.keys() == world.desired_pods()
    assert world.record["restarts"] == {TRAINER: 1}
