"""Two operators with leader election on the real API server: the leader stops during its work, and the standby takes over.

The time without a leader is logged and recorded, but not asserted.
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

from dlop.kube.cache import CacheChange, parse_resource_version
from dlop.kube.client import Client
from dlop.kube.informer import Informer
from dlop.kube.objects import CustomObject
from dlop.kube.resources import LEASES
from tests.cluster.ring_jobs import (
    JOBS,
    ObservedObjects,
    assert_nothing_lost_or_duplicated,
    job_names,
    operator_process,
    ring_flags,
    ring_namespace,
    run_informers,
    submit,
    tail,
    wait_until_synced,
)

TIMEOUT_SECONDS = 100
_LEADER_ELECTION_FLAGS = (
    "--leader-election=true",
    *("--lease-duration-seconds", "6"),
    *("--renew-deadline-seconds", "4"),
    *("--retry-period-seconds", "1"),
)


class Leaders:
    """The holders of the lease in order, each with the resource version of the lease when it became the leader."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.first_versions: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.informer = Informer(client, LEASES, CustomObject, rng=random.Random(0), namespace=namespace, handlers=[self._on_change])

    def _on_change(self, change: CacheChange[CustomObject]) -> None:
        holder = change.object.body()["spec"].get("holderIdentity", "")
        if holder:
            self.first_versions.setdefault(holder, parse_resource_version(change.object.metadata.resource_version))
            self._changed.set()

    async def until(self, number: int) -> None:
        """Wait until the lease has had this number of holders."""
        while len(self.first_versions) < number:
            self._changed.clear()
            await self._changed.wait()


@asynccontextmanager
async def leader_and_standby(
    cluster: RealCluster, client: Client, namespace: str, logs: Path
) -> AsyncIterator[tuple[asyncio.subprocess.Process, Leaders]]:
    """Run two operators. Yields the process of the leader, and the history of the lease."""
    leaders = Leaders(client, namespace)
    flags = ring_flags(namespace, *_LEADER_ELECTION_FLAGS, "--lease-namespace", namespace)
    async with run_informers(leaders.informer), operator_process(cluster, logs / "leader.log", *flags) as leader:
        await leaders.until(1)
        async with operator_process(cluster, logs / "standby.log", *flags):
            await wait_until_synced(logs / "standby.log")
            yield leader, leaders


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["terminated", "killed"])
async def test_nothing_is_lost_or_duplicated_when_the_standby_takes_over_from_a_leader_that_is(
    real_cluster: RealCluster, tmp_path: Path, number: signal.Signals, record_property: Callable[[str, object], None]
) -> None:
    async with ring_namespace(real_cluster) as (client, namespace, observed), asyncio.timeout(TIMEOUT_SECONDS):
        async with leader_and_standby(real_cluster, client, namespace, tmp_path) as (leader, leaders):
            signalled_at = await _signal_leader_during_work(leader, number, client, namespace, observed)
            await observed.until(lambda: observed.succeeded() == JOBS)
            assert leader.returncode == (0 if number is signal.SIGTERM else -signal.SIGKILL), tail(tmp_path / "leader.log")
            assert len(leaders.first_versions) == 2
        seconds = _first_child_of_second_leader(leaders, observed) - signalled_at
        record_property("handover_seconds", round(seconds, 3))
        structlog.get_logger().info("handover", after=number.name, seconds_without_an_operator=round(seconds, 3))
        assert_nothing_lost_or_duplicated(observed)


async def _signal_leader_during_work(
    leader: asyncio.subprocess.Process, number: signal.Signals, client: Client, namespace: str, observed: ObservedObjects
) -> float:
    """Submit half of the jobs before the signal, and the other half after it. Returns the time of the signal."""
    names = job_names()
    early = asyncio.create_task(submit(client, names[: JOBS // 2], namespace))
    await observed.until(lambda: len(observed.uids["pods"]) >= JOBS // 4)
    assert len(observed.uids["pods"]) < JOBS, "the signal was sent too late"
    leader.send_signal(number)
    signalled_at = asyncio.get_running_loop().time()
    await submit(client, names[JOBS // 2 :], namespace)
    await early
    await leader.wait()
    return signalled_at


def _first_child_of_second_leader(leaders: Leaders, observed: ObservedObjects) -> float:
    """The time when the first pod or service was observed that is newer than the lease of the second leader."""
    _, lease_version = leaders.first_versions.values()
    return min(arrival.at_seconds for arrival in observed.children if arrival.resource_version > lease_version)
