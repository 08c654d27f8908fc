"""Jobs of training.kubedl.io run: start order, restarts, success rules, status, cleanup and gang scheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from dlop.frameworks.kubedl.base import KubeDLJob
from dlop.frameworks.kubedl.elasticdljob import ElasticDLJob
from dlop.frameworks.kubedl.marsjob import MarsJob
from dlop.frameworks.kubedl.mpijob import MPIJob
from dlop.frameworks.kubedl.pytorchjob import PyTorchJob
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import build_view
from dlop.kube.objects import Pod, object_decoder
from dlop.reconcile.snapshot import Snapshot
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import KINDS, kubedl_job, role
from tests.frameworks.kubeflow_jobs import all_run, created, message_of
from tests.frameworks.pod_groups import BY_VOLCANO
from tests.frameworks.test_gang_scheduling import check_gang, gang_kit, until_group_exists
from tests.unit.job.jobs import make

BY_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.job_type.kind)
_decode_pod = object_decoder(Pod)


def pending_reasons(job: ObservedJob) -> list[str]:
    """What `dlop describe` lists as reasons why the job waits."""
    handle = JobHandle.decode(job.framework, msgspec.json.encode(job.body))
    return list(build_view(handle, [_decode_pod(msgspec.json.encode(pod)) for pod in job.pods.values()]).pending_reasons)


def conditions(job: ObservedJob) -> list[tuple[str, str, str]]:
    """Type, status and reason of all conditions."""
    return [(each["type"], each["status"], each["reason"]) for each in job.status["conditions"]]


async def end_of(
    kind: type[KubeDLJob], roles: Mapping[str, Any] | None, exits: Mapping[str, int], *, seconds: float = 600.0, **spec: Any
) -> str | None:
    """The phase of a job whose pods exit with these codes after a minute; others continue."""
    async with OperatorKit(frameworks=[kind]) as kit:
        for pattern, exit_code in exits.items():
            kit.script.when(pattern).run().after(60).then(ContainerExit(exit_code))
        job = await kit.submit(kubedl_job(kind, roles, **spec))
        await kit.writes_when_idle(settle_seconds=seconds, seconds=1)
        return job.phase


# --- start order --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "roles", "first", "held", "waits"),
    [
        (
            TFJob,
            {"PS": 2, "Chief": 1, "Worker": 1, "Evaluator": 1, "AIMaster": 1},
            {"demo-ps-0", "demo-ps-1", "demo-evaluator-0", "demo-aimaster-0"},
            "demo-ps-1",
            ["Chief waits for PS: 1 of 2 running", "Worker waits for PS: 1 of 2 running"],
        ),
        (TFJob, {"PS": 2, "Master": 1}, {"demo-ps-0", "demo-ps-1"}, "demo-ps-1", ["Master waits for PS: 1 of 2 running"]),
        (PyTorchJob, {"Master": 1, "Worker": 2}, {"demo-master-0"}, "demo-master-0", ["Worker waits for Master: 0 of 1 running"]),
        (
            PyTorchJob,
            {"AIMaster": 1, "Master": 1, "Worker": 2},
            {"demo-aimaster-0"},
            "demo-aimaster-0",
            ["Master waits for AIMaster: 0 of 1 running", "Worker waits for Master: 0 of 1 running"],
        ),
        (XGBoostJob, {"Master": 1, "Worker": 2}, {"demo-master-0"}, "demo-master-0", ["Worker waits for Master: 0 of 1 running"]),
        (XDLJob, {"PS": 1, "Scheduler": 1, "Worker": 1}, {"demo-ps-0", "demo-scheduler-0", "demo-worker-0"}, "", []),
        (
            MarsJob,
            {"Scheduler": 2, "WebService": 1, "Worker": 1},
            {"demo-scheduler-0", "demo-scheduler-1"},
            "demo-scheduler-1",
            ["WebService waits for Scheduler: 1 of 2 running", "Worker waits for Scheduler: 1 of 2 running"],
        ),
    ],
)
@virtual_time
async def test_roles_start_in_the_order_of_kubedl(
    kind: type[KubeDLJob], roles: dict[str, int], first: set[str], held: str, waits: list[str]
) -> None:
    """`held` is a pod that does not start."""
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when(held or "none").until_released().run()
        job = await kit.submit(kubedl_job(kind, roles))
        await kit.writes_when_idle(seconds=60)
        assert job.pods.keys() == first
        assert [reason for reason in pending_reasons(job) if "waits for" in reason] == waits
        if held:
            kit.kubelet.release(f"default/{held}")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == sum(roles.values()) and all_run(view))


# --- restarts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exit_code", [130, 137, 138, 143])
@virtual_time
async def test_some_signals_are_retried(exit_code: int) -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("demo-worker-1", times=1).run().after(30).fail(exit_code=exit_code)
        kit.script.when("*").run().after(300).succeed()
        job = await kit.submit(kubedl_job(TFJob))
        await kit.until(job, reached=lambda view: view.condition("Restarting") is not None)
        assert conditions(job)[-1] == ("Restarting", "True", "JobRestarting")
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["restarts"] == {"Worker": 1}


@pytest.mark.parametrize("exit_code", [1, 2, 126, 127, 128, 139, 255])
@virtual_time
async def test_all_other_exit_codes_are_final(exit_code: int) -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("demo-worker-1").run().after(30).fail(exit_code=exit_code)
        job = await kit.submit(kubedl_job(TFJob))
        await kit.until(job, phase="Failed")
        assert job.status["dlop"].get("restarts", {}) == {}
        assert message_of(job, "Failed") == "TFJob demo is failed because 1 Worker replica(s) failed."


@virtual_time
async def test_a_container_without_memory_is_retried_whatever_its_exit_code() -> None:
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("demo-master-0", times=1).run().after(30).fail(exit_code=1, reason="OOMKilled")
        kit.script.when("*").run().after(300).succeed()
        job = await kit.submit(kubedl_job(PyTorchJob))
        await kit.until(job, phase="Succeeded")
        assert job.status["dlop"]["restarts"] == {"Master": 1}


@virtual_time
async def test_an_evicted_pod_is_replaced() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("demo-worker-1", times=1).run().after(30).evict()
        kit.script.when("*").run().after(300).succeed()
        job = await kit.submit(kubedl_job(TFJob))
        await kit.until(job, phase="Succeeded")
        assert created(kit, "pods").count("demo-worker-1") == 2


@virtual_time
async def test_a_failure_with_the_policy_never_is_final_even_if_its_exit_code_is_retryable() -> None:
    assert await end_of(XDLJob, None, {"demo-ps-0": 137}) == "Failed"


@virtual_time
async def test_an_xdljob_fails_after_20_restarts() -> None:
    async with OperatorKit(frameworks=[XDLJob]) as kit:
        kit.script.when("demo-worker-0").run().after(1).fail(exit_code=137)
        job = await kit.submit(kubedl_job(XDLJob, {"Worker": role(1, restartPolicy="ExitCode")}))
        await kit.until(job, phase="Failed")
        assert conditions(job)[-1] == ("Failed", "True", "BackoffLimitExceeded")
        assert created(kit, "pods").count("demo-worker-0") == 21


@virtual_time
async def test_scaling_a_tfjob_restarts_it_because_its_size_is_in_the_environment() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        job = await kit.submit(kubedl_job(TFJob))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        await kit.edit(job, {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 4 and all_run(view))
        assert created(kit, "pods").count("demo-ps-0") == 2
        assert all("demo-worker-2" in pod["spec"]["containers"][0]["env"][0]["value"] for pod in job.pods.values())


# --- success and failure ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "exits", "policy", "expected"),
    [
        ({"Chief": 1, "Worker": 2}, {"demo-chief-0": 0}, None, "Succeeded"),
        ({"Chief": 1, "Worker": 2}, {"demo-worker-*": 0}, None, "Running"),
        ({"Master": 1, "Worker": 2}, {"demo-master-0": 0}, "", "Succeeded"),
        ({"Chief": 1, "Worker": 2}, {"demo-chief-0": 0, "demo-worker-0": 0}, "AllWorkers", "Running"),
        ({"Chief": 1, "Worker": 2}, {"demo-*": 0}, "AllWorkers", "Succeeded"),
        ({"Chief": 1, "PS": 1}, {"demo-chief-0": 0}, "AllWorkers", "Succeeded"),
        ({"PS": 1, "Worker": 2}, {"demo-worker-0": 0}, None, "Succeeded"),
        ({"PS": 1, "Worker": 2}, {"demo-worker-1": 0}, None, "Running"),
        ({"PS": 1, "Worker": 2}, {"demo-worker-0": 0}, "AllWorkers", "Running"),
        ({"PS": 1, "Worker": 2}, {"demo-worker-*": 0}, "AllWorkers", "Succeeded"),
        ({"AIMaster": 1, "Worker": 2}, {"demo-aimaster-0": 0}, "AllWorkers", "Succeeded"),
        ({"AIMaster": 1, "Worker": 2}, {"demo-worker-*": 0}, "AllWorkers", "Running"),
        ({"PS": 1, "Worker": 2}, {"demo-ps-0": 1}, None, "Failed"),
        ({"Worker": 1, "Evaluator": 1}, {"demo-evaluator-0": 1}, None, "Failed"),
        ({"PS": 1, "Evaluator": 1}, {"demo-ps-0": 0}, None, "Running"),
        ({"PS": 1, "Evaluator": 1}, {"demo-*": 0}, None, "Succeeded"),
    ],
)
@virtual_time
async def test_when_a_tfjob_succeeds(roles: Any, exits: dict[str, int], policy: str | None, expected: str) -> None:
    spec: dict[str, Any] = {} if policy is None else {"successPolicy": policy}
    assert await end_of(TFJob, roles, exits, **spec) == expected


@pytest.mark.parametrize(
    ("roles", "exits", "expected"),
    [
        ({"Master": 1, "Worker": 2}, {"demo-master-0": 0}, "Running"),
        ({"Master": 1, "Worker": 2}, {"demo-worker-*": 0}, "Running"),
        ({"Master": 1, "Worker": 2}, {"demo-*": 0}, "Succeeded"),
        ({"Master": 1}, {"demo-*": 0}, "Succeeded"),
        ({"AIMaster": 1, "Master": 1, "Worker": 1}, {"demo-aimaster-0": 0}, "Succeeded"),
        ({"AIMaster": 1, "Master": 1, "Worker": 1}, {"demo-master-0": 0, "demo-worker-0": 0}, "Succeeded"),
        ({"Master": 1, "Worker": 1}, {"demo-master-0": 1}, "Failed"),
    ],
)
@virtual_time
async def test_when_a_pytorchjob_succeeds(roles: Any, exits: dict[str, int], expected: str) -> None:
    assert await end_of(PyTorchJob, roles, exits) == expected


@pytest.mark.parametrize(
    ("workers", "succeed", "spec", "expected"),
    [
        (10, 9, {}, "Succeeded"),
        (10, 8, {}, "Running"),
        (3, 2, {}, "Running"),
        (3, 2, {"minFinishWorkRate": 60}, "Succeeded"),
        (3, 2, {"minFinishWorkRate": 67}, "Running"),
        (10, 2, {"minFinishWorkNum": 2}, "Succeeded"),
        (10, 2, {"minFinishWorkNum": 2, "minFinishWorkRate": 21}, "Running"),
        (3, 3, {"minFinishWorkNum": 7}, "Succeeded"),
        (3, 0, {"minFinishWorkNum": 0}, "Running"),
        (3, 1, {"minFinishWorkRate": 0}, "Succeeded"),
    ],
)
@virtual_time
async def test_an_xdljob_succeeds_when_enough_workers_have(workers: int, succeed: int, spec: dict[str, int], expected: str) -> None:
    roles = {"PS": 1, "Worker": workers}
    assert await end_of(XDLJob, roles, {f"demo-worker-{index}": 0 for index in range(succeed)}, **spec) == expected


@virtual_time
async def test_extend_roles_count_as_workers_of_an_xdljob() -> None:
    exits = {"demo-worker-0": 0, "demo-extendrole-0": 0}
    roles = {"Worker": 1, "ExtendRole": 2}
    assert await end_of(XDLJob, roles, exits, minFinishWorkRate=66) == "Succeeded"
    assert await end_of(XDLJob, roles, exits, minFinishWorkRate=67) == "Running"


def test_the_number_of_workers_that_must_succeed_is_rounded_up_exactly() -> None:
    rates = {(100, 7): 7, (100, 29): 29, (100, 57): 57, (3, 34): 2, (7, 0): 1}
    for (workers, rate), expected in rates.items():
        job = make(XDLJob, kubedl_job(XDLJob, {"Worker": workers}, minFinishWorkRate=rate)["spec"])
        assert isinstance(job, XDLJob)
        assert job.needed_workers == expected


@virtual_time
async def test_one_failed_worker_fails_an_xdljob_despite_the_tolerance() -> None:
    exits = {"demo-worker-0": 1}
    assert await end_of(XDLJob, {"Worker": 10}, exits, minFinishWorkNum=1) == "Failed"


@pytest.mark.parametrize(
    ("roles", "required"),
    [
        ({"Master": 1, "Worker": 1}, ("Master", "Worker")),
        ({"Master": 1}, ("Master",)),
        ({"AIMaster": 1, "Master": 1, "Worker": 1}, ("AIMaster",)),
    ],
)
def test_the_required_roles_of_a_pytorchjob(roles: dict[str, int], required: tuple[str, ...]) -> None:
    job = make(PyTorchJob, kubedl_job(PyTorchJob, roles)["spec"])
    assert job.lifecycle.required_roles(job) == required


@virtual_time
async def test_an_xgboostjob_succeeds_with_its_master() -> None:
    never = {"Master": role(restartPolicy="OnFailure"), "Worker": role(2, restartPolicy="Never")}
    assert await end_of(XGBoostJob, never, {"demo-worker-*": 0}, ttlSecondsAfterFinished=9000) == "Running"
    assert await end_of(XGBoostJob, never, {"demo-master-0": 0}, ttlSecondsAfterFinished=9000) == "Succeeded"
    assert await end_of(XGBoostJob, never, {"demo-worker-1": 1}, ttlSecondsAfterFinished=9000) == "Failed"


@pytest.mark.parametrize(("exit_code", "expected"), [(0, "Succeeded"), (1, "Failed"), (137, "Failed")])
@virtual_time
async def test_an_elasticdljob_ends_with_its_first_container_whatever_its_name(exit_code: int, expected: str) -> None:
    master = role(container={"name": "elasticdl-test-mnist-master"})
    assert await end_of(ElasticDLJob, {"Master": master}, {"elasticdl-demo-master": exit_code}) == expected


@virtual_time
async def test_an_elasticdl_master_of_another_name_is_retried_by_its_exit_code() -> None:
    async with OperatorKit(frameworks=[ElasticDLJob]) as kit:
        kit.script.when("elasticdl-demo-master", times=1).run().after(30).fail(exit_code=137)
        kit.script.when("elasticdl-demo-master").run().after(30).fail(exit_code=2)
        master = role(container={"name": "elasticdl-test-mnist-master"}, restartPolicy="ExitCode")
        job = await kit.submit(kubedl_job(ElasticDLJob, {"Master": master}))
        await kit.until(job, phase="Failed")
        assert (job.status["dlop"]["restarts"], job.status["dlop"]["lastFailure"]["exitCode"]) == ({"Master": 1}, 2)


# --- status and cleanup -------------------------------------------------------------------------------------------------


@BY_KIND
@virtual_time
async def test_conditions_have_the_reasons_of_kubedl_and_nothing_is_written_at_rest(kind: type[KubeDLJob]) -> None:
    roles = {name: role(count, restartPolicy="OnFailure") for name, count in {**kubedl_roles(kind)}.items()}
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when("*").run().until_released().succeed()
        job = await kit.submit(kubedl_job(kind, roles, ttlSecondsAfterFinished=90_000))
        await kit.until(job, reached=lambda view: bool(view.status))
        assert conditions(job)[0] == ("Created", "True", "JobCreated")
        assert set(job.status["replicaStatuses"]) == set(roles)
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == sum(kubedl_roles(kind).values()) and all_run(view))
        assert await kit.writes_when_idle() == []
        assert conditions(job) == [("Created", "True", "JobCreated"), ("Running", "True", "JobRunning")]
        assert job.status["replicaStatuses"] == {name: {"active": count} for name, count in kubedl_roles(kind).items()}
        for name in job.pods:
            kit.kubelet.release(f"default/{name}")
        await kit.until(job, phase="Succeeded")
        assert await kit.writes_when_idle() == []
        assert [(each[0], each[2]) for each in conditions(job)] == [
            ("Created", "JobCreated"),
            ("Running", "JobRunning"),
            ("Succeeded", "JobSucceeded"),
        ]
        verb = "has" if kind is MPIJob else "is"
        assert message_of(job, "Succeeded") == f"{kind.job_type.kind} demo {verb} successfully completed."
        assert job.status["replicaStatuses"] == {name: {"succeeded": count} for name, count in kubedl_roles(kind).items()}
        assert job.status["startTime"] < job.status["completionTime"]


def kubedl_roles(kind: type[KubeDLJob]) -> dict[str, int]:
    return {name: entry["replicas"] for name, entry in kubedl_job(kind)["spec"][kind.schema.field].items()}


@BY_KIND
@virtual_time
async def test_a_failed_job_has_the_reason_job_failed(kind: type[KubeDLJob]) -> None:
    roles = {name: role(restartPolicy="ExitCode") for name in kubedl_roles(kind)}
    async with OperatorKit(frameworks=[kind]) as kit:
        kit.script.when("*").run().after(60).fail(exit_code=1)
        job = await kit.submit(kubedl_job(kind, roles, ttlSecondsAfterFinished=90_000))
        await kit.until(job, phase="Failed")
        assert conditions(job)[-1] == ("Failed", "True", "JobFailed")
        assert message_of(job, "Failed").startswith(f"{kind.job_type.kind} demo is failed because 1 ")
        assert await kit.writes_when_idle() == []


@BY_KIND
def test_an_invalid_job_has_replica_statuses(kind: type[KubeDLJob]) -> None:
    specs: list[Any] = [None, [], {}, {kind.schema.field: {"Boss": 1}}, {kind.schema.field: []}]
    for spec in specs:
        status = make(kind, spec).reconcile(Snapshot(), 1000.0).status
        assert status is not None
        assert status["replicaStatuses"] == {}
        assert status["conditions"][-1]["reason"] == "InvalidSpec"


@pytest.mark.parametrize(
    ("kind", "exits", "left"),
    [
        (TFJob, {"demo-worker-*": 0}, {"demo-worker-0", "demo-worker-1"}),
        (PyTorchJob, {"demo-*": 0}, {"demo-master-0", "demo-worker-0", "demo-worker-1"}),
        (XDLJob, {"demo-worker-*": 0}, {"demo-worker-0", "demo-worker-1"}),
        (MarsJob, {"demo-scheduler-0": 0}, {"demo-scheduler-0", "demo-webservice-0", "demo-worker-0", "demo-worker-1"}),
        (ElasticDLJob, {"elasticdl-demo-master": 0}, {"elasticdl-demo-master"}),
    ],
)
@virtual_time
async def test_the_default_clean_pod_policy(kind: type[KubeDLJob], exits: dict[str, int], left: set[str]) -> None:
    async with OperatorKit(frameworks=[kind]) as kit:
        for pattern in exits:
            kit.script.when(pattern).run().after(60).succeed()
        job = await kit.submit(kubedl_job(kind))
        await kit.until(job, phase="Succeeded")
        await kit.writes_when_idle()
        assert job.pods.keys() == left


@virtual_time
async def test_replicas_that_run_when_the_job_succeeds_count_as_succeeded() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        kit.script.when("demo-worker-0").run().after(60).succeed()
        job = await kit.submit(kubedl_job(TFJob))
        await kit.until(job, phase="Succeeded")
        assert job.status["replicaStatuses"] == {"PS": {"succeeded": 1}, "Worker": {"succeeded": 2}}
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_an_xgboostjob_is_deleted_100_seconds_after_its_end() -> None:
    async with OperatorKit(frameworks=[XGBoostJob]) as kit:
        kit.script.when("demo-*").run().after(60).succeed()
        job = await kit.submit(kubedl_job(XGBoostJob, {"Master": role(restartPolicy="Never")}))
        await kit.until(job, phase="Succeeded")
        finished = kit.clock()
        await kit.until(job, reached=lambda view: not view.exists, within_seconds=120)
        assert 99 <= kit.clock() - finished <= 103


@virtual_time
async def test_a_deadline_in_the_spec_fails_the_job() -> None:
    async with OperatorKit(frameworks=[XDLJob]) as kit:
        job = await kit.submit(kubedl_job(XDLJob, activeDeadlineSeconds=300))
        await kit.until(job, phase="Failed", within_seconds=320)
        assert message_of(job, "Failed")


@virtual_time
async def test_fields_without_effect_are_reported_by_an_event_once() -> None:
    async with OperatorKit(frameworks=[TFJob]) as kit:
        job = await kit.submit(kubedl_job(TFJob, modelVersion={"modelName": "m"}, cacheBackend={"name": "c"}))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        assert await kit.writes_when_idle() == []
        cache, model = sorted(note for _, note in job.events if "has no effect" in note)
        assert cache.startswith("spec.cacheBackend: has no effect")
        assert model.startswith("spec.modelVersion: has no effect: no image is built from the model; remove it")


# --- gang scheduling ----------------------------------------------------------------------------------------------------


@BY_KIND
@virtual_time
async def test_the_scheduling_policy_is_in_the_pod_group(kind: type[KubeDLJob]) -> None:
    policy = {"priorityClassName": "high", "queue": "research", "minAvailable": 1}
    async with gang_kit(kind, options=BY_VOLCANO) as (kit, groups):
        await kit.submit(kubedl_job(kind, schedulingPolicy=policy))
        await until_group_exists(kit, groups, "demo")
        spec = await groups.spec("demo")
        assert (spec["priorityClassName"], spec["queue"]) == ("high", "research")


@virtual_time
async def test_the_pods_of_an_xdljob_are_in_one_pod_group() -> None:
    await check_gang(XDLJob, kubedl_job(XDLJob), pods=4)


@virtual_time
async def test_annotations_without_effect_yield_one_event_each() -> None:
    annotations = {"kubedl.io/enable-elastic-training": "true", "pai.ai/enable-error-monitoring": "true"}
    async with OperatorKit(frameworks=[PyTorchJob]) as kit:
        kit.script.when("*").run()
        manifest = kubedl_job(PyTorchJob)
        manifest["metadata"]["annotations"] = annotations
        job = await kit.submit(manifest)
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view))
        await kit.writes_when_idle()
        warnings = [message for _, message in job.events if "has no effect" in message]
        assert [message.partition(":")[0] for message in sorted(warnings)] == [f"metadata.annotations[{name}]" for name in annotations]
