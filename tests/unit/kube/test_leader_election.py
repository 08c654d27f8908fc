"""Leader election: acquiring, renewing, releasing and losing a lease."""

from __future__ import annotations

import asyncio
import random

import pytest

from dlop.kube.client import Client
from dlop.kube.errors import NotLeaderError
from dlop.kube.leader_election import LeadershipLostError
from dlop.kube.resources import LEASES
from dlop.testing.virtual_time import virtual_time
from tests.fake_api_server import Cut, FakeApiServer, Fault, names, run_ready_callbacks, running_informer
from tests.unit.kube.lease_server import FaultyNetwork, LeaseServer, elector, network_to, now, run_forever, stop

# --- acquiring and renewing ---------------------------------------------------------------------------------------------


@virtual_time
async def test_a_free_lease_is_acquired_at_once_with_identity_times_and_duration() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        assert now() == 0
        assert server.spec == {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2027-01-15T08:00:00.000000Z",
            "renewTime": "2027-01-15T08:00:00.000000Z",
            "leaseTransitions": 0,
        }
        await asyncio.sleep(7)
        assert server.spec["acquireTime"] == "2027-01-15T08:00:00.000000Z"
        assert server.spec["renewTime"] == "2027-01-15T08:00:06.000000Z"


@virtual_time
async def test_a_leader_renews_with_one_put_every_retry_period_and_never_reads() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        server.requests.clear()
        await asyncio.sleep(60.5)
        assert server.requests == [(2.0 * number, "PUT") for number in range(1, 31)]


@virtual_time
async def test_the_result_of_the_body_is_returned_and_the_lease_is_released() -> None:
    server = LeaseServer()
    a = elector(network_to(server), "a")

    async def lead() -> str:
        assert a.is_leader()
        return "result"

    assert await a.run(lead) == "result"
    assert not a.is_leader()
    assert server.spec["holderIdentity"] == ""
    assert server.spec["leaseDurationSeconds"] == 1


@virtual_time
async def test_an_exception_of_the_body_is_raised_unchanged_and_the_lease_is_released() -> None:
    server = LeaseServer()

    async def lead() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        await elector(network_to(server), "a").run(lead)
    assert server.spec["holderIdentity"] == ""


@virtual_time
async def test_the_lease_is_renewed_during_cleanup_and_released_afterwards() -> None:
    server = LeaseServer()
    cleaned_up_at = 0.0

    async def lead() -> None:
        nonlocal cleaned_up_at
        try:
            await run_forever()
        finally:
            await asyncio.sleep(60)
            assert server.spec["holderIdentity"] == "a"
            cleaned_up_at = now()

    task = asyncio.create_task(elector(network_to(server), "a").run(lead))
    await asyncio.sleep(5)
    await stop(task)
    assert cleaned_up_at == 65
    assert server.history[-1] == (65, "")


@virtual_time
async def test_a_released_lease_is_acquired_by_a_standby_at_once() -> None:
    server = LeaseServer()
    leader = asyncio.create_task(elector(network_to(server), "a").run(run_forever))
    await asyncio.sleep(0.1)
    b = elector(network_to(server), "b")
    standby = asyncio.create_task(b.run(run_forever))
    await asyncio.sleep(100)
    assert not b.is_leader()
    assert b.leader == "a"
    await stop(leader)
    released_at = now()
    await asyncio.sleep(0.001)
    assert b.is_leader()
    assert now() - released_at < 0.01
    assert server.spec["leaseTransitions"] == 1
    await stop(standby)


@virtual_time
async def test_a_standby_has_synced_caches_when_it_becomes_leader() -> None:
    leases, pods = LeaseServer(), FakeApiServer()
    leader = asyncio.create_task(elector(network_to(leases), "a").run(run_forever))
    await asyncio.sleep(0.1)
    async with running_informer(pods) as informer:
        standby = asyncio.create_task(elector(network_to(leases), "b").run(lambda: asyncio.sleep(0, result=names(informer))))
        await asyncio.sleep(100)
        pods.put("new")
        await run_ready_callbacks()
        pods.faults.append(Fault.REFUSED)  # the cache is used even if the server is unreachable
        pods.cut(Cut.BROKEN)
        await stop(leader)
        assert await standby == ["new"]


@virtual_time
async def test_without_a_watch_a_released_lease_is_acquired_within_the_retry_period_with_jitter() -> None:
    server = LeaseServer()
    leader = asyncio.create_task(elector(network_to(server), "a").run(run_forever))
    await asyncio.sleep(0.1)
    network = network_to(server)
    network.can_watch = False
    b = elector(network, "b")
    standby = asyncio.create_task(b.run(run_forever))
    await asyncio.sleep(100)
    await stop(leader)
    await asyncio.sleep(2 * 2.2)
    assert b.is_leader()
    await stop(standby)


@virtual_time
async def test_a_watching_standby_sends_no_requests_while_the_leader_renews() -> None:
    server = LeaseServer()
    async with elector(network_to(server), "a").leading():
        standby = asyncio.create_task(elector(network_to(server), "b").run(run_forever))
        await asyncio.sleep(10)
        server.requests.clear()
        await asyncio.sleep(600)
        assert {method for _, method in server.requests} == {"PUT"}
        await stop(standby)


@pytest.mark.parametrize("can_watch", [True, False], ids=["watching", "polling"])
def test_a_dead_leader_is_replaced_after_the_lease_duration(can_watch: bool) -> None:
    @virtual_time
    async def check() -> None:
        server = LeaseServer()
        network = network_to(server)
        leader = asyncio.create_task(elector(network, "a").run(run_forever))
        await asyncio.sleep(0.1)
        standby_network = network_to(server)
        standby_network.can_watch = can_watch
        b = elector(standby_network, "b")
        standby = asyncio.create_task(b.run(run_forever))
        await asyncio.sleep(31)
        network.cut = True
        last_renewal = server.history[-1][0]
        with pytest.raises(LeadershipLostError):
            await leader
        await asyncio.sleep(60)
        took = next(when for when, holder in server.history if holder == "b") - last_renewal
        assert took >= 15
        assert took <= (15.02 if can_watch else 15 + 2 * 2 * 2.2)
        assert b.is_leader()
        await stop(standby)

    check()


@virtual_time
async def test_a_restarted_leader_with_the_same_identity_continues_at_once() -> None:
    server = LeaseServer()
    network = network_to(server)
    killed = asyncio.create_task(elector(network, "a").run(run_forever))
    await asyncio.sleep(5)
    network.cut = True
    await stop(killed)
    started_at = now()
    async with elector(network_to(server), "a").leading():
        assert now() == started_at
        assert server.spec["leaseTransitions"] == 0


# --- losing leadership --------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_disconnected_leader_stops_at_the_renew_deadline_after_its_last_renewal() -> None:
    server = LeaseServer()
    network = network_to(server)
    a = elector(network, "a")
    ended_at: list[float] = []

    async def lead() -> None:
        try:
            await run_forever()
        finally:
            ended_at.append(now())

    task = asyncio.create_task(a.run(lead))
    await asyncio.sleep(21)
    network.cut = True
    with pytest.raises(LeadershipLostError, match="ns/dlop"):
        await task
    renewed_at, _ = server.history[-1]
    assert renewed_at == 20
    assert ended_at == [pytest.approx(30)]
    assert not a.is_leader()


class ConstantRandom(random.Random):
    def random(self) -> float:
        return 0.5


@virtual_time
async def test_leadership_counts_from_when_the_renewal_was_sent() -> None:
    network = FaultyNetwork(LeaseServer(), ConstantRandom(), max_delay_seconds=4)  # two seconds in each direction
    a = elector(network, "a")
    task = asyncio.create_task(a.run(run_forever))
    await asyncio.sleep(8.1)  # the get takes until 4 and the create until 8
    assert a.is_leader()
    network.cut = True
    await asyncio.sleep(5.8)
    assert a.is_leader()
    with pytest.raises(LeadershipLostError):
        await task
    assert now() == pytest.approx(14)


@virtual_time
async def test_hanging_requests_do_not_extend_leadership() -> None:
    server = LeaseServer()
    network = network_to(server)
    a = elector(network, "a")
    task = asyncio.create_task(a.run(run_forever))
    await asyncio.sleep(1)
    network.max_delay_seconds = 10_000
    with pytest.raises(LeadershipLostError):
        await task
    assert now() == pytest.approx(10)
    for request in list(server.in_flight):
        request.cancel()


@virtual_time
async def test_leadership_survives_a_short_outage() -> None:
    server = LeaseServer()
    network = network_to(server)
    async with elector(network, "a").leading():
        for _ in range(5):
            await asyncio.sleep(5)
            network.cut = True
            await asyncio.sleep(6)
            network.cut = False
    assert server.spec["holderIdentity"] == ""


@virtual_time
async def test_leadership_is_lost_at_the_next_renewal_if_another_elector_holds_the_lease() -> None:
    server = LeaseServer()
    a = elector(network_to(server), "a")
    task = asyncio.create_task(a.run(run_forever))
    await asyncio.sleep(5)
    server.edit({**server.spec, "holderIdentity": "other", "leaseTransitions": 7})
    with pytest.raises(LeadershipLostError, match="other"):
        await task
    assert now() == 6
    assert server.spec["holderIdentity"] == "other"


@virtual_time
async def test_the_body_finishes_before_the_loss_is_raised() -> None:
    server = LeaseServer()
    network = network_to(server)

    async def lead() -> None:
        try:
            await run_forever()
        finally:
            await asyncio.sleep(100)

    task = asyncio.create_task(elector(network, "a").run(lead))
    await asyncio.sleep(1)
    network.cut = True
    with pytest.raises(LeadershipLostError):
        await task
    assert now() == pytest.approx(110)


@virtual_time
async def test_a_guarded_client_rejects_writes_without_leadership() -> None:
    server = LeaseServer()
    a = elector(network_to(server), "a")
    guarded = Client(network_to(server)).guarded(a.is_leader)
    lease = {"metadata": {"name": "x"}, "spec": {}}
    with pytest.raises(NotLeaderError):
        await guarded.create(LEASES, lease, namespace="ns")
    async with a.leading():
        await guarded.create(LEASES, lease, namespace="ns")
    with pytest.raises(NotLeaderError):
        await guarded.create(LEASES, lease, namespace="ns")


@virtual_time
async def test_a_process_that_was_paused_past_the_deadline_is_not_leader() -> None:
    a = elector(network_to(LeaseServer()), "a")
    task = asyncio.create_task(a.run(run_forever))
    await asyncio.sleep(1)
    assert a.is_leader()
    asyncio.get_running_loop().advance(9.5)  # type: ignore[attr-defined]
    assert not a.is_leader()
    with pytest.raises(LeadershipLostError):
        await task
