"""The counters of Kubeflow's operator, `training_operator_jobs_*_total`: names, labels and exact values.

Known bug 12 is about them: failures by a limit or an exit code were not counted, and repeated writes were counted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from prometheus_client import generate_latest

from dlop.embedded.apiserver.faults import Faults, RequestMatch
from dlop.frameworks.fioravanzo.mxjob import MXJob as OtherMXJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.mxjob import MXJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.job import DLJob
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import BY_KIND, all_run, install_permissive_crd, job, mpi_job, recreated
from tests.frameworks.kubeflow_manifests import KINDS

FRAMEWORKS = {
    "TFJob": "tensorflow",
    "PyTorchJob": "pytorch",
    "XGBoostJob": "xgboost",
    "PaddleJob": "paddle",
    "JAXJob": "jax",
    "MXJob": "mxnet",
    "MPIJob": "mpi",
}
EVENTS = ("created", "deleted", "successful", "failed", "restarted")
CONFLICT: JsonObject = {
    "kind": "Status",
    "status": "Failure",
    "code": 409,
    "reason": "Conflict",
    "message": "the object has been modified",
}
STATUS = RequestMatch(subresource="status")


def counts(kit: OperatorKit, kind: type[DLJob], *, namespace: str = "default") -> dict[str, float]:
    """Counters for a kind, summed over all operators, without zeros."""
    labels = {"job_namespace": namespace, "framework": FRAMEWORKS[kind.job_type.kind]}
    registries = [running.operator.metrics.registry for running in kit.operators]
    totals = {
        event: sum(registry.get_sample_value(f"training_operator_jobs_{event}_total", labels) or 0.0 for registry in registries)
        for event in EVENTS
    }
    return {event: total for event, total in totals.items() if total}


@BY_KIND
@virtual_time
async def test_a_job_that_succeeds_is_counted_under_the_name_of_its_framework(kind: type[DLJob]) -> None:
    async with OperatorKit(KINDS) as kit:
        kit.script.when("*").run().after(60).succeed()
        await kit.submit(job(kind))
        await kit.until("default/demo", phase="Succeeded")
        await asyncio.sleep(10)
        assert counts(kit, kind) == {"created": 1, "successful": 1}


@virtual_time
async def test_an_mpi_job_is_counted_too() -> None:
    async with OperatorKit([MPIJob]) as kit:
        kit.script.when("demo-launcher").run().after(60).succeed()
        await kit.submit(mpi_job())
        await kit.until("default/demo", phase="Succeeded")
        await asyncio.sleep(10)
        assert counts(kit, MPIJob) == {"created": 1, "successful": 1}


@virtual_time
async def test_the_counters_have_the_format_of_kubeflows_operator() -> None:
    async with OperatorKit([TFJob]) as kit:
        await kit.submit(job(TFJob))
        await kit.until("default/demo", phase="Running")
        await asyncio.sleep(10)
        lines = generate_latest(kit.operator.operator.metrics.registry).decode().splitlines()
    assert "# TYPE training_operator_jobs_created_total counter" in lines
    assert 'training_operator_jobs_created_total{framework="tensorflow",job_namespace="default"} 1.0' in lines
    assert not [line for line in lines if line.startswith("training_operator_jobs_failed_total{")]


@virtual_time
async def test_kinds_of_other_groups_are_not_counted() -> None:
    async with OperatorKit([OtherMXJob]) as kit:
        text = generate_latest(kit.operator.operator.metrics.registry).decode()
        assert "dlop_jobs_created_total" in text
        assert 'framework="' not in text
    counted: tuple[type[DLJob], ...] = (*KINDS, MPIJob)
    assert {kind.job_type.kind: kind.status.metric_label for kind in counted} == FRAMEWORKS
    assert MXJob.status.metric_label != OtherMXJob.status.metric_label == ""


@pytest.mark.parametrize(
    ("exit_code", "restart", "policy"),
    [
        pytest.param(1, "Never", {}, id="a replica that is not restarted"),
        pytest.param(1, "ExitCode", {}, id="a permanent exit code"),
        pytest.param(None, "Never", {"activeDeadlineSeconds": 60}, id="the deadline"),
        pytest.param(137, "ExitCode", {"backoffLimit": 0}, id="the backoff limit"),
    ],
)
@virtual_time
async def test_bug_12_a_failed_job_is_counted_once_for_every_cause(exit_code: int | None, restart: str, policy: JsonObject) -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        if exit_code is not None:
            kit.script.when("*-worker-0").run().after(5).fail(exit_code=exit_code)
        await kit.submit(job(PyTorchJob, restart=restart, runPolicy=policy))
        await kit.until("default/demo", phase="Failed", within_seconds=600)
        await asyncio.sleep(60)
        assert counts(kit, PyTorchJob) == {"created": 1, "failed": 1}


@virtual_time
async def test_bug_12_a_job_with_an_invalid_spec_is_counted_as_failed() -> None:
    async with OperatorKit([TFJob]) as kit:
        await install_permissive_crd(kit, TFJob)
        await kit.submit(job(TFJob, {"Worker": -1}))
        await kit.until("default/demo", phase="Invalid", within_seconds=60)
        await asyncio.sleep(60)
        assert counts(kit, TFJob) == {"created": 1, "failed": 1}


@virtual_time
async def test_bug_12_a_restart_is_counted_once() -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        kit.script.when("*-worker-0", times=3).run().after(5).fail(exit_code=137)
        await kit.submit(job(PyTorchJob, restart="ExitCode"))
        await kit.until("default/demo", reached=recreated(kit, {"demo-worker-0": 4}))
        await asyncio.sleep(60)
        assert counts(kit, PyTorchJob) == {"created": 1, "restarted": 3}


@virtual_time
async def test_bug_12_a_container_restart_is_counted() -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        kit.script.when("*-worker-0").run().after(5).restart_in_place(times=2, exit_code=1)
        await kit.submit(job(PyTorchJob, restart="OnFailure"))
        await kit.until("default/demo", reached=lambda view: (view.status.get("dlop") or {}).get("restarts") == {"Worker": 2})
        await asyncio.sleep(60)
        assert counts(kit, PyTorchJob) == {"created": 1, "restarted": 2}


@virtual_time
async def test_bug_12_a_container_restart_that_exceeds_the_limit_is_counted() -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        kit.script.when("*-worker-0").run().after(5).restart_in_place(times=2, exit_code=1)
        await kit.submit(job(PyTorchJob, restart="OnFailure", runPolicy={"backoffLimit": 1}))
        await kit.until("default/demo", phase="Failed")
        await asyncio.sleep(60)
        assert counts(kit, PyTorchJob) == {"created": 1, "failed": 1, "restarted": 2}


@pytest.mark.parametrize(("limit", "restarts"), [(1, 1), (3, 3)])
@virtual_time
async def test_bug_12_a_failure_that_exceeds_the_limit_is_not_a_restart(limit: int, restarts: int) -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        kit.script.when("*-worker-0").run().after(5).fail(exit_code=137)
        await kit.submit(job(PyTorchJob, restart="ExitCode", runPolicy={"backoffLimit": limit}))
        await kit.until("default/demo", phase="Failed")
        await asyncio.sleep(60)
        assert counts(kit, PyTorchJob) == {"created": 1, "failed": 1, "restarted": restarts}


@virtual_time
async def test_bug_12_the_replacement_of_a_deleted_pod_is_counted_as_a_restart() -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        demo = await kit.submit(job(PyTorchJob))
        await kit.until(demo, phase="Running", reached=all_run)
        await kit.client.delete(PODS, "demo-worker-0", namespace="default")
        await kit.until(demo, phase="Running", reached=recreated(kit, {"demo-worker-0": 2}), within_seconds=600)
        assert counts(kit, PyTorchJob) == {"created": 1, "restarted": 1}


@virtual_time
async def test_bug_12_a_restarted_operator_does_not_count_existing_jobs() -> None:
    async with OperatorKit([TFJob]) as kit:
        kit.script.when("done-*").run().after(60).succeed()
        kit.script.when("lost-*").run().after(60).fail(exit_code=1)
        for name in ("done", "lost", "runs"):
            await kit.submit(job(TFJob, name=name))
        for name, phase in (("done", "Succeeded"), ("lost", "Failed"), ("runs", "Running")):
            await kit.until(f"default/{name}", phase=phase)
        for _ in range(3):
            await kit.operator.crash()
            await kit.start_operator()
            await asyncio.sleep(600)
        assert counts(kit, TFJob) == {"created": 3, "successful": 1, "failed": 1}


@virtual_time
async def test_an_inherited_job_is_not_counted_as_created_but_its_success_is() -> None:
    async with OperatorKit([TFJob], operator=False) as kit:
        await kit.submit(job(TFJob))
        status = {"conditions": [{"type": "Created", "status": "True", "reason": "TFJobCreated"}], "startTime": "2024-01-01T00:00:00Z"}
        await kit.client.patch(TFJob.job_type.resource, "demo", {"status": status}, namespace="default", subresource="status")
        kit.script.when("*").run().after(60).succeed()
        await kit.start_operator()
        await kit.until("default/demo", phase="Succeeded")
        await asyncio.sleep(10)
        assert counts(kit, TFJob) == {"successful": 1}


def _conflicts(faults: Faults) -> None:
    faults.fail_before(CONFLICT, match=STATUS, times=3)


def _lost_responses(faults: Faults) -> None:
    faults.fail_after(None, match=STATUS, times=100)


@pytest.mark.parametrize("inject", [_conflicts, _lost_responses], ids=["conflicts", "lost responses"])
@virtual_time
async def test_bug_12_repeated_status_writes_are_counted_once(inject: Callable[[Faults], None]) -> None:
    async with OperatorKit([PyTorchJob], operator=False) as kit:
        server = kit.new_server()
        inject(server.faults)
        await kit.start_operator(server)
        kit.script.when("again-worker-0", times=2).run().after(30).fail(exit_code=137)
        kit.script.when("lost-worker-0").run().after(30).fail(exit_code=1)
        kit.script.when("*").run().after(120).succeed()
        for name in ("again", "lost"):
            await kit.submit(job(PyTorchJob, name=name, restart="ExitCode"))
        await kit.until("default/again", phase="Succeeded")
        await kit.until("default/lost", phase="Failed")
        await asyncio.sleep(60)
        assert counts(kit, PyTorchJob) == {"created": 2, "successful": 1, "failed": 1, "restarted": 2}


async def _by_its_ttl(kit: OperatorKit) -> None:
    """The operator deletes the job."""


async def _by_hand(kit: OperatorKit) -> None:
    await kit.client.delete(TFJob.job_type.resource, "demo", namespace="default")


@pytest.mark.parametrize(
    ("ttl", "delete"), [pytest.param({"ttlSecondsAfterFinished": 30}, _by_its_ttl, id="TTL"), pytest.param({}, _by_hand, id="by hand")]
)
@virtual_time
async def test_a_deleted_job_is_counted_once(ttl: JsonObject, delete: Callable[[OperatorKit], Coroutine[Any, Any, None]]) -> None:
    async with OperatorKit([TFJob]) as kit:
        kit.script.when("*").run().after(60).succeed()
        demo = await kit.submit(job(TFJob, runPolicy=ttl))
        await kit.until(demo, phase="Succeeded")
        await delete(kit)
        await kit.until(demo, reached=lambda view: not view.exists, within_seconds=60)
        await asyncio.sleep(60)
        assert counts(kit, TFJob) == {"created": 1, "successful": 1, "deleted": 1}


@virtual_time
async def test_a_job_with_another_manager_is_not_counted() -> None:
    async with OperatorKit([TFJob]) as kit:
        demo = await kit.submit(job(TFJob, runPolicy={"managedBy": "kueue.x-k8s.io/multikueue"}))
        status = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        await kit.client.patch(TFJob.job_type.resource, "demo", {"status": status}, namespace="default", subresource="status")
        await asyncio.sleep(60)
        await _by_hand(kit)
        await kit.until(demo, reached=lambda view: not view.exists)
        await asyncio.sleep(60)
        assert counts(kit, TFJob) == {}


@virtual_time
async def test_an_operator_that_is_not_the_leader_counts_nothing() -> None:
    settings = Settings(leader_election=True, bind_address="off")
    async with OperatorKit([TFJob], operator=False) as kit:
        for _ in range(2):
            await kit.start_operator(settings=settings)
            await asyncio.sleep(60)
        kit.script.when("*").run().after(60).succeed()
        await kit.submit(job(TFJob, runPolicy={"ttlSecondsAfterFinished": 30}))
        await asyncio.sleep(600)
        assert counts(kit, TFJob) == {"created": 1, "successful": 1, "deleted": 1}


@virtual_time
async def test_bug_12_created_and_deleted_objects_are_counted() -> None:
    async with OperatorKit([PyTorchJob]) as kit:
        kit.script.when("*").run().after(60).succeed()
        await kit.submit(job(PyTorchJob, runPolicy={"cleanPodPolicy": "All"}))
        await kit.until("default/demo", phase="Succeeded", reached=lambda view: not view.pods)
        await asyncio.sleep(60)
        registry = kit.operator.operator.metrics.registry
        for resource in ("pods", "services"):
            for event in ("created", "deleted"):
                assert registry.get_sample_value(f"dlop_objects_{event}_total", {"resource": resource}) == 2, (event, resource)
