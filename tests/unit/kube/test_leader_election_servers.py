"""Leader election when the server, or somebody with an editor, does strange things to the lease."""

from __future__ import annotations

import asyncio
import random

import pytest

from dlop.kube.leader_election import Elector, LeaseTiming
from dlop.testing.virtual_time import virtual_time
from tests.unit.kube.lease_server import LeaseServer, elector, forever, now, stop, wire_to


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
def test_a_lease_that_makes_no_sense_is_taken_and_put_in_order(spec: object) -> None:
    @virtual_time
    async def check() -> None:
        server = LeaseServer()
        async with elector(wire_to(server), "a").leading():
            pass
        server.edit(spec)
        async with elector(wire_to(server), "b").leading():
            assert server.spec["holderIdentity"] == "b"
            assert server.spec["leaseTransitions"] == 1
            assert server.spec["leaseDurationSeconds"] == 15
            assert server.spec["acquireTime"].startswith("2027-01-15T")

    check()


@virtual_time
async def test_a_holder_that_does_not_say_for_how_long_gets_the_usual_time() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
        pass
    server.edit({"holderIdentity": "somebody"})
    async with elector(wire_to(server), "b").leading():
        assert now() == pytest.approx(15, abs=0.01)


@virtual_time
async def test_a_lease_that_was_deleted_is_made_again_by_its_leader() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
        await asyncio.sleep(5)
        server.delete()
        await asyncio.sleep(5)
        assert server.spec["holderIdentity"] == "a"


@virtual_time
async def test_a_lease_that_was_deleted_is_made_again_by_a_standby() -> None:
    server = LeaseServer()
    wire = wire_to(server)
    leader = asyncio.create_task(elector(wire, "a").run(forever))
    await asyncio.sleep(1)
    standby = asyncio.create_task(elector(wire_to(server), "b").run(forever))
    await asyncio.sleep(1)
    wire.cut = True
    await stop(leader)
    server.delete()
    await asyncio.sleep(0.1)
    assert server.spec["holderIdentity"] == "b"
    await stop(standby)


@virtual_time
async def test_labels_and_what_else_people_put_on_the_lease_are_kept() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
        ((path, lease),) = server.leases.items()
        lease["metadata"]["labels"] = {"team": "ml"}
        server.edit({**server.spec, "strategy": "OldestEmulationVersion"})
        await asyncio.sleep(5)
        assert server.leases[path]["metadata"]["labels"] == {"team": "ml"}
        assert server.spec["strategy"] == "OldestEmulationVersion"
        assert server.spec["holderIdentity"] == "a"


@virtual_time
async def test_a_server_that_only_answers_errors_is_asked_until_it_recovers() -> None:
    server = LeaseServer()
    wire = wire_to(server, error_rate=1.0)
    a = elector(wire, "a")
    task = asyncio.create_task(a.run(forever))
    await asyncio.sleep(3600)
    assert not a.is_leader()
    wire.error_rate = 0
    await asyncio.sleep(4.5)
    assert a.is_leader()
    await stop(task)


@virtual_time
async def test_an_acquisition_whose_answer_was_lost_is_found_out_at_the_next_look() -> None:
    server = LeaseServer()
    wire = wire_to(server, lost_answer_rate=1.0)
    a = elector(wire, "a")
    task = asyncio.create_task(a.run(forever))
    await asyncio.sleep(1)
    assert server.spec["holderIdentity"] == "a"
    assert not a.is_leader()
    wire.lost_answer_rate = 0
    await asyncio.sleep(4.5)
    assert a.is_leader()
    assert server.spec["leaseTransitions"] == 0
    await stop(task)


@virtual_time
async def test_a_release_that_meets_a_conflict_is_tried_again() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
        server.edit({**server.spec, "note": "touched"})
    assert server.spec["holderIdentity"] == ""


@virtual_time
async def test_a_release_never_touches_the_lease_of_another() -> None:
    server = LeaseServer()
    async with elector(wire_to(server), "a").leading():
        server.edit({**server.spec, "holderIdentity": "b"})
    assert server.spec["holderIdentity"] == "b"


@virtual_time
async def test_new_leaders_are_reported_once_each() -> None:
    server = LeaseServer()
    leaders: list[str] = []
    observer = Elector(wire_to(server), namespace="ns", name="dlop", identity="b", rng=random.Random(0), on_new_leader=leaders.append)
    async with elector(wire_to(server), "a").leading():
        standby = asyncio.create_task(observer.run(forever))
        await asyncio.sleep(60)
    await asyncio.sleep(60)
    assert [leader for leader in leaders if leader] == ["a", "b"]
    await stop(standby)


@pytest.mark.parametrize(("duration", "deadline", "retry"), [(10, 10, 2), (15, 2.4, 2), (0, 10, 2), (15, 10, 0), (15, 16, 2)])
def test_timings_that_cannot_work_are_refused(duration: int, deadline: float, retry: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        LeaseTiming(lease_duration_seconds=duration, renew_deadline_seconds=deadline, retry_period_seconds=retry)


def test_one_hung_request_does_not_cost_the_lease() -> None:
    assert LeaseTiming().request_timeout_seconds == 5
    assert LeaseTiming(lease_duration_seconds=3, renew_deadline_seconds=1.5, retry_period_seconds=1).request_timeout_seconds == 1
