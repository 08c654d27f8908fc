"""What the probes say of an operator, in good times and in bad ones."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import Match
from dlop.operator.health import health, readiness
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import RingJob, a_while, ring, world

LIMIT_SECONDS = Settings().watch_age_limit_seconds
A_DAY_SECONDS = 86_400


def is_healthy(operator: Operator) -> bool:
    return health(operator, watch_age_limit_seconds=LIMIT_SECONDS).is_well


@virtual_time
async def test_an_operator_in_a_cluster_where_nothing_happens_stays_healthy() -> None:
    async with world() as w, w.operating() as operator:
        for _ in range(24):
            await a_while(A_DAY_SECONDS / 24)
            assert is_healthy(operator)
        assert readiness(operator).text == "ok: leads"


@virtual_time
async def test_an_operator_that_hears_nothing_of_the_server_for_too_long_says_since_when_and_why() -> None:
    async with world() as w, w.operating() as operator:
        await w.submit(ring())
        await a_while()
        w.faults.fail_before(None, match=Match(), times=1_000_000)
        w.faults.drop_watches()
        await a_while(LIMIT_SECONDS - 60)
        assert is_healthy(operator)
        await a_while(120)
        answer = health(operator, watch_age_limit_seconds=LIMIT_SECONDS)
        assert not answer.is_well
        assert answer.text.startswith("the API server was last heard of 6")
        assert "pods cannot be followed: " in answer.text
        w.faults.clear()
        await a_while(120)
        assert is_healthy(operator)


@virtual_time
async def test_an_operator_whose_caches_are_not_complete_is_not_ready_and_says_why() -> None:
    async with world() as w:
        w.faults.fail_before(None, match=Match(plural="pods"), times=1_000_000)
        operator = Operator(Settings(leader_election=False), [RingJob], transport=w.notes, clock=w.clock)
        running = asyncio.create_task(operator.run())
        await a_while(10)
        answer = readiness(operator)
        assert not answer.is_well
        assert answer.text.startswith("the caches are not complete\n")
        assert "pods" in answer.text
        w.faults.clear()
        await a_while(60)
        assert readiness(operator).is_well
        running.cancel()
        await asyncio.wait((running,))


@virtual_time
async def test_a_standby_is_ready_too() -> None:
    async with world() as w, w.operating(leader_election=True):
        await a_while(1)
        async with w.operating(identity="two", leader_election=True) as second:
            await a_while(30)
            assert readiness(second).text == "ok: stands by"
            assert is_healthy(second)
