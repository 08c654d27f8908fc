"""A stopping operator sends its queued events for a short time, before it releases the lease."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.operator.operator import Operator
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import OperatorEnv, operator_env, ring, settle

# More than one burst of events.
JOBS = 120


async def wait_for_creates(env: OperatorEnv, pods: int) -> None:
    while env.create_count("pods") < pods:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)


async def stop(operator: Operator) -> float:
    """Stop an operator. Returns how many seconds that took."""
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    operator.stop()
    while operator.is_leading:  # noqa: ASYNC110 - time is virtual
        await asyncio.sleep(0.01)
    return loop.time() - started_at


@virtual_time
async def test_queued_events_are_sent_when_the_operator_is_stopped() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as operator:
        for number in range(JOBS):
            await env.submit(ring(f"ring-{number}", workers=1))
        await wait_for_creates(env, JOBS)
        assert len(await env.events()) < JOBS
        seconds = await stop(operator)
        assert seconds < 2.5
        await settle()
        assert len(await env.events()) == JOBS


@virtual_time
async def test_events_are_sent_before_the_lease_is_released() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as operator:
        env.faults.delay(0.5, match=RequestMatch(verb="create", plural="events"), times=1)
        await env.submit(ring())
        await wait_for_creates(env, 3)
        await stop(operator)
        await settle()
        writes = [request.path.split("/")[-2 if "leases" in request.path else -1] for request in env.transport.requests if request.is_write]
        assert writes[-2:] == ["events", "leases"]
        assert len(await env.events()) == 1


@virtual_time
async def test_slow_event_requests_delay_the_stop_by_two_seconds_at_most() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as operator:
        env.faults.delay(60, match=RequestMatch(verb="create", plural="events"), times=1000)
        await env.submit(ring())
        await wait_for_creates(env, 3)
        seconds = await stop(operator)
        assert 1.9 < seconds < 2.5


@virtual_time
async def test_an_operator_without_queued_events_stops_at_once() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True) as operator:
        await env.submit(ring())
        await settle()
        assert await stop(operator) < 0.1


@virtual_time
async def test_sending_events_does_not_exceed_the_drain_timeout() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True, drain_seconds=0.5) as operator:
        env.faults.delay(60, match=RequestMatch(verb="create", plural="events"), times=1000)
        await env.submit(ring())
        await wait_for_creates(env, 3)
        assert await stop(operator) < 0.7
