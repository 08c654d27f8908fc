"""Two operators with one lease on the real API server: the leader goes in the middle of its work, and the standby takes over.

How long nobody worked is logged and recorded. It is a figure, not a claim: the claims are about what is there in the end.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from real_cluster import RealCluster

from dlop.kube.cache import CacheChange, version_number
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import LEASES
from tests.cluster.ring_jobs import (
    JOBS,
    Watched,
    demand_nothing_lost_or_doubled,
    job_names,
    operator_process,
    place_for_jobs,
    ring_flags,
    running,
    submit,
    tail,
    until_in_step,
)

WITHIN_SECONDS = 100
_ELECTED = (
    "--leader-election=true",
    *("--lease-duration-seconds", "6"),
    *("--renew-deadline-seconds", "4"),
    *("--retry-period-seconds", "1"),
)


class Leaders:
    """Who has held the lease, in order, and the version of the lease with which each one began."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.found: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.informer = Informer(client, LEASES, CustomObject, rng=random.Random(0), namespace=namespace, handlers=[self._told])

    def _told(self, change: CacheChange[CustomObject]) -> None:
        holder = change.object.body()["spec"].get("holderIdentity", "")
        if holder:
            self.found.setdefault(holder, version_number(change.object.metadata.resource_version))
            self._changed.set()

    async def until(self, number: int) -> None:
        """Wait until so many have led."""
        while len(self.found) < number:
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def leader_and_standby(
    cluster: RealCluster, client: Client, namespace: str, logs: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Leaders]]:
    """Two operators, of which the first leads, and what is known of their lease."""
    leaders = Leaders(client, namespace)
    flags = ring_flags(namespace, *_ELECTED, "--lease-namespace", namespace)
    async with running(leaders.informer), operator_process(cluster, logs / "leader.log", *flags) as leader:
        await leaders.until(1)
        async with operator_process(cluster, logs / "standby.log", *flags):
            await until_in_step(logs / "standby.log")
            yield leader, leaders


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["asked_to_stop", "killed"])
async def test_nothing_is_lost_or_doubled_when_the_standby_takes_over_from_a_leader_that_is(
    real_cluster: RealCluster, tmp_path: Path, number: signal.Signals, record_property: Callable[[str, object], None]
) -> None:
    async with place_for_jobs(real_cluster) as (client, namespace, watched), asyncio.timeout(WITHIN_SECONDS):
        async with leader_and_standby(real_cluster, client, namespace, tmp_path) as (leader, leaders):
            gone_at = await _end_in_the_middle(leader, number, client, namespace, watched)
            await watched.until(lambda: watched.succeeded() == JOBS)
            assert leader.returncode == (0 if number is signal.SIGTERM else -signal.SIGKILL), tail(tmp_path / "leader.log")
            assert len(leaders.found) == 2
        seconds = _first_seen_under_the_second(leaders, watched) - gone_at
        record_property("handover_seconds", round(seconds, 3))
        structlog.get_logger().info("handover", after=number.name, seconds_without_an_operator=round(seconds, 3))
        demand_nothing_lost_or_doubled(watched)


async def _end_in_the_middle(
    leader: asyncio.subprocess.Process, number: signal.Signals, client: Client, namespace: str, watched: Watched
) -> float:
    """Half of the jobs come before the signal, the other half while nobody, or the next one, leads."""
    names = job_names()
    early = asyncio.create_task(submit(client, names[: JOBS // 2], namespace))
    await watched.until(lambda: len(watched.uids["pods"]) >= JOBS // 4)
    assert len(watched.uids["pods"]) < JOBS, "the signal came too late to be in the middle"
    leader.send_signal(number)
    gone_at = asyncio.get_running_loop().time()
    await submit(client, names[JOBS // 2 :], namespace)
    await early
    await leader.wait()
    return gone_at


def _first_seen_under_the_second(leaders: Leaders, watched: Watched) -> float:
    """When the first pod or service was seen that is younger than the second leader's lease: the first had no hand in it."""
    _, began = leaders.found.values()
    return min(arrival.at_seconds for arrival in watched.children if arrival.version > began)
