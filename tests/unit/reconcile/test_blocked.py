"""What is in the way of a job: specs that make no sense, names that are taken, creates that are refused, strange pods."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlop.api.phase import Outcome
from dlop.api.spec import RoleSpec
from dlop.kube.objects import Pod
from dlop.kube.resources import CONFIG_MAPS, PODS, SERVICES
from dlop.kube.types import JsonObject
from dlop.reconcile.plan import EventType
from dlop.reconcile.pod_state import PodState, classify_pod, failure_of
from dlop.reconcile.snapshot import NameConflict, RejectedWrite
from tests.unit.reconcile.ring import TRAINER, RingJob, ring
from tests.unit.reconcile.world import World


def running(**arguments: object) -> World:
    world = World(ring(**arguments))  # type: ignore[arg-type]
    world.settle()
    world.run()
    world.settle()
    return world


# --- specs that make no sense ---


def test_a_spec_that_makes_no_sense_is_told_once_with_its_path_and_creates_nothing() -> None:
    world = World(ring())
    world.edit(lambda spec: spec["replicaSpecs"][TRAINER].update(replicas="many"))
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "InvalidSpec"
    assert "spec.replicaSpecs" in failed["message"]
    assert [(event.type, event.reason) for event in world.events] == [(EventType.WARNING, "InvalidSpec")]
    assert (world.pods, world.services, world.record["observedGeneration"]) == ({}, {}, 2)


def test_a_running_job_survives_an_edit_that_makes_no_sense() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    before, good = world.uids(), copy.deepcopy(world.spec)
    told = {name: value for name, value in world.status.items() if name not in ("conditions", "dlop")}
    world.edit(lambda spec: spec.update(replicaSpecs="none"))
    world.settle()
    assert (world.phase, world.uids(), told.items() <= world.status.items()) == ("Running", before, True)
    assert world.conditions == [("Created", "True"), ("Running", "True"), ("Blocked", "True")]
    assert "spec.replicaSpecs" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("InvalidSpec") == 1
    world.edit(lambda spec: spec.update(good))
    world.settle()
    assert (world.phase, world.uids()) == ("Running", before)
    assert world.conditions == [("Created", "True"), ("Running", "True")]
    world.exit("ring-trainer-1", 0)
    world.settle()
    assert world.phase == "Succeeded"


def test_who_mends_one_mistake_of_a_running_job_and_makes_another_reads_of_the_second() -> None:
    world = running()
    for field in ("backoffLimit", "activeDeadlineSeconds"):
        world.spec["runPolicy"].clear()
        world.set_run_policy(**{field: "many"})
        world.settle()
        assert f"spec.runPolicy.{field}" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("InvalidSpec") == 2


@pytest.mark.parametrize("phase", ["Created", "Running", "Restarting", "Suspended"])
def test_a_job_that_another_operator_has_begun_keeps_its_status_while_its_spec_makes_no_sense(phase: str) -> None:
    condition = {"type": phase, "status": "True", "reason": f"RingJob{phase}", "message": "as before"}
    told = {"replicaStatuses": {TRAINER: {"active": 2}}, "startTime": "2027-01-15T07:00:00Z"}
    world = World(ring(backoffLimit="many"), status={"conditions": [condition], **told})
    world.settle()
    assert (world.phase, world.status["conditions"][0]) == (phase, condition)
    assert told.items() <= world.status.items()
    assert world.conditions == [(phase, "True"), ("Blocked", "True")]


# --- names that are taken ---


def test_a_pod_of_somebody_else_is_named_and_left_alone_while_the_others_start() -> None:
    world = World(ring(), foreign=(NameConflict(PODS, "ring-trainer-0", "StatefulSet ring-trainer"),))
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    message = world.condition("Blocked")["message"]
    assert all(part in message for part in ("pod ring-trainer-0", "StatefulSet ring-trainer", "another name"))
    assert [event.reason for event in world.events].count("NameConflict") == 1
    world.foreign = ()
    world.settle()
    assert len(world.pods) == 2
    assert ("Blocked", "True") not in world.conditions


def test_no_pod_starts_where_a_service_would_lead_to_somebody_else() -> None:
    world = World(ring(), foreign=(NameConflict(SERVICES, "ring-trainer-0", ""),))
    world.settle()
    assert (list(world.services), world.pods) == (["ring-trainer-1"], {})


def test_a_foreign_object_whose_name_nobody_needs_is_in_nobodys_way() -> None:
    world = World(ring(), foreign=(NameConflict(PODS, "ring-trainer-9", ""), NameConflict(CONFIG_MAPS, "ring-trainer-0", "")))
    world.settle()
    assert len(world.pods) == 2
    assert "blocked" not in world.record


# --- creates that are refused ---


class TellingJob(RingJob):
    """Its status tells the state of each replica."""

    def write_status(self, outcome: Outcome) -> JsonObject:
        states = [str(replica.state) for role in outcome.progress.roles for replica in role.replicas]
        return {**super().write_status(outcome), "states": states}


def test_a_pod_that_is_created_is_told_to_wait_and_one_that_is_refused_to_be_missing() -> None:
    refused = World(ring(), kind=TellingJob, refusals=(RejectedWrite(PODS, "ring-trainer-0", "Forbidden", "exceeded quota: team"),))
    assert (refused.plan().status or {})["states"] == ["Missing", "Missing"]
    assert (World(ring(), kind=TellingJob).plan().status or {})["states"] == ["Pending", "Pending"]


def test_of_several_refused_creates_the_one_that_is_tried_again_first_is_told() -> None:
    late, early = (RejectedWrite(PODS, f"ring-trainer-{index}", "Forbidden", "exceeded quota: team") for index in (1, 0))
    world = World(ring(), refusals=(late, early))
    world.settle()
    world.refusals = (early,)
    world.settle()
    assert "ring-trainer-0" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("FailedCreate") == 1


def test_after_an_edit_the_refusal_of_the_new_spec_is_told() -> None:
    world = World(ring(), refusals=(RejectedWrite(PODS, "ring-trainer-0", "Invalid", "metadata.labels: Invalid value"),))
    world.settle()
    world.refusals = (RejectedWrite(PODS, "ring-trainer-0", "Invalid", "spec.containers[0].env: Invalid value"),)
    world.set_image(TRAINER, "example.org/train:2")
    world.settle()
    assert "env" in world.condition("Blocked")["message"]


def test_a_refused_create_is_told_once_and_asked_for_until_it_is_there() -> None:
    world = World(ring(), refusals=(RejectedWrite(PODS, "ring-trainer-0", "Forbidden", "exceeded quota: team"),))
    plan = world.plan()
    assert [creation.name for creation in plan.pods] == ["ring-trainer-0", "ring-trainer-1"]
    assert [event.reason for event in plan.events] == ["FailedCreate", "CreatedPods"]
    assert plan.status is not None
    world.status = plan.status
    again = world.plan()
    assert (again.status, [event.reason for event in again.events]) == (None, ["CreatedPods"])
    assert len(again.pods) == 2
    assert "exceeded quota: team" in world.condition("Blocked")["message"]


def test_a_job_that_can_create_nothing_fails_at_its_start_deadline() -> None:
    refusal = RejectedWrite(PODS, "ring-trainer-0", "Forbidden", "exceeded quota: team")
    world = World(ring(startDeadlineSeconds=60), refusals=(refusal,))
    world.status = world.plan().status or {}
    plan = world.plan()
    assert plan.look_again_at == world.now + 60
    world.now += 60
    assert [event.reason for event in world.plan().events] == ["StartDeadlineExceeded"]
    assert world.plan().pods == ()


# --- strange pods ---

ROLE = RoleSpec(name=TRAINER, replicas=1, container="main")


def pod(**fields: object) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, **fields}, Pod)


def ended(code: int, **fields: object) -> dict[str, object]:
    return {"name": "main", "state": {"terminated": {"exitCode": code}}, **fields}


@pytest.mark.parametrize(
    ("status", "sight"),
    [
        ({}, PodState.WAITS),
        ({"phase": "Pending"}, PodState.WAITS),
        ({"phase": "Running"}, PodState.RUNS),
        ({"phase": "Unknown"}, PodState.WAITS),
        ({"phase": "Succeeded"}, PodState.SUCCEEDED),
        ({"phase": "Failed"}, PodState.FAILED),
        ({"phase": "Failed", "containerStatuses": [ended(0)]}, PodState.SUCCEEDED),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [ended(0)]}, PodState.TAKEN_AWAY),
        ({"phase": "Failed", "reason": "OutOfcpu"}, PodState.TAKEN_AWAY),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, PodState.FAILED),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}, PodState.TAKEN_AWAY),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}, PodState.FAILED),
        ({"phase": "Running", "containerStatuses": [ended(0)]}, PodState.SUCCEEDED),
        ({"phase": "Running", "containerStatuses": [ended(3)]}, PodState.FAILED),
    ],
)
def test_what_a_pod_shows(status: dict[str, object], sight: PodState) -> None:
    assert classify_pod(pod(status=status, spec={"restartPolicy": "Never"}), ROLE) is sight


def test_a_pod_of_which_nobody_knows_whether_it_runs_does_not_make_the_job_run() -> None:
    world = World(ring())
    world.settle()
    world.run()
    for pod in world.pods.values():
        pod["status"]["phase"] = "Unknown"
    world.settle()
    assert (world.phase, "active" in world.status["replicaStatuses"][TRAINER]) == ("Created", False)


def test_a_pod_that_ran_and_of_which_nobody_knows_any_more_is_neither_replaced_nor_held_to_a_deadline() -> None:
    world = running(startDeadlineSeconds=60)
    before = world.uids()
    world.pods["ring-trainer-0"]["status"]["phase"] = "Unknown"
    world.pass_time(3600)
    assert (world.phase, world.uids()) == ("Running", before)
    assert world.status["replicaStatuses"][TRAINER]["active"] == 1
    world.lose("ring-trainer-0")
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}


def test_a_container_that_its_node_restarts_has_not_ended() -> None:
    status = {"phase": "Running", "containerStatuses": [ended(3)]}
    assert classify_pod(pod(status=status, spec={"restartPolicy": "OnFailure"}), ROLE) is PodState.RUNS


def test_the_exit_code_told_is_that_of_the_main_container_else_of_another_that_failed() -> None:
    both = {"phase": "Failed", "containerStatuses": [{"name": "proxy", "state": {"terminated": {"exitCode": 9}}}, ended(3)]}
    only_init = {"phase": "Failed", "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 7}}}]}
    assert failure_of(pod(status=both), ROLE, 0, now=0).exit_code == 3
    assert failure_of(pod(status=only_init), ROLE, 0, now=0).exit_code == 7


@pytest.mark.parametrize(
    "status",
    [
        pytest.param(
            {
                "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 1}}}],
                "containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
            id="an init container",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "main", "state": {}}, {"name": "proxy", "state": {"terminated": {"exitCode": 1}}}]},
            id="a side-car",
        ),
    ],
)
@pytest.mark.parametrize(("policy", "phase"), [("ExitCode", "Restarting"), ("OnFailure", "Restarting"), ("Never", "Failed")])
def test_the_exit_code_of_another_container_is_told_and_decides_nothing(status: JsonObject, policy: str, phase: str) -> None:
    world = World(ring(policy=policy))
    world.settle()
    world.pods["ring-trainer-0"]["status"] = {"phase": "Failed", **status}
    world.carry_out(world.plan())
    assert (world.phase, world.record["lastFailure"]["exitCode"]) == (phase, 1)


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dlop", "conditions", "type", "phase", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["dlop", "conditions", "startTime", "completionTime", "replicaStatuses"]), plain_values))
@settings(max_examples=150, deadline=None)
def test_no_stored_status_can_upset_the_engine(status: dict[str, object]) -> None:
    plan = World(ring(), status=status).plan()
    assert plan.status is None or set(plan.status) >= {"dlop", "conditions"}
