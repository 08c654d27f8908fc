"""Crons of KubeDL's jobs on the embedded and the real API server: three jobs across crashes of the operator, and the CRD."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop.api.crd import build_cron_crd
from dlop.api.cron import CRONS
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.kube.errors import InvalidError
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.frameworks.sandbox import Clock, Sandbox, open_sandbox, run_embedded, run_real


def cron(**fields: Any) -> JsonObject:
    job = kubedl_job(TFJob, {"Worker": 1})
    template = {"apiVersion": job["apiVersion"], "kind": job["kind"], "workload": {"spec": job["spec"]}}
    spec = {"schedule": "@every 4s", "template": template, **fields}
    spec = {name: value for name, value in spec.items() if value is not None}
    return {"apiVersion": CRONS.api_version, "kind": "Cron", "metadata": {"name": "nightly"}, "spec": spec}


async def cron_of(sandbox: Sandbox) -> JsonObject:
    return await sandbox.client.get(CRONS, "nightly", namespace=sandbox.namespace)


async def three_jobs(transport: Transport, clock: Clock) -> None:
    """Every job is created once and succeeds, although the operator is killed again and again."""
    async with open_sandbox(transport, TFJob, clock=clock, further_crds=(build_cron_crd(),)) as sandbox:
        sandbox.script.when("*").run().succeed()
        sandbox.start()
        await sandbox.client.create(CRONS, cron(concurrencyPolicy="Forbid"), namespace=sandbox.namespace, field_validation="Strict")

        async def history() -> list[JsonObject]:
            entries: list[JsonObject] = (await cron_of(sandbox)).get("status", {}).get("history", [])
            return entries

        for number in (1, 2, 3):

            async def is_created(count: int = number) -> bool:
                return len(await sandbox.names(sandbox.resource)) >= count

            await sandbox.until(is_created)
            await sandbox.restart()
        await sandbox.client.patch(CRONS, "nightly", {"spec": {"suspend": True}}, namespace=sandbox.namespace)

        async def is_done() -> bool:
            return [entry["status"] for entry in await history()] == ["Succeeded"] * len(await sandbox.names(sandbox.resource))

        await sandbox.until(is_done)
        jobs = list((await sandbox.all(sandbox.resource)).values())
        assert len({job["metadata"]["annotations"]["dlop.dev/scheduled-time"] for job in jobs}) == len(jobs)
        assert {job["metadata"]["labels"]["kubedl.io/cron-name"] for job in jobs} == {"nightly"}
        assert {job["metadata"]["ownerReferences"][0]["uid"] for job in jobs} == {(await cron_of(sandbox))["metadata"]["uid"]}
        assert [entry["object"]["name"] for entry in await history()] == sorted(job["metadata"]["name"] for job in jobs)
        before = await cron_of(sandbox)
        await sandbox.settle()
        assert await cron_of(sandbox) == before


INVALID: dict[str, JsonObject] = {
    "spec.schedule": {"schedule": None},
    "spec.template": {"template": None},
    "spec.template.workload": {"template": {"apiVersion": "training.kubedl.io/v1alpha1", "kind": "TFJob"}},
    "spec.template.kind": {"template": {"apiVersion": "training.kubedl.io/v1alpha1", "workload": {}}},
    "spec.concurrencyPolicy": {"concurrencyPolicy": "Never"},
    "spec.historyLimit": {"historyLimit": -1},
    "spec.startingDeadlineSeconds": {"startingDeadlineSeconds": 0},
    "spec.deadline": {"deadline": "tomorrow"},
}
"""Fields that the CRD rejects."""


async def invalid_crons_are_rejected(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, TFJob, clock=clock, further_crds=(build_cron_crd(),)) as sandbox:
        for path, change in INVALID.items():
            with pytest.raises(InvalidError) as error:
                await sandbox.client.create(CRONS, cron(**change), namespace=sandbox.namespace)
            assert path in [cause["field"] for cause in error.value.causes]
        created = await sandbox.client.create(
            CRONS, cron(deadline="2030-01-01T00:00:00Z", timeZone="Asia/Tokyo"), namespace=sandbox.namespace
        )
        assert created["spec"] == cron(deadline="2030-01-01T00:00:00Z", timeZone="Asia/Tokyo")["spec"]


async def a_job_with_a_schedule_is_created_again(transport: Transport, clock: Clock) -> None:
    async with open_sandbox(transport, TFJob, clock=clock, further_crds=(build_cron_crd(),)) as sandbox:
        sandbox.script.when("*").run().succeed()
        sandbox.start()
        job = kubedl_job(TFJob, {"Worker": 1}, cronPolicy={"schedule": "@every 4s", "concurrencyPolicy": "Forbid", "historyLimit": 2})
        await sandbox.client.create(sandbox.resource, job, namespace=sandbox.namespace, field_validation="Strict")

        async def is_created_again() -> bool:
            return len(await sandbox.names(sandbox.resource)) >= 2

        await sandbox.until(is_created_again)
        await sandbox.client.delete(sandbox.resource, "demo", namespace=sandbox.namespace)
        before = len(await sandbox.names(sandbox.resource))

        async def is_created_without_the_first_job() -> bool:
            return len(await sandbox.names(sandbox.resource)) > before

        await sandbox.until(is_created_without_the_first_job)
        assert await sandbox.names(CRONS) == ["demo"]


SCENARIOS = (three_jobs, invalid_crons_are_rejected, a_job_with_a_schedule_is_created_again)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@virtual_time
async def test_on_the_embedded_api_server(scenario: Any) -> None:
    await run_embedded(scenario)


async def test_on_the_real_api_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for scenario in SCENARIOS:
            group.create_task(run_real(scenario, real_cluster), name=scenario.__name__)
