"""Replays recordings on the embedded and on the real API server."""

from __future__ import annotations

import functools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.http.transport import connect
from dlop.testing.virtual_time import LoopClock, run
from tests.frameworks.golden_checker import Report
from tests.frameworks.golden_recordings import Golden, framework_of
from tests.frameworks.golden_replay import replay
from tests.frameworks.golden_sandbox import REAL_SERVER, VIRTUAL_TIME, GoldenSandbox, Timeouts, open_golden_sandbox


@asynccontextmanager
async def embedded_sandbox(golden: Golden, timeouts: Timeouts = VIRTUAL_TIME) -> AsyncIterator[tuple[EmbeddedCluster, GoldenSandbox]]:
    clock = LoopClock()
    async with (
        EmbeddedCluster(clock=clock) as cluster,
        open_golden_sandbox(cluster.transport(), framework_of(golden), clock=clock, timeouts=timeouts) as sandbox,
    ):
        yield cluster, sandbox


async def replay_embedded(golden: Golden) -> Report:
    async with embedded_sandbox(golden) as (_, sandbox):
        return await replay(golden, sandbox)


async def replay_real(golden: Golden, cluster: RealCluster) -> Report:
    transport = await connect(str(cluster.kubeconfig_path))
    try:
        async with open_golden_sandbox(transport, framework_of(golden), clock=time.time, timeouts=REAL_SERVER) as sandbox:
            return await replay(golden, sandbox)
    finally:
        await transport.close()


@functools.cache
def embedded_report(name: str) -> Report:
    """The report of a replay on the embedded API server."""
    return run(replay_embedded(Golden.read(name)))
