"""Phases of a TrainingJob: success and failure with and without fault tolerance, time limits, restarts and cleanup."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from dlop import JsonObject, Options, Outcome, Phase, Progress, ReplicaProgress, ReplicaState, RoleProgress, ScaleRecord
from dlop.api.record import Record
from dlop.api.types import ForceDeletion
from dlop.frameworks.paddlepaddle.trainingjob import TrainingJob, TrainingJobFlags
from dlop.frameworks.registry import Registry
from dlop.jobs.actions import scale
from dlop.jobs.errors import JobUpdateError
from dlop.jobs.lookup import find_job, parse_job_reference
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.paddle_manifests import training_example, training_job
from tests.unit.job.jobs import make

FAULT_TOLERANT = training_job("train", fault_tolerant=True)
TRAIN = parse_job_reference("tj/train", Registry([TrainingJob]))


def operator_kit(**flags: Any) -> AbstractAsyncContextManager[OperatorKit]:
    options = Options(force_deletion=ForceDeletion.TIMEOUT, framework_flags=(TrainingJobFlags(**flags),))
    return OperatorKit(frameworks=[TrainingJob], options=options)


def phase_and_reason(view: ObservedJob) -> tuple[str, str]:
    return view.status["phase"], view.status["reason"]


async def until_phase(kit: OperatorKit, view: ObservedJob, phase: str) -> None:
    await kit.until(view, reached=lambda view: view.status.get("phase") == phase)


# --- success and failure ----------------------------------------------------------------------------------------------


@virtual_time
async def test_a_job_is_created_runs_and_succeeds_with_its_trainers() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-pserver-*").after(20).run()
        kit.script.when("*-trainer-*").run().after(100).succeed()
        view = await kit.submit(training_job())
        await until_phase(kit, view, "Creating")
        await until_phase(kit, view, "Running")
        assert view.status["reason"] == "all pods are running"
        assert view.status["replica_statuses"] == [
            {"training_resource_type": "pserver", "state": "running", "resource_states": {"running": 2}},
            {"training_resource_type": "trainer", "state": "running", "resource_states": {"running": 2}},
        ]
        assert "startTime" in view.status
        await until_phase(kit, view, "Succeed")
        assert view.status["reason"] == "all trainer instances have done"
        assert "completionTime" in view.status
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_runs_when_its_servers_are_ready() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-pserver-1").run(ready=False).until_released().become_ready()
        view = await kit.submit(training_job())
        await kit.until(view, reached=lambda view: list(view.pod_phases.values()) == ["Running"] * 4)
        await kit.writes_when_idle()
        assert view.status["phase"] == "Creating"
        kit.kubelet.release("default/train-pserver-1")
        await until_phase(kit, view, "Running")


@virtual_time
async def test_without_fault_tolerance_one_failed_trainer_fails_the_job() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-1").run().after(30).fail(exit_code=139)
        view = await kit.submit(training_job())
        await kit.until(view, phase="Failed")
        assert phase_and_reason(view) == ("Failed", "trainer instances [train-trainer-1] on [scripted-node] have failed")
        condition = view.condition("Failed")
        assert condition is not None
        assert "trainer 1 (pod train-trainer-1 on node scripted-node) terminated with exit code 139" in condition["message"]


@virtual_time
async def test_a_fault_tolerant_job_continues_with_the_other_trainers_and_succeeds_with_them() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-0").run().after(30).fail()
        kit.script.when("*-trainer-1").run().after(90).succeed()
        view = await kit.submit(FAULT_TOLERANT)
        await kit.until(view, reached=lambda view: "failed" in trainer_states(view))
        assert phase_and_reason(view) == ("Running", "all pods are running")
        await kit.until(view, phase="Succeeded")
        assert phase_and_reason(view) == ("Succeed", "all trainer instances have done")
        assert trainer_states(view) == {"failed": 1, "succeeded": 1}


@virtual_time
async def test_a_fault_tolerant_job_fails_when_all_trainers_have_failed() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-0").run().after(30).fail()
        kit.script.when("*-trainer-1").run().after(90).fail()
        view = await kit.submit(FAULT_TOLERANT)
        await kit.until(view, phase="Failed")
        assert phase_and_reason(view) == ("Failed", "all trainer instances have failed")


def trainer_states(view: ObservedJob) -> dict[str, int]:
    statuses = view.status.get("replica_statuses") or [{}]
    counts: dict[str, int] = statuses[-1].get("resource_states", {})
    return counts


@virtual_time
async def test_a_fault_tolerant_job_runs_although_a_trainer_has_failed_before_the_servers_are_ready() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-0").run().after(5).fail()
        kit.script.when("*-pserver-*").after(60).run()
        view = await kit.submit(FAULT_TOLERANT)
        await until_phase(kit, view, "Running")


@virtual_time
async def test_trainers_are_restarted_if_the_run_policy_has_a_backoff_limit() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-1").run().after(30).fail().after(30).succeed()
        kit.script.when("*-trainer-0").run().after(200).succeed()
        view = await kit.submit(training_job(runPolicy={"backoffLimit": 3}))
        await kit.until(view, phase="Succeeded")
        assert view.status["dlop"]["restarts"] == {"trainer": 1}


# --- limits -----------------------------------------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize("fields", [{"annotations": {"walltime": 3600}}, {"runPolicy": {"activeDeadlineSeconds": 3600}}])
async def test_a_job_that_exceeds_its_walltime_times_out(fields: JsonObject) -> None:
    async with operator_kit() as kit:
        view = await kit.submit(training_job(**fields))
        await kit.until(view, phase="Running")
        started = kit.clock()
        await kit.until(view, phase="Failed")
        assert 3500 < kit.clock() - started <= 3600
        assert phase_and_reason(view) == ("Timeout", "timeout!")
        condition = view.condition("Failed")
        assert condition is not None
        assert (condition["reason"], condition["message"]) == (
            "DeadlineExceeded",
            "the job was active longer than its deadline of 3600 seconds",
        )


@virtual_time
async def test_the_deadline_of_the_run_policy_takes_precedence_over_the_walltime() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-*").run().after(300).succeed()
        view = await kit.submit(training_job(annotations={"walltime": 100}, runPolicy={"activeDeadlineSeconds": 1000}))
        await kit.until(view, phase="Succeeded")


@virtual_time
@pytest.mark.parametrize(("restarts", "phase"), [(4, "Running"), (5, "Failed")])
async def test_a_job_fails_when_a_server_reaches_the_restart_limit(restarts: int, phase: str) -> None:
    async with operator_kit() as kit:
        kit.script.when("*-pserver-1").run().restart_in_place(restarts).until_released()
        view = await kit.submit(training_job())
        await kit.until(view, reached=lambda view: view.status.get("dlop", {}).get("restarts") == {"pserver": restarts})
        await kit.writes_when_idle()
        assert view.status["phase"] == phase
        if phase == "Failed":
            assert view.status["reason"] == "Pserver reached to restart limit!"
            condition = view.condition("Failed")
            assert condition is not None
            assert condition["reason"] == "RestartLimitExceeded"
            assert "pserver 1 was restarted 5 times" in condition["message"]


@virtual_time
async def test_the_restart_limit_is_a_flag() -> None:
    async with operator_kit(paddle_restart_limit=1) as kit:
        kit.script.when("*-pserver-1").run().restart_in_place(1).until_released()
        view = await kit.submit(training_job())
        await until_phase(kit, view, "Failed")


@virtual_time
async def test_the_restart_limit_does_not_apply_to_the_master() -> None:
    async with operator_kit() as kit:
        etcd_exit = ContainerExit(1, container="etcd")
        kit.script.when("*-master-0").run().restart_in_place(9).then(etcd_exit)
        kit.script.when("*-trainer-*").run().after(300).succeed()
        view = await kit.submit(FAULT_TOLERANT)
        await kit.until(view, phase="Succeeded")


# --- cleanup ----------------------------------------------------------------------------------------------------------


@virtual_time
@pytest.mark.parametrize(
    ("autoclean", "policy", "remaining"),
    [(False, None, 2), (True, None, 0), (True, "None", 4), (False, "All", 0), (True, "Running", 2), (True, "", 0)],
)
async def test_only_finished_pods_of_a_finished_job_are_kept_unless_autoclean_or_the_run_policy_says_otherwise(
    autoclean: bool, policy: str | None, remaining: int
) -> None:
    async with operator_kit(paddle_autoclean=autoclean) as kit:
        kit.script.when("*-trainer-*").run().after(10).succeed()
        view = await kit.submit(training_job(runPolicy={} if policy is None else {"cleanPodPolicy": policy}))
        await until_phase(kit, view, "Succeed")
        await kit.writes_when_idle()
        assert len(view.pods) == remaining


@virtual_time
async def test_the_running_pods_of_a_job_that_has_timed_out_are_deleted() -> None:
    async with operator_kit() as kit:
        kit.script.when("*-trainer-0").run().after(10).succeed()
        view = await kit.submit(training_job(annotations={"walltime": 60}))
        await until_phase(kit, view, "Timeout")
        await kit.writes_when_idle()
        assert list(view.pods) == ["train-trainer-0"]


# --- suspend, scale, and jobs of the old operator ---------------------------------------------------------------------


@virtual_time
async def test_a_suspended_job_has_no_pods_and_runs_again_when_it_is_resumed() -> None:
    async with operator_kit() as kit:
        view = await kit.submit(training_job())
        await until_phase(kit, view, "Running")
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": True}}})
        await kit.until(view, reached=lambda view: view.status["phase"] == "Suspended" and not view.pods)
        await kit.edit(view, {"spec": {"runPolicy": {"suspend": False}}})
        await until_phase(kit, view, "Running")


@virtual_time
async def test_scaling_writes_the_minimum_and_restarts_a_job_that_is_not_elastic() -> None:
    async with operator_kit() as kit:
        view = await kit.submit(training_job())
        await until_phase(kit, view, "Running")
        await scale(kit.client, await find_job(kit.client, TRAIN, namespace="default"), {"trainer": 3})
        await kit.until(view, reached=lambda view: "train-trainer-2" in view.pods and view.status["phase"] == "Running")
        assert view.body["spec"]["trainer"]["min-instance"] == 3
        assert view.status["dlop"]["attempt"] == 1


@virtual_time
async def test_a_job_of_fixed_size_can_be_scaled_in_both_directions_and_keeps_a_fixed_size() -> None:
    async with operator_kit() as kit:
        job = training_job()
        job["spec"]["trainer"] |= {"min-instance": 2, "max-instance": 2}
        view = await kit.submit(job)
        for trainers in (1, 3):
            await scale(kit.client, await find_job(kit.client, TRAIN, namespace="default"), {"trainer": trainers})
            assert [view.body["spec"]["trainer"][name] for name in ("min-instance", "max-instance")] == [trainers, trainers]
            await kit.until(view, phase="Running", reached=lambda view: len(view.pods) == 2 + trainers, within_seconds=100)  # noqa: B023


@virtual_time
async def test_a_master_is_not_scaled() -> None:
    async with operator_kit() as kit:
        await kit.submit(FAULT_TOLERANT)
        job = await find_job(kit.client, TRAIN, namespace="default")
        with pytest.raises(JobUpdateError, match=r"spec\.master\.min-instance: must be exactly 1, got 2"):
            await scale(kit.client, job, {"master": 2})


@virtual_time
@pytest.mark.parametrize("phase", ["Succeed", "Failed", "failed", "Timeout"])
async def test_a_job_that_the_old_operator_has_finished_is_not_started_again(phase: str) -> None:
    async with OperatorKit(frameworks=[TrainingJob], operator=False) as kit:
        view = await kit.submit({**training_example(), "apiVersion": "paddlepaddle.org/v1alpha1"})
        status = {"status": {"phase": phase, "reason": "", "scale_records": {"ScaleRecords": None}, "replica_statuses": None}}
        await kit.client.patch(TrainingJob.job_type.resource, "examplejob", status, namespace="default", subresource="status")
        await kit.start_operator()
        assert await kit.writes_when_idle() == []
        assert view.pods == {}


@pytest.mark.parametrize("phase", ["", "Creating", "Running", "Scaling", None, [], {}])
def test_other_phases_of_the_old_operator_mean_that_the_job_is_started(phase: Any) -> None:
    assert TrainingJob.status.read_phase({"phase": phase}) is None


# --- elastic trainers -------------------------------------------------------------------------------------------------


def elastic_outcome(states: Iterable[ReplicaState], *, surplus_pods: int = 0, records: Iterable[ScaleRecord] = ()) -> Outcome:
    """A running job with at least two trainers."""
    job = make(TrainingJob, training_example()["spec"])
    (role,) = (role for role in job.spec.roles if role.name == "trainer")
    replicas = tuple(ReplicaProgress(role="trainer", index=index, state=state) for index, state in enumerate(states))
    return Outcome(
        phase=Phase.RUNNING,
        reason=Phase.RUNNING.value,
        message="",
        progress=Progress(roles=(RoleProgress(spec=role, replicas=replicas),)),
        record=Record(scale_records=list(records)),
        now=1000.0,
        started_at=500.0,
        finished_at=None,
        surplus_pods=surplus_pods,
    )


def written_status(outcome: Outcome) -> JsonObject:
    return TrainingJob.status.write(make(TrainingJob, training_example()["spec"]), outcome)


RUNNING, PENDING, MISSING = ReplicaState.RUNNING, ReplicaState.PENDING, ReplicaState.MISSING


@pytest.mark.parametrize(
    ("states", "surplus_pods", "expected"),
    [
        ([RUNNING, RUNNING], 0, ("Running", "all pods are running")),
        ([RUNNING, RUNNING, PENDING], 0, ("Scaling", "need scale")),
        ([RUNNING, RUNNING, MISSING], 0, ("Scaling", "need scale")),
        ([RUNNING, RUNNING, RUNNING], 0, ("Running", "all pods are running")),
        ([RUNNING, RUNNING], 1, ("Scaling", "need scale")),
    ],
)
def test_a_running_job_scales_while_optional_trainers_start_or_leave(
    states: list[ReplicaState], surplus_pods: int, expected: tuple[str, str]
) -> None:
    status = written_status(elastic_outcome(states, surplus_pods=surplus_pods))
    assert (status["phase"], status["reason"]) == expected
    assert "scale_records" not in status


def test_decisions_of_the_autoscaler_are_in_the_status() -> None:
    record = ScaleRecord(time="2026-01-01T00:00:00Z", role="trainer", replicas=3, change=1, reason="IdleCapacity")
    status = written_status(elastic_outcome([RUNNING] * 3, records=[record]))
    assert status["scale_records"] == {
        "ScaleRecords": [{"scaleTimestamp": "2026-01-01T00:00:00Z", "additional": 1, "status": "True", "reason": "IdleCapacity"}]
    }


@pytest.mark.parametrize(
    ("states", "succeeded"),
    [
        (["Succeeded", "Succeeded", "Pending"], True),
        (["Succeeded", "Failed", "Missing"], True),
        (["Failed", "Failed", "Pending"], False),
        (["Succeeded", "Succeeded", "Running"], None),
        (["Succeeded", "Pending"], None),
        (["Succeeded", "Restarting", "Pending"], None),
        (["Failed", "Failed", "Succeeded"], True),
    ],
)
def test_optional_trainers_that_have_not_started_do_not_keep_the_job_from_finishing(states: list[str], succeeded: bool | None) -> None:
    outcome = elastic_outcome(map(ReplicaState, states))
    result = TrainingJob.lifecycle.evaluate(make(TrainingJob, training_example()["spec"]), outcome.progress)
    assert (None if result is None else result.succeeded) is succeeded
