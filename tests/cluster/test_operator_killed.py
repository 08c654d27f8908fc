"""The operator as a process on the real API server, killed twice during its work."""

from __future__ import annotations

import asyncio
from pathlib import Path

from real_cluster import RealCluster

from dlop.kube.client import Client
from tests.cluster.ring_jobs import (
    JOBS,
    ObservedObjects,
    assert_nothing_lost_or_duplicated,
    job_names,
    operator_process,
    ring_flags,
    ring_namespace,
    submit,
)

TIMEOUT_SECONDS = 100


async def test_nothing_is_lost_or_duplicated_when_the_operator_is_killed_twice(real_cluster: RealCluster, tmp_path: Path) -> None:
    async with ring_namespace(real_cluster) as (client, namespace, observed):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await _run_with_two_kills(client, real_cluster, namespace, observed, tmp_path / "operator.log")
        assert_nothing_lost_or_duplicated(observed)


async def _run_with_two_kills(client: Client, cluster: RealCluster, namespace: str, observed: ObservedObjects, log: Path) -> None:
    flags = ring_flags(namespace)
    async with operator_process(cluster, log, *flags):
        submitted = asyncio.create_task(submit(client, job_names(), namespace))
        await observed.until(lambda: len(observed.uids["pods"]) >= JOBS // 2)
    assert len(observed.uids["pods"]) < 2 * JOBS, "the operator was killed too late"
    await submitted
    async with operator_process(cluster, log, *flags):
        await observed.until(lambda: observed.succeeded() >= JOBS // 4)
    assert observed.succeeded() < JOBS, "the operator was killed too late the second time"
    async with operator_process(cluster, log, *flags):
        await observed.until(lambda: observed.succeeded() == JOBS)
