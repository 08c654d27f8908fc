"""A spec that is edited while pods wait or run."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest

from dlop.api.constants import ATTEMPT_LABEL, RENDERED_ANNOTATION
from dlop.kube.types import JsonObject
from dlop.replica import Replica
from tests.unit.reconcile.ring import HELPER, TRAINER, RingJob, ring
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
