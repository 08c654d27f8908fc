"""The metrics of KubeDL: names, labels and exact values."""

from __future__ import annotations

import asyncio

from prometheus_client import generate_latest

from dlop.api.crd import build_crd
from dlop.deploy.apply import apply
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.frameworks.kubedl.xgboostjob import XGBoostJob
from dlop.frameworks.kubeflow.tfjob import TFJob as KubeflowTFJob
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.frameworks.kubeflow_jobs import job as kubeflow_job
from tests.frameworks.kueue_workloads import KUEUE_CRDS, WorkloadKueue

COUNTERS = ("created", "deleted", "successful", "failed", "restarted")
GAUGES = ("running", "pending")


def values(kit: OperatorKit, kind: str) -> dict[str, float]:
    """Counters and gauges of a kind of the running operator, without zeros."""
    registry = kit.operator.operator.metrics.registry
    samples = {name: registry.get_sample_value(f"kubedl_jobs_{name}", {"kind": kind}) or 0.0 for name in (*COUNTERS, *GAUGES)}
    return {name: value for name, value in samples.items() if value}


def observations(kit: OperatorKit, name: str, kind: str) -> float | None:
    return kit.operator.operator.metrics.registry.get_sample_value(f"kubedl_jobs_{name}_launch_delay_seconds_count", {"kind": kind})


def suspended() -> JsonObject:
    return kubedl_job(TFJob, name="suspended", runPolicy={"suspend": True})


@virtual_time
async def test_jobs_are_counted_from_their_creation_to_their_deletion() -> None:
    async with OperatorKit([TFJob]) as kit:
        kit.script.when("*").after(30).run().after(60).succeed()
        view = await kit.submit(kubedl_job(TFJob))
        await asyncio.sleep(10)
        assert values(kit, "tfjob") == {"created": 1, "pending": 1}
        await kit.until(view, phase="Running")
        await asyncio.sleep(10)
        assert values(kit, "tfjob") == {"created": 1, "running": 1}
        await kit.until(view, phase="Succeeded")
        await asyncio.sleep(10)
        assert values(kit, "tfjob") == {"created": 1, "successful": 1}
        assert (observations(kit, "first_pod", "TFJob"), observations(kit, "all_pods", "TFJob")) == (1, 1)
        await kit.client.delete(TFJob.job_type.resource, "demo", namespace="default")
        await asyncio.sleep(10)
        assert values(kit, "tfjob") == {"created": 1, "successful": 1, "deleted": 1}


@virtual_time
async def test_restarts_and_failures_are_counted() -> None:
    async with OperatorKit([XGBoostJob]) as kit:
        kit.script.when("demo-master-0").run().after(10).fail(exit_code=1)
        roles = {"Master": {**kubedl_job(XGBoostJob)["spec"]["xgbReplicaSpecs"]["Master"], "restartPolicy": "ExitCode"}}
        view = await kit.submit(kubedl_job(XGBoostJob, roles))
        await kit.until(view, phase="Failed")
        await asyncio.sleep(10)
        assert values(kit, "xgboostjob") == {"created": 1, "failed": 1}


@virtual_time
async def test_the_gauges_of_a_new_operator_include_the_jobs_of_its_predecessor() -> None:
    async with OperatorKit([TFJob]) as kit:
        kit.script.when("*").run()
        await kit.until(await kit.submit(kubedl_job(TFJob)), phase="Running")
        await kit.until(await kit.submit(suspended()), phase="Suspended")
        await kit.operator.crash()
        await kit.start_operator()
        await asyncio.sleep(10)
        assert values(kit, "tfjob") == {"running": 1}


@virtual_time
async def test_jobs_are_not_counted_after_their_crd_is_gone() -> None:
    async with OperatorKit([TFJob]) as kit:
        kit.script.when("*").run()
        await kit.until(await kit.submit(kubedl_job(TFJob)), phase="Running")
        await kit.client.delete(CUSTOM_RESOURCE_DEFINITIONS, TFJob.job_type.resource.qualified_name)
        await asyncio.sleep(60)
        assert "running" not in values(kit, "tfjob")
        await apply(kit.client, [build_crd(TFJob)], report=lambda _: None)
        await asyncio.sleep(60)
        assert "running" not in values(kit, "tfjob")


@virtual_time
async def test_kinds_of_other_groups_are_not_counted() -> None:
    async with OperatorKit([KubeflowTFJob]) as kit:
        await kit.until(await kit.submit(kubeflow_job(KubeflowTFJob)), phase="Running")
        assert values(kit, "tfjob") == {}
        assert observations(kit, "first_pod", "TFJob") is None


@virtual_time
async def test_jobs_that_wait_in_a_queue_are_pending() -> None:
    async with OperatorKit([TFJob]) as kit:
        await apply(kit.client, KUEUE_CRDS, report=lambda _: None)
        kueue = WorkloadKueue(kit.client, "default")
        await kueue.create_flavors("spot")
        kit.script.when("*").run()
        view = await kit.submit(kubedl_job(TFJob, schedulingPolicy={"queue": "research"}))
        await kit.until(view, phase="Suspended")
        await asyncio.sleep(10)
        assert (values(kit, "tfjob"), waiting(kit, "research")) == ({"created": 1, "pending": 1}, 1)
        await kueue.admit("spot")
        await kit.until(view, phase="Running")
        await asyncio.sleep(10)
        assert (values(kit, "tfjob"), waiting(kit, "research")) == ({"created": 1, "running": 1}, 0)


def waiting(kit: OperatorKit, queue: str) -> float | None:
    return kit.operator.operator.metrics.registry.get_sample_value("kubedl_tenant_queue_jobs_pending_count", {"queue": queue})


@virtual_time
async def test_the_names_have_no_suffix() -> None:
    async with OperatorKit([TFJob]) as kit:
        await kit.until(await kit.submit(kubedl_job(TFJob)), phase="Running")
        await asyncio.sleep(10)
        lines = generate_latest(kit.operator.operator.metrics.registry).decode().splitlines()
    assert 'kubedl_jobs_created{kind="tfjob"} 1.0' in lines
    assert 'kubedl_jobs_running{kind="tfjob"} 1.0' in lines
    assert 'kubedl_jobs_pending{kind="tfjob"} 0.0' in lines
    assert 'kubedl_jobs_all_pods_launch_delay_seconds_bucket{kind="TFJob",le="+Inf"} 1.0' in lines
