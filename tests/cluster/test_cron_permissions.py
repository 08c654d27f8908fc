"""Crons on the real API server, with and without the optional permission to create jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from real_cluster import RealCluster

from dlop.api.crd import build_cron_crd
from dlop.api.cron import CRONS
from dlop.deploy.apply import apply
from dlop.frameworks.kubedl.tfjob import TFJob
from dlop.kube.client import Client
from dlop.kube.resources import EVENTS
from tests.cluster.deployed_operator import deploy_operator, discard
from tests.cluster.restricted_operator import grant, run_restricted_operator, wait_for_condition
from tests.frameworks.kubedl_manifests import kubedl_job
from tests.frameworks.test_crons_on_api_servers import cron

JOBS = TFJob.job_type.resource


async def until_job_is_active(client: Client, namespace: str) -> None:
    """Wait until a job of the Cron runs."""
    async with asyncio.timeout(60), client.watch(CRONS, namespace=namespace, bookmarks=False) as events:
        async for event in events:
            if event.decode().get("status", {}).get("active"):
                return


async def test_only_crons_need_the_permission_to_create_jobs(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with (
        deploy_operator(real_cluster, tmp_path, one_namespace=False, kinds=(TFJob,)) as deployed,
        run_restricted_operator(deployed, tmp_path, kind=TFJob) as namespace,
    ):
        await apply(deployed.admin, [build_cron_crd()], report=discard)
        assert await deployed.unexpected([(JOBS.group, JOBS.plural, "create")], expected=False, namespace=namespace) == []
        allowed = [*((CRONS.group, "crons", verb) for verb in ("get", "list", "watch")), (CRONS.group, "crons/status", "patch")]
        assert await deployed.unexpected(allowed, expected=True, namespace=namespace) == []
        forbidden = [(CRONS.group, "crons", verb) for verb in ("create", "update", "patch", "delete")]
        assert await deployed.unexpected(forbidden, expected=False, namespace=namespace) == []
        await deployed.admin.create(CRONS, cron(), namespace=namespace)
        await deployed.admin.create(JOBS, kubedl_job(TFJob, {"Worker": 1}), namespace=namespace)
        await wait_for_condition(deployed.admin, JOBS, "demo", "Running", namespace=namespace)
        blocked = await wait_for_condition(deployed.admin, CRONS, "nightly", "Blocked", namespace=namespace)
        assert blocked["reason"] == "Forbidden"
        assert f'cannot create resource "tfjobs" in API group "{JOBS.group}"' in blocked["message"]
        assert f"add `--with cron:{namespace}`, or `--with cron` for all namespaces, to the `dlop deploy` line" in blocked["message"]
        await grant(deployed, "cron", kind=TFJob, namespace=namespace)
        await until_job_is_active(deployed.admin, namespace)
        events = (await deployed.admin.list(EVENTS, namespace=namespace))["items"]
        assert {event["regarding"]["name"] for event in events if event["reason"] == "Forbidden"} == {"nightly"}
