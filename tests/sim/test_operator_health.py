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
async def test_an_operator_stays_healthy_during_an_outage_of_the_api_server_and_continues_afterwards() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        env.faults.fail_before(None, match=RequestMatch(), times=1_000_000)
        env.faults.drop_watches()
        for _ in range(12):
            await settle(LIMIT_SECONDS)
            assert is_healthy(operator)
        assert "cannot list or watch pods: GET /api/v1/pods: the connection was closed" in operator.sync_errors()
        env.faults.clear()
        await settle(2)
        assert operator.sync_errors() == []
        await env.submit(ring())
        await settle(1)
        assert len(await env.pods()) == 3


@virtual_time
async def test_an_operator_that_starts_during_an_outage_of_the_api_server_stays_healthy() -> None:
    async with operator_env() as env:
        env.faults.fail_before(None, match=RequestMatch(), times=1_000_000)
        operator = Operator(Settings(leader_election=False), [RingJob], transport=env.transport, clock=env.clock)
        running = asyncio.create_task(operator.run())
        for _ in range(12):
            await settle(LIMIT_SECONDS)
            assert is_healthy(operator)
        env.faults.clear()
        await settle(3)
        assert check_readiness(operator).ok
        running.cancel()
        await asyncio.wait((running,))


@virtual_time
async def test_an_operator_stays_healthy_if_the_api_server_sends_no_bookmarks() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        env.faults.hold_watches()
        for _ in range(24):
            await settle(DAY_SECONDS / 24)
            assert is_healthy(operator)


@virtual_time
async def test_an_operator_whose_watch_task_has_ended_is_unhealthy() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        await settle(60)
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "informer of pods")
        task.cancel()
        await settle(LIMIT_SECONDS)
        assert is_healthy(operator), "the last watch may have been idle until now"
        await settle(200)
        result = check_health(operator, watch_age_limit_seconds=LIMIT_SECONDS)
        assert (result.ok, result.message) == (False, "informers stuck: pods")


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
