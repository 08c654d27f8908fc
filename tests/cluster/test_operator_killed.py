"""The operator as a process on the real API server, killed without warning in the middle of its work: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
from pathlib import Path

from real_cluster import RealCluster

from dlop.kube.client import Client
from tests.cluster.ring_jobs import (
    JOBS,
    Watched,
    demand_nothing_lost_or_doubled,
    job_names,
    operator_process,
    place_for_jobs,
    ring_flags,
    submit,
)

WITHIN_SECONDS = 100


async def test_nothing_is_lost_or_doubled_when_the_operator_is_killed_again_and_again(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with place_for_jobs(real_cluster) as (client, namespace, watched):
        async with asyncio.timeout(WITHIN_SECONDS):
            await _live_through_two_kills(client, real_cluster, namespace, watched, tmp_path / "operator.log")
        demand_nothing_lost_or_doubled(watched)


async def _live_through_two_kills(client: Client, cluster: RealCluster, namespace: str, watched: Watched, log: Path) -> None:
    flags = ring_flags(namespace)
    async with operator_process(cluster, log, *flags):
        submitted = asyncio.create_task(submit(client, job_names(), namespace))
        await watched.until(lambda: len(watched.uids["pods"]) >= JOBS // 2)
    assert len(watched.uids["pods"]) < 2 * JOBS, "the kill came too late to be in the middle"
    await submitted
    async with operator_process(cluster, log, *flags):
        await watched.until(lambda: watched.succeeded() >= JOBS // 4)
    assert watched.succeeded() < JOBS, "the second kill came too late to be in the middle"
    async with operator_process(cluster, log, *flags):
        await watched.until(lambda: watched.succeeded() == JOBS)
