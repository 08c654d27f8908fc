"""Blocked jobs: invalid specs, name conflicts, rejected creates and unusual pods."""

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
from dlop.policies import Status
from dlop.reconcile.plan import EventType
from dlop.reconcile.pod_state import PodState, classify_pod, pod_failure
from dlop.reconcile.snapshot import NameConflict, RejectedWrite
from tests.thorough import examples
from tests.unit.reconcile.ring import TRAINER, RingJob, ring
from tests.unit.reconcile.world import World


def running(**arguments: object) -> World:
    world = World(ring(**arguments))  # type: ignore[arg-type]
    world.settle()
    world.run()
    world.settle()
    return world


# --- invalid specs ---


def test_an_invalid_spec_is_reported_once_with_its_path_and_creates_nothing() -> None:
    world = World(ring())
    world.edit(lambda spec: spec["replicaSpecs"][TRAINER].update(replicas="many"))
    world.settle()
    failed = world.condition("Failed")
    assert failed["reason"] == "InvalidSpec"
    assert "spec.replicaSpecs" in failed["message"]
    assert [(event.type, event.reason) for event in world.events] == [(EventType.WARNING, "InvalidSpec")]
    assert (world.pods, world.services, world.record["observedGeneration"]) == ({}, {}, 2)


def test_a_running_job_survives_an_invalid_change() -> None:
    world = running()
    world.exit("ring-trainer-0", 0)
    world.settle()
    before, valid = world.uids(), copy.deepcopy(world.spec)
    unrelated = {name: value for name, value in world.status.items() if name not in ("conditions", "dlop")}
    world.edit(lambda spec: spec.update(replicaSpecs="none"))
    world.settle()
    assert (world.phase, world.uids(), unrelated.items() <= world.status.items()) == ("Running", before, True)
    assert world.conditions == [("Created", "True"), ("Running", "True"), ("Blocked", "True")]
    assert "spec.replicaSpecs" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("InvalidSpec") == 1
    world.edit(lambda spec: spec.update(valid))
    world.settle()
    assert (world.phase, world.uids()) == ("Running", before)
    assert world.conditions == [("Created", "True"), ("Running", "True")]
    world.exit("ring-trainer-1", 0)
    world.settle()
    assert world.phase == "Succeeded"


def test_another_error_in_the_spec_of_a_running_job_replaces_the_first() -> None:
    world = running()
    for field in ("backoffLimit", "activeDeadlineSeconds"):
        world.spec["runPolicy"].clear()
        world.set_run_policy(**{field: "many"})
        world.settle()
        assert f"spec.runPolicy.{field}" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("InvalidSpec") == 2


@pytest.mark.parametrize("phase", ["Created", "Running", "Restarting", "Suspended"])
def test_a_job_that_another_operator_has_started_keeps_its_status_while_its_spec_is_invalid(phase: str) -> None:
    condition = {"type": phase, "status": "True", "reason": f"RingJob{phase}", "message": "as before"}
    unrelated = {"replicaStatuses": {TRAINER: {"active": 2}}, "startTime": "2027-01-15T07:00:00Z"}
    world = World(ring(backoffLimit="many"), status={"conditions": [condition], **unrelated})
    world.settle()
    assert (world.phase, world.status["conditions"][0]) == (phase, condition)
    assert unrelated.items() <= world.status.items()
    assert world.conditions == [(phase, "True"), ("Blocked", "True")]


# --- name conflicts ---


def test_a_pod_of_another_owner_is_reported_and_left_alone_while_the_other_pods_start() -> None:
    world = World(ring(), name_conflicts=(NameConflict(PODS, "ring-trainer-0", "StatefulSet ring-trainer"),))
    world.settle()
    assert list(world.pods) == ["ring-trainer-1"]
    message = world.condition("Blocked")["message"]
    assert all(part in message for part in ("pod ring-trainer-0", "StatefulSet ring-trainer", "rename the job"))
    assert [event.reason for event in world.events].count("NameConflict") == 1
    world.name_conflicts = ()
    world.settle()
    assert len(world.pods) == 2
    assert ("Blocked", "True") not in world.conditions


def test_no_pod_is_created_while_a_service_has_a_name_conflict() -> None:
    world = World(ring(), name_conflicts=(NameConflict(SERVICES, "ring-trainer-0", ""),))
    world.settle()
    assert (list(world.services), world.pods) == (["ring-trainer-1"], {})


def test_a_conflict_on_a_name_that_the_job_does_not_need_is_ignored() -> None:
    world = World(ring(), name_conflicts=(NameConflict(PODS, "ring-trainer-9", ""), NameConflict(CONFIG_MAPS, "ring-trainer-0", "")))
    world.settle()
    assert len(world.pods) == 2
    assert "blocked" not in world.record


# --- rejected creates ---


class StatesStatus(Status[RingJob]):
    """The status contains the state of each replica."""

    def write(self, job: RingJob, outcome: Outcome) -> JsonObject:
        states = [str(replica.state) for role in outcome.progress.roles for replica in role.replicas]
        return {**super().write(job, outcome), "states": states}


class StatesJob(RingJob):
    status = StatesStatus()


def test_a_created_pod_is_pending_in_the_status_and_a_rejected_one_is_missing() -> None:
    rejected = World(ring(), kind=StatesJob, rejected_writes=(RejectedWrite(PODS, "ring-trainer-0", "Forbidden", "exceeded quota: team"),))
    assert (rejected.plan().status or {})["states"] == ["Missing", "Missing"]
    assert (World(ring(), kind=StatesJob).plan().status or {})["states"] == ["Pending", "Pending"]


def test_of_several_rejected_creates_the_first_to_be_retried_is_reported() -> None:
    late, early = (RejectedWrite(PODS, f"ring-trainer-{index}", "Forbidden", "exceeded quota: team") for index in (1, 0))
    world = World(ring(), rejected_writes=(late, early))
    world.settle()
    world.rejected_writes = (early,)
    world.settle()
    assert "ring-trainer-0" in world.condition("Blocked")["message"]
    assert [event.reason for event in world.events].count("FailedCreate") == 1


def test_after_a_change_of_the_spec_the_new_rejection_is_reported() -> None:
    world = World(ring(), rejected_writes=(RejectedWrite(PODS, "ring-trainer-0", "Invalid", "metadata.labels: Invalid value"),))
    world.settle()
    world.rejected_writes = (RejectedWrite(PODS, "ring-trainer-0", "Invalid", "spec.containers[0].env: Invalid value"),)
    world.set_image(TRAINER, "example.org/train:2")
    world.settle()
    assert "env" in world.condition("Blocked")["message"]


def test_a_rejected_create_is_reported_once_and_planned_until_it_succeeds() -> None:
    world = World(ring(), rejected_writes=(RejectedWrite(PODS, "ring-trainer-0", "Forbidden", "exceeded quota: team"),))
    plan = world.plan()
    assert [create.name for create in plan.pods] == ["ring-trainer-0", "ring-trainer-1"]
    assert [event.reason for event in plan.events] == ["FailedCreate", "CreatedPods"]
    assert plan.status is not None
    world.status = plan.status
    again = world.plan()
    assert (again.status, [event.reason for event in again.events]) == (None, ["CreatedPods"])
    assert len(again.pods) == 2
    assert "exceeded quota: team" in world.condition("Blocked")["message"]


def test_a_job_that_can_create_nothing_fails_at_its_start_deadline() -> None:
    rejected = RejectedWrite(PODS, "ring-trainer-0", "Forbidden", "exceeded quota: team")
    world = World(ring(startDeadlineSeconds=60), rejected_writes=(rejected,))
    world.status = world.plan().status or {}
    plan = world.plan()
    assert plan.requeue_at == world.now + 60
    world.now += 60
    assert [event.reason for event in world.plan().events] == ["StartDeadlineExceeded"]
    assert world.plan().pods == ()


# --- unusual pods ---

ROLE = RoleSpec(name=TRAINER, replicas=1, container="main")


def pod(**fields: object) -> Pod:
    return msgspec.convert({"metadata": {"name": "p"}, **fields}, Pod)


def terminated(code: int, **fields: object) -> dict[str, object]:
    return {"name": "main", "state": {"terminated": {"exitCode": code}}, **fields}


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({}, PodState.PENDING),
        ({"phase": "Pending"}, PodState.PENDING),
        ({"phase": "Running"}, PodState.RUNNING),
        ({"phase": "Unknown"}, PodState.PENDING),
        ({"phase": "Succeeded"}, PodState.SUCCEEDED),
        ({"phase": "Failed"}, PodState.FAILED),
        ({"phase": "Failed", "containerStatuses": [terminated(0)]}, PodState.SUCCEEDED),
        ({"phase": "Failed", "reason": "Evicted", "containerStatuses": [terminated(0)]}, PodState.DISRUPTED),
        ({"phase": "Failed", "reason": "OutOfcpu"}, PodState.DISRUPTED),
        ({"phase": "Failed", "reason": "DeadlineExceeded"}, PodState.FAILED),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]}, PodState.DISRUPTED),
        ({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "False"}]}, PodState.FAILED),
        ({"phase": "Running", "containerStatuses": [terminated(0)]}, PodState.SUCCEEDED),
        ({"phase": "Running", "containerStatuses": [terminated(3)]}, PodState.FAILED),
    ],
)
def test_pods_are_classified(status: dict[str, object], state: PodState) -> None:
    assert classify_pod(pod(status=status, spec={"restartPolicy": "Never"}), ROLE) is state


def test_a_pod_in_phase_unknown_does_not_count_as_running() -> None:
    world = World(ring())
    world.settle()
    world.run()
    for pod in world.pods.values():
        pod["status"]["phase"] = "Unknown"
    world.settle()
    assert (world.phase, "active" in world.status["replicaStatuses"][TRAINER]) == ("Created", False)


def test_a_running_pod_that_becomes_unknown_is_neither_replaced_nor_subject_to_the_start_deadline() -> None:
    world = running(startDeadlineSeconds=60)
    before = world.uids()
    world.pods["ring-trainer-0"]["status"]["phase"] = "Unknown"
    world.pass_time(3600)
    assert (world.phase, world.uids()) == ("Running", before)
    assert world.status["replicaStatuses"][TRAINER]["active"] == 1
    world.remove_pod("ring-trainer-0")
    world.settle()
    assert world.record["disruptions"] == {TRAINER: 1}


def test_a_container_that_the_kubelet_restarts_has_not_completed() -> None:
    status = {"phase": "Running", "containerStatuses": [terminated(3)]}
    assert classify_pod(pod(status=status, spec={"restartPolicy": "OnFailure"}), ROLE) is PodState.RUNNING


def test_the_reported_exit_code_is_that_of_the_main_container_or_of_another_failed_one() -> None:
    both = {"phase": "Failed", "containerStatuses": [{"name": "proxy", "state": {"terminated": {"exitCode": 9}}}, terminated(3)]}
    only_init = {"phase": "Failed", "initContainerStatuses": [{"name": "fetch", "state": {"terminated": {"exitCode": 7}}}]}
    assert pod_failure(pod(status=both), ROLE, 0, now=0).exit_code == 3
    assert pod_failure(pod(status=only_init), ROLE, 0, now=0).exit_code == 7


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
            id="a sidecar",
        ),
    ],
)
@pytest.mark.parametrize(("policy", "phase"), [("ExitCode", "Restarting"), ("OnFailure", "Restarting"), ("Never", "Failed")])
def test_the_exit_code_of_another_container_is_reported_but_does_not_affect_the_restart(
    status: JsonObject, policy: str, phase: str
) -> None:
    world = World(ring(policy=policy))
    world.settle()
    world.pods["ring-trainer-0"]["status"] = {"phase": "Failed", **status}
    world.execute(world.plan())
    assert (world.phase, world.record["lastFailure"]["exitCode"]) == (phase, 1)


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dlop", "conditions", "type", "phase", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["dlop", "conditions", "startTime", "completionTime", "replicaStatuses"]), plain_values))
@settings(max_examples=examples(150), deadline=None)
def test_any_stored_status_is_handled(status: dict[str, object]) -> None:
    plan = World(ring(), status=status).plan()
    assert plan.status is None or set(plan.status) >= {"dlop", "conditions"}
