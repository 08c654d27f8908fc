"""Leader election with malformed, edited and deleted leases, and with server errors."""

from __future__ import annotations

import asyncio
import random

import pytest

from dlop.kube.leader_election import LeaderElector, LeaseTiming
from dlop.testing.virtual_time import virtual_time
from tests.unit.kube.lease_server import LeaseServer, elector, network_to, now, run_forever, stop


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "text",
        {},
        {"holderIdentity": None},
        {"holderIdentity": 7, "leaseDurationSeconds": "long", "leaseTransitions": [], "acquireTime": 3},
        {"holderIdentity": "", "leaseTransitions": -4},
    ],
)
def test_a_malformed_lease_is_acquired_and_repaired(spec: object) -> None:
    @virtual_time
    async def check() -> None:
        server = LeaseServer()
        async with elector(network_to(server), "a").leading():
            pass
        server.edit(spec)
        async with elector(network_to(server), "b").leading():
            assert server.spec["holderIdentity"] == "b"
            assert server.spec["leaseTransitions"] == 1
            assert server.spec["leaseDurationSeconds"] == 15
            assert server.spec["acquireTime"].startswith("2027-01-15T")

    check()


@virtual_time
async def test_a_lease_without_a_duration_expires_after_the_default_duration() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        pass
    server.edit({"holderIdentity": "other"})
    async with elector(network_to(server), "b").leading():
        assert now() == pytest.approx(15, abs=0.01)


@virtual_time
async def test_a_deleted_lease_is_recreated_by_its_leader() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        await asyncio.sleep(5)
        server.delete()
        await asyncio.sleep(5)
        assert server.spec["holderIdentity"] == "a"


@virtual_time
async def test_a_deleted_lease_is_recreated_by_a_standby() -> None:
    server = LeaseServer()
    network = network_to(server)
    leader = asyncio.create_task(elector(network, "a").run(run_forever))
    await asyncio.sleep(1)
    standby = asyncio.create_task(elector(network_to(server), "b").run(run_forever))
    await asyncio.sleep(1)
    network.cut = True
    await stop(leader)
    server.delete()
    await asyncio.sleep(0.1)
    assert server.spec["holderIdentity"] == "b"
    await stop(standby)


@virtual_time
async def test_labels_and_unknown_fields_of_the_lease_are_kept() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        ((path, lease),) = server.leases.items()
        lease["metadata"]["labels"] = {"team": "ml"}
        server.edit({**server.spec, "strategy": "OldestEmulationVersion"})
        await asyncio.sleep(5)
        assert server.leases[path]["metadata"]["labels"] == {"team": "ml"}
        assert server.spec["strategy"] == "OldestEmulationVersion"
        assert server.spec["holderIdentity"] == "a"


@virtual_time
async def test_server_errors_are_retried_until_the_server_recovers() -> None:
    server = LeaseServer()
    network = network_to(server, error_rate=1.0)
    a = elector(network, "a")
    task = asyncio.create_task(a.run(run_forever))
    await asyncio.sleep(3600)
    assert not a.is_leader()
    network.error_rate = 0
    await asyncio.sleep(4.5)
    assert a.is_leader()
    await stop(task)


@virtual_time
async def test_an_acquisition_with_a_lost_response_is_detected_by_the_next_attempt() -> None:
    server = LeaseServer()
    network = network_to(server, lost_response_rate=1.0)
    a = elector(network, "a")
    task = asyncio.create_task(a.run(run_forever))
    await asyncio.sleep(1)
    assert server.spec["holderIdentity"] == "a"
    assert not a.is_leader()
    network.lost_response_rate = 0
    await asyncio.sleep(4.5)
    assert a.is_leader()
    assert server.spec["leaseTransitions"] == 0
    await stop(task)


@virtual_time
async def test_a_release_is_retried_after_a_conflict() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        server.edit({**server.spec, "note": "touched"})
    assert server.spec["holderIdentity"] == ""


@virtual_time
async def test_a_release_does_not_change_the_lease_of_another_holder() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        server.edit({**server.spec, "holderIdentity": "b"})
    assert server.spec["holderIdentity"] == "b"


@virtual_time
async def test_new_leaders_are_reported_once_each() -> None:
    server = LeaseServer()
    leaders: list[str] = []
    observer = LeaderElector(
        network_to(server), namespace="ns", name="dlop", identity="b", rng=random.Random(0), on_new_leader=leaders.append
    )
    async with elector(network_to(server), "a").leading():
        standby = asyncio.create_task(observer.run(run_forever))
        await asyncio.sleep(60)
    await asyncio.sleep(60)
    assert [leader for leader in leaders if leader] == ["a", "b"]
    await stop(standby)


@pytest.mark.parametrize(("duration", "deadline", "retry"), [(10, 10, 2), (15, 2.4, 2), (0, 10, 2), (15, 10, 0), (15, 16, 2)])
def test_invalid_timings_are_rejected(duration: int, deadline: float, retry: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        LeaseTiming(lease_duration_seconds=duration, renew_deadline_seconds=deadline, retry_period_seconds=retry)


def test_one_hanging_request_does_not_lose_the_lease() -> None:
    assert LeaseTiming().request_timeout_seconds == 5
    assert LeaseTiming(lease_duration_seconds=3, renew_deadline_seconds=1.5, retry_period_seconds=1).request_timeout_seconds == 1
