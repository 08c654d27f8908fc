"""Health and readiness of an operator, with and without contact with the API server."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.operator.health import check_health, check_readiness
from dlop.operator.operator import Operator
from dlop.operator.settings import Settings
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import operator_env, ring, settle
from tests.sim.ring_job import RingJob

LIMIT_SECONDS = Settings().watch_age_limit_seconds
DAY_SECONDS = 86_400


def is_healthy(operator: Operator) -> bool:
    return check_health(operator, watch_age_limit_seconds=LIMIT_SECONDS).ok


@virtual_time
async def test_an_operator_in_an_idle_cluster_stays_healthy() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        for _ in range(24):
            await settle(DAY_SECONDS / 24)
            assert is_healthy(operator)
        assert check_readiness(operator).message == "ok: leader"


@virtual_time
async def test_an_operator_without_contact_to_the_api_server_is_unhealthy_and_reports_the_cause() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        await env.submit(ring())
        await settle()
        env.faults.fail_before(None, match=RequestMatch(), times=1_000_000)
        env.faults.drop_watches()
        await settle(LIMIT_SECONDS - 60)
        assert is_healthy(operator)
        await settle(120)
        result = check_health(operator, watch_age_limit_seconds=LIMIT_SECONDS)
        assert not result.ok
        assert result.message.startswith("no contact with the API server for 6")
        assert "cannot list or watch pods: " in result.message
        env.faults.clear()
        await settle(120)
        assert is_healthy(operator)


@virtual_time
async def test_an_operator_with_unsynced_caches_is_not_ready_and_reports_the_cause() -> None:
    async with operator_env() as env:
        env.faults.fail_before(None, match=RequestMatch(plural="pods"), times=1_000_000)
        operator = Operator(Settings(leader_election=False), [RingJob], transport=env.transport, clock=env.clock)
        running = asyncio.create_task(operator.run())
        await settle(10)
        result = check_readiness(operator)
        assert not result.ok
        assert result.message.startswith("caches not synced\n")
        assert "pods" in result.message
        env.faults.clear()
        await settle(60)
        assert check_readiness(operator).ok
        running.cancel()
        await asyncio.wait((running,))


@virtual_time
async def test_a_standby_is_ready() -> None:
    async with operator_env() as env, env.run_operator(leader_election=True):
        await settle(1)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await settle(30)
            assert check_readiness(second).message == "ok: standby"
            assert is_healthy(second)
