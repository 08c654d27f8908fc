"""Leader election: how a lease is taken, kept, handed over and lost."""

from __future__ import annotations

import asyncio
import random

import pytest

from dlop.kube.client import Client
from dlop.kube.errors import NotLeaderError
from dlop.kube.leader_election import LeadershipLostError
from dlop.kube.resources import LEASES
from dlop.testing.virtual_time import virtual_time
from tests.toy_server import Cut, Fault, ToyServer, following, names, settle
from tests.unit.kube.lease_server import LeaseServer, Wire, elector, forever, now, stop, wire_to

# --- getting and keeping it ---------------------------------------------------------------------------------------------


@virtual_time
async def test_a_free_lease_is_taken_at_once_and_says_who_when_and_for_how_long() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
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
    async with elector(wire_to(server), "a").leading():
        server.requests.clear()
        await asyncio.sleep(60.5)
        assert server.requests == [(2.0 * number, "PUT") for number in range(1, 31)]


@virtual_time
async def test_the_result_of_what_was_led_comes_back_and_the_lease_is_released() -> None:
    server = LeaseServer()
    a = elector(wire_to(server), "a")

    async def lead() -> str:
        assert a.is_leader()
        return "result"

    assert await a.run(lead) == "result"
    assert not a.is_leader()
    assert server.spec["holderIdentity"] == ""
    assert server.spec["leaseDurationSeconds"] == 1


@virtual_time
async def test_an_error_of_what_was_led_comes_out_as_it_is_and_the_lease_is_released() -> None:
    server = LeaseServer()

    async def lead() -> None:
        raise KeyError("bug")

    with pytest.raises(KeyError, match="bug"):
        await elector(wire_to(server), "a").run(lead)
    assert server.spec["holderIdentity"] == ""


@virtual_time
async def test_the_lease_is_renewed_while_the_led_cleans_up_and_released_only_after_it() -> None:
    server = LeaseServer()
    cleaned_up_at = 0.0

    async def lead() -> None:
        nonlocal cleaned_up_at
        try:
            await forever()
        finally:
            await asyncio.sleep(60)
            assert server.spec["holderIdentity"] == "a"
            cleaned_up_at = now()

    task = asyncio.create_task(elector(wire_to(server), "a").run(lead))
    await asyncio.sleep(5)
    await stop(task)
    assert cleaned_up_at == 65
    assert server.history[-1] == (65, "")


@virtual_time
async def test_a_released_lease_is_taken_by_a_standby_at_once() -> None:
    server = LeaseServer()
    leader = asyncio.create_task(elector(wire_to(server), "a").run(forever))
    await asyncio.sleep(0.1)
    b = elector(wire_to(server), "b")
    standby = asyncio.create_task(b.run(forever))
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
async def test_a_standby_has_warm_caches_so_that_it_leads_from_its_first_moment() -> None:
    leases, pods = LeaseServer(), ToyServer()
    leader = asyncio.create_task(elector(wire_to(leases), "a").run(forever))
    await asyncio.sleep(0.1)
    async with following(pods) as informer:
        standby = asyncio.create_task(elector(wire_to(leases), "b").run(lambda: asyncio.sleep(0, result=names(informer))))
        await asyncio.sleep(100)
        pods.put("new")
        await settle()
        pods.faults.append(Fault.REFUSED)  # not even a server that is away keeps it from knowing
        pods.cut(Cut.BROKEN)
        await stop(leader)
        assert await standby == ["new"]


@virtual_time
async def test_without_a_watch_a_released_lease_is_taken_within_the_jittered_retry_period() -> None:
    server = LeaseServer()
    leader = asyncio.create_task(elector(wire_to(server), "a").run(forever))
    await asyncio.sleep(0.1)
    wire = wire_to(server)
    wire.can_watch = False
    b = elector(wire, "b")
    standby = asyncio.create_task(b.run(forever))
    await asyncio.sleep(100)
    await stop(leader)
    await asyncio.sleep(2 * 2.2)
    assert b.is_leader()
    await stop(standby)


@virtual_time
async def test_a_standby_that_watches_sends_no_requests_while_the_leader_renews() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
        standby = asyncio.create_task(elector(wire_to(server), "b").run(forever))
        await asyncio.sleep(10)
        server.requests.clear()
        await asyncio.sleep(600)
        assert {method for _, method in server.requests} == {"PUT"}
        await stop(standby)


@pytest.mark.parametrize("can_watch", [True, False], ids=["watching", "polling"])
def test_a_dead_leader_is_replaced_after_the_lease_duration_and_not_before(can_watch: bool) -> None:
    @virtual_time
    async def check() -> None:
        server = LeaseServer()
        wire = wire_to(server)
        leader = asyncio.create_task(elector(wire, "a").run(forever))
        await asyncio.sleep(0.1)
        standby_wire = wire_to(server)
        standby_wire.can_watch = can_watch
        b = elector(standby_wire, "b")
        standby = asyncio.create_task(b.run(forever))
        await asyncio.sleep(31)
        wire.cut = True
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
async def test_a_leader_that_comes_back_with_its_own_name_goes_on_at_once() -> None:
    server = LeaseServer()
    wire = wire_to(server)
    killed = asyncio.create_task(elector(wire, "a").run(forever))
    await asyncio.sleep(5)
    wire.cut = True
    await stop(killed)
    began = now()
    async with elector(wire_to(server), "a").leading():
        assert now() == began
        assert server.spec["leaseTransitions"] == 0


# --- losing it ----------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_leader_cut_off_stops_at_the_renew_deadline_counted_from_its_last_renewal() -> None:
    server = LeaseServer()
    wire = wire_to(server)
    a = elector(wire, "a")
    ended_at: list[float] = []

    async def lead() -> None:
        try:
            await forever()
        finally:
            ended_at.append(now())

    task = asyncio.create_task(a.run(lead))
    await asyncio.sleep(21)
    wire.cut = True
    with pytest.raises(LeadershipLostError, match="ns/dlop"):
        await task
    renewed_at, _ = server.history[-1]
    assert renewed_at == 20
    assert ended_at == [pytest.approx(30)]
    assert not a.is_leader()


class SteadyRandom(random.Random):
    def random(self) -> float:
        return 0.5


@virtual_time
async def test_leadership_counts_from_when_the_renewal_was_sent_and_not_from_its_answer() -> None:
    wire = Wire(LeaseServer(), SteadyRandom(), max_delay_seconds=4)  # two seconds there and two back
    a = elector(wire, "a")
    task = asyncio.create_task(a.run(forever))
    await asyncio.sleep(8.1)  # the lease was looked for until 4 and written until 8
    assert a.is_leader()
    wire.cut = True
    await asyncio.sleep(5.8)
    assert a.is_leader()
    with pytest.raises(LeadershipLostError):
        await task
    assert now() == pytest.approx(14)


@virtual_time
async def test_requests_that_hang_do_not_keep_a_leader_leading() -> None:
    server = LeaseServer()
    wire = wire_to(server)
    a = elector(wire, "a")
    task = asyncio.create_task(a.run(forever))
    await asyncio.sleep(1)
    wire.max_delay_seconds = 10_000
    with pytest.raises(LeadershipLostError):
        await task
    assert now() == pytest.approx(10)
    for request in list(server.in_flight):
        request.cancel()


@virtual_time
async def test_leadership_survives_a_short_outage() -> None:
    server = LeaseServer()
    wire = wire_to(server)
    async with elector(wire, "a").leading():
        for _ in range(5):
            await asyncio.sleep(5)
            wire.cut = True
            await asyncio.sleep(6)
            wire.cut = False
    assert server.spec["holderIdentity"] == ""


@virtual_time
async def test_a_lease_that_somebody_else_holds_is_lost_at_the_next_look() -> None:
    server = LeaseServer()
    a = elector(wire_to(server), "a")
    task = asyncio.create_task(a.run(forever))
    await asyncio.sleep(5)
    server.edit({**server.spec, "holderIdentity": "thief", "leaseTransitions": 7})
    with pytest.raises(LeadershipLostError, match="thief"):
        await task
    assert now() == 6
    assert server.spec["holderIdentity"] == "thief"


@virtual_time
async def test_what_was_led_must_end_before_the_loss_is_reported() -> None:
    server = LeaseServer()
    wire = wire_to(server)

    async def lead() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(100)

    task = asyncio.create_task(elector(wire, "a").run(lead))
    await asyncio.sleep(1)
    wire.cut = True
    with pytest.raises(LeadershipLostError):
        await task
    assert now() == pytest.approx(110)


@virtual_time
async def test_a_guarded_client_holds_back_writes_without_leadership() -> None:
    server = LeaseServer()
    a = elector(wire_to(server), "a")
    guarded = Client(wire_to(server)).guarded(a.is_leader)
    lease = {"metadata": {"name": "x"}, "spec": {}}
    with pytest.raises(NotLeaderError):
        await guarded.create(LEASES, lease, namespace="ns")
    async with a.leading():
        await guarded.create(LEASES, lease, namespace="ns")
    with pytest.raises(NotLeaderError):
        await guarded.create(LEASES, lease, namespace="ns")


@virtual_time
async def test_a_process_that_was_paused_past_the_deadline_knows_at_once_that_it_does_not_lead() -> None:
    a = elector(wire_to(LeaseServer()), "a")
    task = asyncio.create_task(a.run(forever))
    await asyncio.sleep(1)
    assert a.is_leader()
    asyncio.get_running_loop().advance(9.5)  # type: ignore[attr-defined]
    assert not a.is_leader()
    with pytest.raises(LeadershipLostError):
        await task
