"""All bugs of Kubeflow's operator that are known, by their numbers: a test for each shows that dlop does not have it."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime

import pytest

import tests.frameworks.test_kubeflow_known_bugs_from_13 as from_13
from dlop.api.gang import VOLCANO
from dlop.deploy.apply import apply
from dlop.embedded.apiserver.faults import Match
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
    counted,
    created,
    job,
    let_everything_in,
    made_again,
    message_of,
    mpi_job,
    true_conditions,
)
from tests.frameworks.kubeflow_manifests import ALL_KINDS, KINDS
from tests.frameworks.pod_groups import BY_VOLCANO, Groups, definition

QUOTA: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "exceeded quota: small"}
CONFLICT = QUOTA | {"code": 409, "reason": "Conflict", "message": "the object has been modified"}


def test_every_bug_has_a_test() -> None:
    tested = {int(number) for name in (*globals(), *vars(from_13)) for number in re.findall(r"^test_bug_(\d+)_", name)}
    assert tested == set(range(1, 24))


@virtual_time
async def test_bug_01_the_active_deadline_is_kept_to_the_second_by_whichever_operator_is_there() -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(PyTorchJob, runPolicy={"activeDeadlineSeconds": 600}))
        await asyncio.sleep(300)
        await kit.operator.crash()
        await kit.start_operator()
        demo = await kit.until("default/demo", phase="Failed", within_seconds=302)
        assert moment(demo.status["completionTime"]) - moment(demo.status["startTime"]) == 600
        assert message_of(demo, "Failed") == "Job demo has failed because it was active longer than specified deadline"


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@virtual_time
async def test_bug_02_the_backoff_limit_counts_every_restart_also_of_pods_that_are_gone() -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=137)
        await kit.submit(job(PyTorchJob, restart="ExitCode", runPolicy={"backoffLimit": 2}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=3600)
        assert created(kit, "pods").count("demo-worker-0") == 3
        assert message_of(demo, "Failed") == "Job demo has failed because it has reached the specified backoff limit"


@virtual_time
async def test_bug_02_restarts_by_the_node_count_also_when_their_pod_is_gone() -> None:
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
async def test_bug_03_a_role_of_no_replicas_has_no_pods_and_costs_nothing(kind: type[DLJob], roles: dict[str, int]) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, roles))
        assert await kit.writes_at_rest() == []
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
async def test_bug_03_a_role_that_is_scaled_to_nothing_loses_its_pods_for_good(kind: type[DLJob], roles: dict[str, int]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        demo = await kit.submit(job(kind, roles))
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.edit(demo, {"spec": {kind.replica_specs_field: {"Worker": {"replicas": 0}}}})
        assert await kit.writes_at_rest() == []
        assert [name for name in (*demo.pods, *demo.services) if "worker" in name] == []
        assert all(created(kit, "pods").count(f"demo-worker-{index}") == 1 for index in range(2))


@pytest.mark.parametrize("kind", [PyTorchJob, PaddleJob, JAXJob, XGBoostJob], ids=lambda kind: kind.job_type.kind)
@virtual_time
async def test_bug_04_a_permanent_exit_code_ends_the_job_at_once_and_its_ttl_runs(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=1)
        await kit.submit(job(kind, restart="ExitCode", runPolicy={"ttlSecondsAfterFinished": 100}))
        demo = await kit.until("default/demo", phase="Failed", within_seconds=60)
        assert demo.status["completionTime"]
        await asyncio.sleep(10)
        assert "restart" not in str(demo.events).lower()
        assert (counted(kit, "failed", kind), counted(kit, "restarted", kind)) == (1, 0)
        await kit.until(demo, reached=lambda view: not view.exists, within_seconds=92)


@pytest.mark.parametrize(
    ("kind", "restart"),
    [(TFJob, "Never"), (TFJob, "Always"), (XGBoostJob, "OnFailure"), (PyTorchJob, "Never"), (PaddleJob, "Never"), (JAXJob, "Never")],
)
@virtual_time
async def test_bug_05_a_running_pod_that_somebody_deletes_is_replaced_and_the_job_goes_on(kind: type[DLJob], restart: str) -> None:
    async with OperatorKit(KINDS) as kit:
        await kit.submit(job(kind, restart=restart, runPolicy={"backoffLimit": 0}))
        demo = await kit.until("default/demo", phase="Running", reached=all_run)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(demo, phase="Running", reached=made_again(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert demo.condition("Failed") is None
        assert demo.status["dlop"]["disruptions"] == {"Worker": 1}


@virtual_time
async def test_bug_06_what_was_created_and_is_not_seen_yet_is_waited_for_and_nothing_is_made_twice() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=Match(plural="pods"))
        await kit.submit(job(PyTorchJob, elasticPolicy={"minReplicas": 1, "maxReplicas": 2}))
        await asyncio.sleep(20)
        await kit.edit("default/demo", {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(20)
        hold.release()
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == 3 and all_run(view), within_seconds=10)
        assert sorted(created(kit, "pods")) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]
        assert [str(write) for write in kit.writes if write.status == 409] == []


@virtual_time
async def test_bug_06_a_job_whose_pods_no_watch_has_shown_is_looked_at_again_when_a_list_does() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        await kit.start_operator(server)
        await asyncio.sleep(1)
        hold = server.faults.hold_watches(match=Match(plural="pods"))
        demo = await kit.submit(job(PyTorchJob, elasticPolicy={"minReplicas": 1, "maxReplicas": 2}))
        await kit.until(demo, reached=lambda view: len(view.pods) == 2)
        await kit.edit(demo, {"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
        await asyncio.sleep(60)
        server.faults.compact()
        server.faults.drop_watches(match=Match(plural="pods"))
        hold.release()
        await kit.until(demo, reached=lambda view: len(view.pods) == 3, within_seconds=30)
        assert sorted(created(kit, "pods")) == ["demo-master-0", "demo-worker-0", "demo-worker-1"]


@BY_EVERY_KIND
@virtual_time
async def test_bug_07_a_job_whose_pods_are_refused_says_so_and_goes_on_when_they_no_longer_are(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS, operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(QUOTA, match=Match(verb="create", plural="pods"), times=1000)
        await kit.start_operator(server)
        await kit.submit(job(kind))
        demo = await kit.until("default/demo", reached=lambda view: view.condition("Blocked") is not None, within_seconds=5)
        assert "exceeded quota: small" in message_of(demo, "Blocked")
        assert true_conditions(demo.status) == ["Created", "Blocked"]
        server.faults.clear()
        await kit.until(demo, phase="Running", reached=lambda view: view.condition("Blocked") is None, within_seconds=120)


@virtual_time
async def test_bug_08_a_worker_of_an_mpi_job_that_fails_is_started_again_and_the_job_does_not_stay_restarting() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-worker-0", times=1).run().after(60).fail(exit_code=137)
        await kit.submit(mpi_job(restart="ExitCode"))
        demo = await kit.until("default/demo", phase="Running", reached=made_again(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert true_conditions(demo.status) == ["Created", "Running"]
        assert demo.status["dlop"]["restarts"] == {"Worker": 1}


@virtual_time
async def test_bug_08_an_mpi_job_that_fails_tells_it_under_the_name_that_it_should_have() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-launcher").run().after(60).fail(exit_code=1)
        await kit.submit(mpi_job())
        demo = await kit.until("default/demo", phase="Failed", within_seconds=600)
        assert [condition["reason"] for condition in demo.status["conditions"] if condition["status"] == "True"] == [
            "MPIJobCreated",
            "MPIJobFailed",
        ]


@virtual_time
async def test_bug_08_an_mpi_job_that_makes_no_sense_is_refused_or_else_told_so_once() -> None:
    wrong = mpi_job()
    del wrong["spec"]["mpiReplicaSpecs"]["Launcher"]
    async with OperatorKit([MPIJob]) as kit:
        with pytest.raises(InvalidError, match="Launcher"):
            await kit.submit(wrong)
        await let_everything_in(kit, MPIJob)
        await kit.submit(wrong)
        demo = await kit.until("default/demo", phase="Invalid", within_seconds=60)
        assert "Launcher" in message_of(demo, "Failed")
        assert await kit.writes_at_rest() == []


@BY_EVERY_KIND
@virtual_time
async def test_bug_09_a_job_that_somebody_else_manages_is_left_alone_for_good(kind: type[DLJob]) -> None:
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
async def test_bug_10_a_finished_job_is_left_in_peace(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS) as kit:
        kit.script.when("*").run().after(60).succeed()
        await kit.submit(job(kind, runPolicy={"cleanPodPolicy": "All"}))
        demo = await kit.until("default/demo", phase="Succeeded", reached=lambda view: not view.pods)
        await asyncio.sleep(30)
        told = demo.events
        await kit.edit(demo, {"metadata": {"labels": {"touched": "yes"}}})
        assert await kit.writes_at_rest() == []
        await kit.operator.crash()
        await kit.start_operator()
        assert await kit.writes_at_rest() == []
        assert demo.events == told


@BY_EVERY_KIND
@virtual_time
async def test_bug_10_a_group_is_written_when_it_has_to_differ_and_never_asked_for_and_its_end_is_told_once(kind: type[DLJob]) -> None:
    async with OperatorKit(ALL_KINDS, operator=False, options=BY_VOLCANO) as kit:
        await apply(kit.client, [definition(VOLCANO)], say=lambda _: None)
        server = kit.new_server()
        await kit.start_operator(server)
        looks = server.faults.delay(0, match=Match(verb="get", plural="podgroups"), times=1000)
        kit.script.when("*").run().after(600).succeed()
        demo = await kit.submit(job(kind))
        await asyncio.sleep(5)
        await Groups(kit.client, VOLCANO).say("Running")
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.edit(demo, {"metadata": {"labels": {"touched": "yes"}}})
        await kit.until(demo, phase="Succeeded")
        await asyncio.sleep(30)
        assert [write.request.method for write in kit.writes if "podgroups" in write.request.path] == ["POST", "DELETE"]
        assert [reason for reason, _ in demo.events].count("DeletedPodGroup") == 1
        await kit.edit(demo, {"metadata": {"labels": {"touched": "again"}}})
        assert await kit.writes_at_rest() == []
        assert looks.hits == 0


@virtual_time
async def test_bug_11_priority_classes_count_in_min_resources_which_are_the_same_every_time_and_leave_nothing_out() -> None:
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    wanted = job(PyTorchJob, {"Master": 1, "Worker": 3}, runPolicy={"schedulingPolicy": {"minAvailable": 2}})
    master, worker = (wanted["spec"]["pytorchReplicaSpecs"][role]["template"]["spec"] for role in ("Master", "Worker"))
    master["containers"][0]["resources"] = {"requests": {"memory": "1Gi"}}
    worker["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 2}}
    worker["initContainers"] = [{"name": "fetch", "image": "fetch:1", "resources": {"requests": {"memory": "4Gi"}}}]
    worker["overhead"] = {"memory": "64Mi"}
    worker["priorityClassName"] = "high"
    async with OperatorKit([PyTorchJob], operator=False, options=BY_VOLCANO) as kit:
        await apply(kit.client, [definition(VOLCANO)], say=lambda _: None)
        await kit.client.create(PRIORITY_CLASSES, high)
        await kit.start_operator()
        await kit.submit(wanted)
        await asyncio.sleep(5)
        found = await Groups(kit.client, VOLCANO).spec()
        assert found["minResources"] == {"nvidia.com/gpu": "4", "memory": "8320Mi"}
        for _ in range(3):
            await kit.operator.crash()
            await kit.start_operator()
            await asyncio.sleep(60)
        assert [write.request.method for write in kit.writes if "podgroups" in write.request.path] == ["POST"]


@virtual_time
async def test_bug_12_metrics_count_everything_once_whatever_conflicts_and_restarts_there_are() -> None:
    async with OperatorKit(KINDS, operator=False) as kit:
        server = kit.new_server()
        server.faults.fail_before(CONFLICT, match=Match(subresource="status"), times=3)
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
        found = {what: counted(kit, what, PyTorchJob) for what in ("created", "successful", "failed", "restarted")}
        assert found == {"created": 3, "successful": 1, "failed": 2, "restarted": 2}
