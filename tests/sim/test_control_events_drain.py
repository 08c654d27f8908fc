"""An operator that is told to stop says what it still has to say: for a short while, and while it still leads."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import Match
from dlop.operator.operator import Operator
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import World, a_while, ring, world

# More than the events that may go out in one burst.
MANY = 120


async def creating(w: World, pods: int) -> None:
    """Wait until so many pods were asked for."""
    while w.creates("pods") < pods:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)


async def stopped(operator: Operator) -> float:
    """How many seconds it takes until a stopped operator works no more."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    operator.stop()
    while operator.is_working:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)
    return loop.time() - began


@virtual_time
async def test_events_that_wait_when_the_operator_is_stopped_are_sent() -> None:
    async with world() as w, w.operating(leader_election=True) as operator:
        for number in range(MANY):
            await w.submit(ring(f"ring-{number}", workers=1))
        await creating(w, MANY)
        assert len(await w.events()) < MANY
        seconds = await stopped(operator)
        assert seconds < 2.5
        await a_while()
        assert len(await w.events()) == MANY


@virtual_time
async def test_events_are_sent_before_the_lease_is_given_back() -> None:
    async with world() as w, w.operating(leader_election=True) as operator:
        w.faults.delay(0.5, match=Match(verb="create", plural="events"), times=1)
        await w.submit(ring())
        await creating(w, 3)
        await stopped(operator)
        await a_while()
        writes = [request.path.split("/")[-2 if "leases" in request.path else -1] for request in w.notes.requests if request.is_write]
        assert writes[-2:] == ["events", "leases"]
        assert len(await w.events()) == 1


@virtual_time
async def test_a_server_that_takes_no_events_holds_up_the_end_for_two_seconds_only() -> None:
    async with world() as w, w.operating(leader_election=True) as operator:
        w.faults.delay(60, match=Match(verb="create", plural="events"), times=1000)
        await w.submit(ring())
        await creating(w, 3)
        seconds = await stopped(operator)
        assert 1.9 < seconds < 2.5


@virtual_time
async def test_an_operator_with_nothing_to_say_ends_at_once() -> None:
    async with world() as w, w.operating(leader_election=True) as operator:
        await w.submit(ring())
        await a_while()
        assert await stopped(operator) < 0.1


@virtual_time
async def test_events_take_no_more_than_the_time_that_work_has_for_its_end() -> None:
    async with world() as w, w.operating(leader_election=True, drain_seconds=0.5) as operator:
        w.faults.delay(60, match=Match(verb="create", plural="events"), times=1000)
        await w.submit(ring())
        await creating(w, 3)
        assert await stopped(operator) < 0.7
