"""Known bugs of Kubeflow's operator: for each one, by number, a test shows that dlop does not have it. The others are in 13_to_23."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from pathlib import Path

import pytest

from dlop.api.gang import VOLCANO
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.frameworks.kubeflow.jaxjob import JAXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.paddlejob import PaddleJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.frameworks.kubeflow.xgboostjob import XGBoostJob
from dlop.job import DLJob
from dlop.kube.errors import InvalidError
from dlop.kube.resources import PODS, PRIORITY_CLASSES
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import (
    BY_EVERY_KIND,
    all_run,
    created,
    install_permissive_crd,
    job,
    kubeflow_counter,
    message_of,
    mpi_job,
    recreated,
    true_conditions,
)
from tests.frameworks.kubeflow_manifests import ALL_KINDS, KINDS
from tests.frameworks.pod_groups import BY_VOLCANO, PodGroups, pod_group_crd

QUOTA: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "exceeded quota: small"}
CONFLICT = QUOTA | {"code": 409, "reason": "Conflict", "message": "the object has been modified"}


def test_every_bug_has_a_test() -> None:
    sources = [path.read_text() for path in Path(__file__).parent.glob("test_kubeflow_known_bugs_*.py")]
    tested = {int(number) for source in sources for number in re.findall(r"^(?:async )?def test_bug_(\d+)_", source, re.MULTILINE)}
    assert tested == set(range(1, 24))


@virtual_time
async def test_bug_01_the_active_deadline_is_exact_also_after_a_restart_of_the_operator() -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, runPolicy={"activeDeadlineSeconds": 600}))
        await asyncio.sleep(300)
        await kit.operator.crash()
        await kit.start_operator()
        demo = await kit.until("default/demo", phase="Failed", within_seconds=302)
        assert timestamp(demo.status["completionTime"]) - timestamp(demo.status["startTime"]) == 600
        assert message_of(demo, "Failed") == "Job demo has failed because it was active longer than specified deadline"


def timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@virtual_time
async def test_bug_02_the_backoff_limit_counts_restarts_of_deleted_pods() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=137)
        await kit.submit(job(PyTorchJob, restart="ExitCode", runPolicy={"backoffLimit": 2}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=3600)
        assert created(kit, "pods").count("demo-worker-0") == 3
        assert message_of(demo, "Failed") == "Job demo has failed because it has reached the specified backoff limit"


@virtual_time
async def test_bug_02_the_backoff_limit_counts_container_restarts_of_deleted_pods() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0", times=1).run().after(5).restart_in_place(2).after(60).evict()
        kit.script.when("*-worker-0").run().after(60).restart_in_place(1)
        await kit.submit(job(PyTorchJob, restart="OnFailure", runPolicy={"backoffLimit": 2}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=600)
        assert message_of(demo, "Failed") == "Job demo has failed because it has reached the specified backoff limit"
        assert (demo.status["dlop"]["restarts"], demo.status["dlop"]["disruptions"]) == ({"Worker": 3}, {"Worker": 1})
        assert created(kit, "pods").count("demo-worker-0") == 2


@pytest.mark.parametrize(
    ("kind", "roles"),
    [
        pytest.param(TFJob, {"Worker": 1, "PS": 0}, id="TFJob"),
        pytest.param(XGBoostJob, {"Master": 1, "Worker": 0}, id="XGBoostJob"),
        pytest.param(PaddleJob, {"Master": 1, "Worker": 0}, id="PaddleJob"),
        pytest.param(JAXJob, {"Worker": 0}, id="JAXJob"),
    ],
)
@virtual_time
async def test_bug_03_a_role_with_zero_replicas_has_no_pods_and_causes_no_writes(kind: type[DLJob], roles: dict[str, int]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, roles))
        assert await kit.writes_when_idle() == []
        assert created(kit, "pods") == [f"demo-{role.lower()}-0" for role, replicas in roles.items() if replicas]


@pytest.mark.parametrize(
    ("kind", "roles"),
    [
        pytest.param(TFJob, {"Chief": 1, "Worker": 2}, id="TFJob"),
        pytest.param(XGBoostJob, {"Master": 1, "Worker": 2}, id="XGBoostJob"),
        pytest.param(PaddleJob, {"Master": 1, "Worker": 2}, id="PaddleJob"),
        pytest.param(JAXJob, {"Worker": 2}, id="JAXJob"),
        pytest.param(MPIJob, {"Launcher": 1, "Worker": 2}, id="MPIJob"),
    ],
)
@virtual_time
async def test_bug_03_scaling_a_role_to_zero_deletes_its_pods_permanently(kind: type[DLJob], roles: dict[str, int]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        demo = await kit.submit(job(kind, roles))
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.edit(demo, {"spec": {kind.schema.field: {"Worker": {"replicas": 0}}}})
        assert await kit.writes_when_idle() == []
        assert [name for name in (*demo.pods, *demo.services) if "worker" in name] == []
        assert all(created(kit, "pods").count(f"demo-worker-{index}") == 1 for index in range(2))


@pytest.mark.parametrize("kind", [PyTorchJob, PaddleJob, JAXJob, XGBoostJob], ids=lambda kind: kind.job_type.kind)
@virtual_time
async def test_bug_04_a_permanent_exit_code_fails_the_job_immediately_and_starts_its_ttl(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=1)
        await kit.submit(job(kind, restart="ExitCode", runPolicy={"ttlSecondsAfterFinished": 100}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=60)
        assert demo.status["completionTime"]
        await asyncio.sleep(10)
        assert "restart" not in str(demo.events).lower()
        assert (kubeflow_counter(kit, "failed", kind), kubeflow_counter(kit, "restarted", kind)) == (1, 0)
        await kit.until(demo, reached=lambda view: not view.exists, within_seconds=92)


@pytest.mark.parametrize(
    ("kind", "restart"),
    [(TFJob, "Never"), (TFJob, "Always"), (XGBoostJob, "OnFailure"), (PyTorchJob, "Never"), (PaddleJob, "Never"), (JAXJob, "Never")],
)
@virtual_time
async def test_bug_05_a_deleted_running_pod_is_replaced_and_the_job_continues(kind: type[DLJob], restart: str) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, restart=restart, runPolicy={"backoffLimit": 0}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(demo, phase="Running", reached=recreated(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert demo.condition("Failed") is None
        assert demo.status["dlop"]["disruptions"] == {"Worker": 1}


@virtual_time
async def test_bug_06_pods_that_the_cache_does_not_show_yet_are_not_created_twice() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=RequestMatch(plural="pods"))
        await kit.submit(job(PyTorchJob, elasticPolicy={"minReplicas": 1, "maxReplicas": 2}))
        await asyncio.sleep(20)
        await kit.edit("default/demo", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(20)
        hold.release()
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert sorted(created(kit, "pods")) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]
        assert [str(write) for write in kit.writes if write.status == 409] == []


@virtual_time
async def test_bug_06_a_relist_that_shows_missed_pods_requeues_their_job() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=RequestMatch(plural="pods"))
        demo = await kit.submit(job(PyTorchJob, elasticPolicy={"minReplicas": 1, "maxReplicas": 2}))
        await kit.until(demo, reached=lambda view: len(view.pods) == 2)
        await kit.edit(demo, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(60)
        server.faults.compact()
        server.faults.drop_watches(match=RequestMatch(plural="pods"))
        hold.release()
        await kit.until(demo, reached=lambda view: len(view.pods) == 3, within_seconds=30)
        assert sorted(created(kit, "pods")) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]


@BY_EVERY_KIND
@virtual_time
async def test_bug_07_a_job_whose_pods_are_rejected_is_blocked_until_they_are_accepted(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS, operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(QUOTA, match=RequestMatch(verb="create", plural="pods"), times=1000)
        await kit.start_operator(server)
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert "exceeded quota: small" in message_of(demo, "Blocked")
        assert true_conditions(demo.status) == ["Created", "Blocked"]
        server.faults.clear()
        await kit.until(demo, phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=120)


@virtual_time
async def test_bug_08_a_failed_worker_of_an_mpi_job_is_restarted_and_the_job_runs_again() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(60).fail(exit_code=137)
        await kit.submit(mpi_job(restart="ExitCode"))
        demo = await kit.until("default/demo", phase="Running", reached=recreated(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert true_conditions(demo.status) == ["Created", "Running"]
        assert demo.status["dlop"]["restarts"] == {"Worker": 1}


@virtual_time
async def test_bug_08_a_failed_mpi_job_has_the_correct_reason() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-launcher").run().after(60).fail(exit_code=1)
        await kit.submit(mpi_job())
        demo = await kit.until("default/demo", phase="Failed", within_seconds=600)
        assert [condition["reason"] for condition in demo.status["conditions"] if condition["status"] == "True"] == [
            "MPIJobCreated",
            "MPIJobFailed",
        ]


@virtual_time
async def test_bug_08_an_invalid_mpi_job_is_rejected_or_marked_as_failed_once() -> None:
    invalid = mpi_job()
    del invalid["spec"]["mpiReplicaSpecs"]["Launcher"]
    async with OperatorKit([MPIJob]) as kit:
        with pytest.raises(InvalidError, match="Launcher"):
            await kit.submit(invalid)
        await install_permissive_crd(kit, MPIJob)
        await kit.submit(invalid)
        demo = await kit.until("default/demo", phase="Invalid", within_seconds=60)
        assert "Launcher" in message_of(demo, "Failed")
        assert await kit.writes_when_idle() == []


@BY_EVERY_KIND
@virtual_time
async def test_bug_09_a_job_with_another_manager_is_never_touched(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        demo = await kit.submit(job(kind, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
        for manager in ("kubeflow.org/training-operator", None):
            with pytest.raises(InvalidError, match="field is immutable"):
                await kit.edit(demo, {"spec": {"runPolicy": {"managedBy": manager}}})
        with pytest.raises(InvalidError, match=r"spec\.runPolicy\.managedBy"):
            await kit.submit(job(kind, name="empty", runPolicy={"managedBy": ""}))
        await asyncio.sleep(600)
        assert kit.writes == []
        await kit.submit(job(kind, name="ours", runPolicy={"managedBy": "kubeflow.org/training-operator"}))
        await kit.until("default/ours", phase="Running", within_seconds=60)


@BY_EVERY_KIND
@virtual_time
async def test_bug_10_a_finished_job_causes_no_writes(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*").run().after(60).succeed()
        await kit.submit(job(kind, runPolicy={"cleanPodPolicy": "All"}))
        demo = await kit.until("default/demo", phase="Succeeded", reached=lambda view: not view.pods)
        await asyncio.sleep(30)
        events = demo.events
        await kit.edit(demo, {"metadata": {"labels": {"touched": "yes"}}})
        assert await kit.writes_when_idle() == []
        await kit.operator.crash()
        await kit.start_operator()
        assert await kit.writes_when_idle() == []
        assert demo.events == events


@BY_EVERY_KIND
@virtual_time
async def test_bug_10_a_pod_group_is_written_only_when_it_changes_and_its_deletion_has_one_event(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS, operator=False, options=BY_VOLCANO) as kit:
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        server = kit.new_server()
        await kit.start_operator(server)
        gets = server.faults.delay(0, match=RequestMatch(verb="get", plural="podgroups"), times=1000)
        kit.script.when("*").run().after(600).succeed()
        demo = await kit.submit(job(kind))
        await asyncio.sleep(5)
        await PodGroups(kit.client, VOLCANO).set_phase("Running")
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.edit(demo, {"metadata": {"labels": {"touched": "yes"}}})
        await kit.until(demo, phase="Succeeded")
        await asyncio.sleep(30)
        assert [write.request.method for write in kit.writes if "podgroups" in write.request.path] == ["POST", "DELETE"]
        assert [reason for reason, _ in demo.events].count("DeletedPodGroup") == 1
        await kit.edit(demo, {"metadata": {"labels": {"touched": "again"}}})
        assert await kit.writes_when_idle() == []
        assert gets.hits == 0


@virtual_time
async def test_bug_11_min_resources_are_complete_deterministic_and_respect_priority_classes() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    gang = job(PyTorchJob, {"Master": 1, "Worker": 3}, runPolicy={"schedulingPolicy": {"minAvailable": 2}})
    master, worker = (gang["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"] for role in ("Master", "Worker"))
    master["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    worker["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    worker["initContainers"] = [{"name": "fetch", "image": "fetch:1", "resources": {"requests": {"memory": "4Gi"}}}]
    worker["overhead"] = {"memory": "64Mi"}
    worker["priorityClassName"] = "high"
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        await apply(kit.client, [pod_group_crd(VOLCANO)], report=lambda _: None)
        await kit.client.create(PRIORITY_CLASSES, high)
        await kit.start_operator()
        await kit.submit(gang)
        await asyncio.sleep(5)
        spec = await PodGroups(kit.client, VOLCANO).spec()
        assert spec["minResources"] == {"nvidia.com/gpu": "4", "memory": "8320Mi"}
        for _ in range(3):
            await kit.operator.crash()
            await kit.start_operator()
            await asyncio.sleep(60)
        assert [write.request.method for write in kit.writes if "podgroups" in write.request.path] == ["POST"]


@virtual_time
async def test_bug_12_counters_are_exact_despite_conflicts_and_restarts() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(CONFLICT, match=RequestMatch(subresource="status"), times=3)
        await kit.start_operator(server)
        kit.script.when("code-*").run().after(5).fail(exit_code=1)
        kit.script.when("again-worker-0", times=2).run().after(5).fail(exit_code=137)
        kit.script.when("again-*").run().after(60).succeed()
        await kit.submit(job(PyTorchJob, name="late", runPolicy={"activeDeadlineSeconds": 60}))
        for name in ("code", "again"):
            await kit.submit(job(PyTorchJob, name=name, restart="ExitCode"))
        for name, phase in (("late", "Failed"), ("code", "Failed"), ("again", "Succeeded")):
            await kit.until(f"default/{name}", phase=phase, within_seconds=3600)
        await kit.operator.crash()
        await kit.start_operator()
        await asyncio.sleep(600)
        counters = {event: kubeflow_counter(kit, event, PyTorchJob) for event in ("created", "successful", "failed", "restarted")}
        assert counters == {"created": 3, "successful": 1, "failed": 2, "restarted": 2}
