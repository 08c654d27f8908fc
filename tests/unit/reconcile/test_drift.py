"""A spec that is edited while pods wait or run."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from dlop.api.constants import ATTEMPT_LABEL, RENDERED_ANNOTATION
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.replica import Replica
from tests.unit.reconcile.ring import HELPER, TRAINER, NamedJob, RenamedJob, RingJob, named_ring, ring
from tests.unit.reconcile.world import World

WRONG, RIGHT = "example.org/train:1", "example.org/train:2"
FIRST = "ring-trainer-0"


class CountingJob(RingJob):
    """Every replica is told how many trainers there are."""

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"SIZE": str(self.replicas(TRAINER)), "ATTEMPT": str(replica.attempt)}


def waiting(**arguments: object) -> World:
    world = World(ring(**arguments))  # type: ignore[arg-type]
    world.settle()
    return world


def test_pods_that_have_not_started_are_replaced_and_nothing_counts_it() -> None:
    world = waiting(helpers=1, backoffLimit=0, disruptionLimit=0)
    helper = world.uids()["ring-helper-0"]
    world.set_image(TRAINER, RIGHT)
    world.settle()
    assert world.images() == {"ring-helper-0": WRONG, FIRST: RIGHT, "ring-trainer-1": RIGHT}
    assert world.uids()["ring-helper-0"] == helper
    assert {"restarts", "disruptions", "attempt", "retries"}.isdisjoint(world.record)
    told = [event.message for event in world.events if event.reason in ("ReplacedPods", "DeletedPods")]
    assert told == ["Replaced 2 pods that had not started: the job's spec has changed"]


def test_an_image_that_cannot_be_pulled_is_mended_by_an_edit() -> None:
    world = waiting(trainers=1)
    waits = {"waiting": {"reason": "ImagePullBackOff"}}
    world.pods[FIRST]["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": waits}]
    world.settle()
    assert world.condition("Blocked")["reason"] == "ImagePullBackOff"
    world.set_image(TRAINER, RIGHT)
    world.settle()
    world.run()
    world.settle()
    assert (world.phase, world.images()) == ("Running", {FIRST: RIGHT})
    assert ("Blocked", "True") not in world.conditions


def test_pods_that_run_keep_what_they_were_made_of_until_they_are_started_again() -> None:
    world = waiting(policy="ExitCode")
    world.run()
    world.settle()
    before = world.uids()
    world.set_image(TRAINER, RIGHT)
    world.settle()
    assert world.uids() == before
    world.fail(FIRST, code=137)
    world.settle()
    assert world.images() == {FIRST: RIGHT, "ring-trainer-1": WRONG}


@pytest.mark.parametrize("state", [{"running": {}}, {"terminated": {"exitCode": 1}}])
def test_a_pod_whose_side_car_alone_waits_has_started(state: JsonObject) -> None:
    """Nodes call a pod Pending as long as any of its containers has not started."""
    world = waiting(trainers=1)
    side_car = {"name": "proxy", "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    world.pods[FIRST]["status"]["containerStatuses"] = [{"name": "main", "restartCount": 0, "state": state}, side_car]
    before = world.uids()
    world.set_image(TRAINER, RIGHT)
    world.settle()
    assert world.uids().items() <= before.items()


def test_a_pod_that_starts_in_the_same_moment_is_left_alone() -> None:
    world = waiting(trainers=1)
    world.set_image(TRAINER, RIGHT)
    plan, before = world.plan(), world.uids()
    assert [deletion.name for deletion in plan.deletions] == [FIRST]
    world.run()
    world.carry_out(plan)
    world.settle()
    assert world.uids() == before
    assert "disruptions" not in world.record


def test_an_edit_that_changes_no_pod_replaces_none() -> None:
    world = waiting(helpers=1)
    before = world.uids()
    world.set_run_policy(backoffLimit=7)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    assert before.items() < world.uids().items()


def test_the_same_spec_in_another_order_is_the_same() -> None:
    world = waiting()
    before = world.uids()
    world.edit(lambda spec: spec.update(replicaSpecs={TRAINER: dict(reversed(spec["replicaSpecs"][TRAINER].items()))}))
    world.settle()
    assert world.uids() == before


def test_pods_that_wait_learn_how_many_they_are() -> None:
    world = World(ring(restartScope="Job", policy="ExitCode"), kind=CountingJob)
    world.settle()
    world.run(FIRST)
    world.settle()
    world.scale(TRAINER, 3)
    world.settle()
    sizes = {name: pod["spec"]["containers"][0]["env"][0]["value"] for name, pod in world.pods.items()}
    assert sizes == {FIRST: "2", "ring-trainer-1": "3", "ring-trainer-2": "3"}


def test_a_new_attempt_is_made_of_the_same() -> None:
    world = World(ring(restartScope="Job", policy="ExitCode"), kind=CountingJob)
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


def test_where_the_spec_is_as_it_was_nothing_is_rendered() -> None:
    class Silent(RingJob):
        def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
            raise AssertionError("a pod is rendered")

    world = waiting()
    world.kind = Silent
    world.run("ring-trainer-1")
    world.settle()
    assert world.phase == "Running"


@pytest.mark.parametrize("stamp", [None, "", "x", "1-", "9-abc"])
def test_a_pod_of_which_nobody_knows_what_it_was_made_of_is_left_alone(stamp: str | None) -> None:
    world = waiting(trainers=1)
    annotations = {} if stamp is None else {RENDERED_ANNOTATION: stamp}
    world.pods[FIRST]["metadata"]["annotations"] = annotations
    before = world.uids()
    world.set_image(TRAINER, RIGHT)
    world.settle()
    assert world.uids() == before


@pytest.mark.parametrize("writes", range(5))
def test_an_operator_that_dies_on_the_way_leaves_no_pod_of_the_old_spec(writes: int) -> None:
    world = waiting(helpers=2)
    world.set_image(TRAINER, RIGHT)
    world.set_image(HELPER, RIGHT)
    world.carry_out(world.plan(), writes=writes)
    world.settle()
    assert set(world.images().values()) == {RIGHT}


def test_a_job_that_was_edited_before_it_started_equals_a_fresh_one() -> None:
    edited = waiting(helpers=2)
    edited.set_image(TRAINER, RIGHT)
    edited.edit(lambda spec: spec["replicaSpecs"].pop(HELPER))
    edited.settle()
    fresh = World(copy.deepcopy(edited.spec), generation=edited.generation)
    fresh.settle()
    assert edited.status == fresh.status
    assert {name: pod["spec"] for name, pod in edited.pods.items()} == {name: pod["spec"] for name, pod in fresh.pods.items()}


def test_a_service_whose_ports_are_edited_is_made_anew_and_the_others_stay() -> None:
    world = waiting(helpers=1)
    before = {name: service["metadata"]["uid"] for name, service in world.services.items()}
    ports = [{"name": "metrics", "containerPort": 9100}]
    world.edit(lambda spec: spec["replicaSpecs"][HELPER]["template"]["spec"]["containers"][0].update(ports=ports))
    world.settle()
    assert {port["name"] for port in world.services["ring-helper-0"]["spec"]["ports"]} == {"metrics", "dlop-port"}
    after = {name: service["metadata"]["uid"] for name, service in world.services.items()}
    assert {name for name in before if before[name] != after[name]} == {"ring-helper-0"}


def test_a_role_that_is_taken_out_of_a_job_that_is_suspended_leaves_no_services() -> None:
    world = waiting(helpers=1)

    def edit(spec: JsonObject) -> None:
        del spec["replicaSpecs"][HELPER]
        spec["runPolicy"]["suspend"] = True

    world.edit(edit)
    world.settle()
    assert (world.phase, world.pods, world.services) == ("Suspended", {}, {})


# --- edits that rename pods -------------------------------------------------------------------------------------------


def running_under_names(kind: type[NamedJob] = RenamedJob, **run_policy: object) -> World:
    world = World(named_ring(**run_policy), kind=kind)
    world.settle()
    world.run()
    world.settle()
    return world


def rename(world: World, role: str, name: str) -> None:
    world.edit(lambda spec: spec["names"].update({role: name}))


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
def test_a_rename_replaces_the_pods_of_the_role_and_nothing_counts_it(scope: str) -> None:
    world = running_under_names(restartScope=scope, backoffLimit=0, disruptionLimit=0)
    helpers = {name: uid for name, uid in world.uids().items() if "helper" in name}
    rename(world, TRAINER, "n1")
    world.settle()
    world.run()
    world.settle()
    assert world.pods.keys() == {"ring-trainer-n1-0", "ring-trainer-n1-1", *helpers}
    assert helpers.items() <= world.uids().items()
    assert (world.phase, world.record["started"]) == ("Running", {TRAINER: "0-1", HELPER: "0-1"})
    assert world.record["claimedAs"] == {TRAINER: "ring-trainer-n1-0", HELPER: "ring-helper-n0-0"}
    assert {"restarts", "disruptions", "attempt", "roleAttempts", "retries"}.isdisjoint(world.record)


def test_the_claims_are_released_in_the_record_before_the_old_pods_are_deleted() -> None:
    world = running_under_names()
    rename(world, TRAINER, "n1")
    world.carry_out(world.plan())
    assert (world.record["started"], world.record["claimedAs"]) == ({HELPER: "0-1"}, {HELPER: "ring-helper-n0-0"})
    assert not any("deletionTimestamp" in pod["metadata"] for pod in world.pods.values())
    world.carry_out(world.plan())
    leaving = {name for name, pod in world.pods.items() if "deletionTimestamp" in pod["metadata"]}
    assert leaving == {"ring-trainer-n0-0", "ring-trainer-n0-1"}


@pytest.mark.parametrize("scope", ["Replica", "Role", "Job"])
@pytest.mark.parametrize("writes", range(16))
def test_a_rename_that_is_taken_back_after_any_write_counts_nothing(scope: str, writes: int) -> None:
    world = running_under_names(restartScope=scope)
    rename(world, TRAINER, "n1")
    while writes > 0:
        plan = world.plan()
        world.carry_out(plan, writes=writes)
        writes -= max(1, len(world.effects(plan)))
    rename(world, TRAINER, "n0")
    world.settle()
    world.run()
    world.settle()
    assert world.pods.keys() == world.wanted()
    assert {"restarts", "disruptions", "attempt", "roleAttempts", "retries"}.isdisjoint(world.record)


def test_a_replica_that_is_completed_stays_completed_under_its_new_name() -> None:
    world = running_under_names(policy="Never")
    world.exit("ring-trainer-n0-0", 0)
    world.settle()
    rename(world, TRAINER, "n1")
    world.settle()
    assert "ring-trainer-n1-1" in world.pods
    assert "ring-trainer-n1-0" not in world.pods
    assert world.record["completed"] == {TRAINER: "0"}


def test_pods_that_are_known_by_their_labels_stay_and_are_claimed_under_the_new_name() -> None:
    world = running_under_names(NamedJob)
    before = world.uids()
    rename(world, TRAINER, "n1")
    world.settle()
    assert world.uids() == before
    assert (world.record["started"][TRAINER], world.record["claimedAs"][TRAINER]) == ("0-1", "ring-trainer-n1-0")
    world.lose("ring-trainer-n0-0")
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}


def test_a_pod_that_is_written_off_and_not_asked_for_any_more_is_deleted_once() -> None:
    world = running_under_names(policy="ExitCode")
    world.fail("ring-trainer-n0-0", code=137)
    world.carry_out(world.plan())
    world.set_run_policy(suspend=True)
    world.carry_out(world.plan())
    rename(world, TRAINER, "n1")
    world.set_run_policy(suspend=False)
    deleted = [deletion.name for deletion in world.plan().deletions if deletion.resource == PODS]
    assert sorted(deleted) == ["ring-trainer-n0-0", "ring-trainer-n0-1"]
    world.settle()
    assert world.pods.keys() == world.wanted()
    assert world.record["restarts"] == {TRAINER: 1}
