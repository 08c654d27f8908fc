"""Leader election on the real API server: acquisition, renewal, release, handover, and a killed leader."""

from __future__ import annotations

import asyncio
import random
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from real_cluster import RealCluster

from dlop.kube.client import Client
from dlop.kube.http.transport import HttpTransport, connect
from dlop.kube.leader_election import LeaderElector, LeadershipLostError, LeaseTiming
from dlop.kube.resources import LEASES

TIMING = LeaseTiming(lease_duration_seconds=3, renew_deadline_seconds=2, retry_period_seconds=0.5)

# A process that leads until it is killed. Arguments: the kubeconfig and the name of the lease.
LEADER = """
import asyncio, random, sys
from dlop.kube.http.transport import connect
from dlop.kube.leader_election import LeaderElector, LeaseTiming

async def lead():
    print("leading", flush=True)
    await asyncio.Event().wait()

async def main():
    timing = LeaseTiming(lease_duration_seconds=3, renew_deadline_seconds=2, retry_period_seconds=0.5)
    elector = LeaderElector(
        await connect(sys.argv[1]), namespace="default", name=sys.argv[2], identity="victim", rng=random.Random(), timing=timing
    )
    await elector.run(lead)

asyncio.run(main())
"""


@asynccontextmanager
async def connected(cluster: RealCluster) -> AsyncIterator[HttpTransport]:
    transport = await connect(cluster.kubeconfig_path)
    try:
        yield transport
    finally:
        await transport.close()


@pytest.fixture
def lease() -> str:
    return f"lease-{uuid.uuid4().hex[:8]}"


def elector(transport: HttpTransport, lease: str, identity: str, *, timing: LeaseTiming = TIMING) -> LeaderElector:
    return LeaderElector(transport, namespace="default", name=lease, identity=identity, rng=random.Random(0), timing=timing)


async def start(elector: LeaderElector) -> tuple[asyncio.Task[None], asyncio.Event]:
    """The elector's task, and an event that is set when it leads."""
    leads = asyncio.Event()

    async def lead() -> None:
        leads.set()
        await asyncio.Event().wait()

    return asyncio.create_task(elector.run(lead)), leads


async def stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_the_lease_is_acquired_renewed_and_released(real_cluster: RealCluster, lease: str) -> None:
    async with connected(real_cluster) as transport:
        client = Client(transport)
        async with elector(transport, lease, "a").leading():
            acquired = await client.get(LEASES, lease, namespace="default")
            await asyncio.sleep(1.2)
            renewed = await client.get(LEASES, lease, namespace="default")
        released = await client.get(LEASES, lease, namespace="default")
    assert acquired["spec"]["holderIdentity"] == "a"
    assert acquired["spec"]["leaseDurationSeconds"] == 3
    assert renewed["spec"]["acquireTime"] == acquired["spec"]["acquireTime"]
    assert renewed["spec"]["renewTime"] > acquired["spec"]["renewTime"]
    assert released["spec"]["holderIdentity"] == ""
    assert released["spec"]["leaseTransitions"] == 0


async def test_a_standby_acquires_a_released_lease_at_once(real_cluster: RealCluster, lease: str) -> None:
    async with connected(real_cluster) as one, connected(real_cluster) as other:
        timing = LeaseTiming(lease_duration_seconds=18, renew_deadline_seconds=14, retry_period_seconds=8)
        a, b = elector(one, lease, "a", timing=timing), elector(other, lease, "b", timing=timing)
        first, a_leads = await start(a)
        await a_leads.wait()
        second, b_leads = await start(b)
        await asyncio.sleep(1)
        assert a.is_leader()
        assert not b.is_leader()
        await stop(first)
        released_at = time.monotonic()
        await b_leads.wait()
        assert time.monotonic() - released_at < timing.retry_period_seconds / 2
        assert not a.is_leader()
        current = await Client(other).get(LEASES, lease, namespace="default")
        assert current["spec"]["holderIdentity"] == "b"
        assert current["spec"]["leaseTransitions"] == 1
        await stop(second)


async def test_a_killed_leader_is_replaced_when_its_lease_expires(real_cluster: RealCluster, lease: str) -> None:
    victim = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LEADER, str(real_cluster.kubeconfig_path), lease, stdout=asyncio.subprocess.PIPE
    )
    async with connected(real_cluster) as transport:
        try:
            assert victim.stdout is not None
            async for line in victim.stdout:
                if line.strip() == b"leading":
                    break
            b = elector(transport, lease, "b")
            task, b_leads = await start(b)
            await asyncio.sleep(1)
            assert b.leader == "victim"
            killed_at = time.monotonic()
        finally:
            victim.kill()
            await victim.wait()
        await b_leads.wait()
        seconds = time.monotonic() - killed_at
        # The last renewal of a leader is not older than the renew deadline.
        assert seconds >= TIMING.lease_duration_seconds - TIMING.renew_deadline_seconds
        assert seconds <= 3 * TIMING.lease_duration_seconds
        await stop(task)


async def test_a_leader_whose_lease_was_taken_stops_leading(real_cluster: RealCluster, lease: str) -> None:
    async with connected(real_cluster) as transport:
        client = Client(transport)
        a = elector(transport, lease, "a")
        task, a_leads = await start(a)
        await a_leads.wait()
        await client.patch(LEASES, lease, {"spec": {"holderIdentity": "thief"}}, namespace="default")
        with pytest.raises(LeadershipLostError, match="thief"):
            await task
        assert not a.is_leader()
        current = await client.get(LEASES, lease, namespace="default")
        assert current["spec"]["holderIdentity"] == "thief"
