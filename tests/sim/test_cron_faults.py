"""Each job of a Cron is created once, whatever happens to the operator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from dlop.api.cron import CRONS
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.transport import Request
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import Crash, Rejected, ResponseLost, SideEffect, WriteFault
from dlop.testing.virtual_time import virtual_time
from tests.sim.cron_env import MINUTE, RINGS, cron, cron_env, cron_kit, job_names, status_of, submit
from tests.sim.operator_env import NAMESPACE, settle

LEADING = Settings.model_validate({"leader_election": True, "bind_address": "off"})
EXPECTED = [2 * MINUTE, 4 * MINUTE, 6 * MINUTE]


@dataclass
class NthWrite:
    """Selects a fault for one of the writes that the controller of Crons sends."""

    number: int
    fault: WriteFault
    seen: int = 0

    def __call__(self, _: int, request: Request) -> WriteFault | None:
        is_own = CRONS.plural in request.path or (RINGS.plural in request.path and request.method in ("POST", "DELETE"))
        self.seen += is_own
        return self.fault if is_own and self.seen == self.number else None


async def run_three_times(*, policy: str, selected: NthWrite) -> tuple[list[float], int]:
    """Run a Cron with a fault of one write. Returns the times of the jobs, and how many ran at once."""
    async with cron_kit(operator=False, pod_seconds=30) as (kit, jobs):
        operator = await kit.start_operator()
        operator.transport.inject_faults_by(selected)
        await submit(kit, cron("@every 2m", concurrencyPolicy=policy))
        for _ in range(15):
            await settle(MINUTE / 2)
            if operator.transport.disconnected.is_set() and kit.operator is operator:
                await operator.crash()
                await settle(5)
                await kit.start_operator()
        return jobs.times, jobs.most_at_once


def run_with_each_fault(*, policy: str, fault: WriteFault) -> Iterator[tuple[int, list[float], int]]:
    """For each write of the run: its number, the times of the jobs, and how many ran at once."""
    for number in itertools.count(1):
        selected = NthWrite(number, fault)
        times, most_at_once = _run(run_three_times, policy=policy, selected=selected)
        if selected.seen < number:
            assert number > 10
            return
        yield number, times, most_at_once


@pytest.mark.parametrize("policy", ["Allow", "Forbid", "Replace"])
def test_a_cron_creates_each_job_once_although_the_operator_crashes_after_any_write(policy: str) -> None:
    for number, times, _ in run_with_each_fault(policy=policy, fault=Crash()):
        assert times == EXPECTED, f"crash after write {number}"


@pytest.mark.parametrize("fault", [ResponseLost(), Rejected(409), Rejected(429), Rejected(500)], ids=str)
def test_a_cron_creates_each_job_once_although_any_write_fails(fault: WriteFault) -> None:
    for number, times, most_at_once in run_with_each_fault(policy="Forbid", fault=fault):
        assert (times, most_at_once) == (EXPECTED, 1), f"fault of write {number}"


def _run(work: Callable[..., Any], **arguments: Any) -> Any:
    @virtual_time
    async def run() -> Any:
        return await work(**arguments)

    return run()


@virtual_time
async def test_two_operators_create_each_job_once_when_the_leader_fails_at_the_scheduled_time() -> None:
    async with cron_kit(operator=False) as (kit, jobs):
        first = await kit.start_operator(settings=LEADING)
        await settle(30)
        await kit.start_operator(settings=LEADING)
        start = kit.clock() - jobs.start
        await submit(kit, cron())
        await settle(9 * MINUTE)
        # The leader creates the job, cannot write the status, and loses the lease.
        first.transport.inject_faults_by(lambda _, request: Rejected(500) if "crons" in request.path else None)
        await settle(2 * MINUTE)
        await first.crash()
        await settle(25 * MINUTE)
        assert jobs.times == [start + 10 * MINUTE, start + 20 * MINUTE, start + 30 * MINUTE]
        assert len((await status_of(kit))["history"]) == 3


@virtual_time
async def test_a_new_leader_with_stale_caches_creates_no_second_job() -> None:
    async with cron_env() as env, AsyncExitStack() as first:
        await first.enter_async_context(env.run_operator(identity="one", leader_election=True))
        await settle(5)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await submit(env, cron(concurrencyPolicy="Forbid"))
            await settle(5)
            held = [env.faults.hold_watches(match=RequestMatch(plural=plural)) for plural in ("ringjobs", "crons")]
            await settle(10 * MINUTE)
            [name] = await job_names(env)
            # Its job may have been deleted, so its name proves nothing.
            await env.client.delete(RINGS, name, namespace=NAMESPACE)
            await first.aclose()
            await settle(2 * MINUTE)
            assert second.is_leading
            assert await job_names(env) == []
            for hold in held:
                hold.release()
            await settle(9 * MINUTE)
            assert len(await job_names(env)) == 1


@virtual_time
async def test_forbid_holds_although_the_new_leader_does_not_see_the_job_that_runs() -> None:
    async with cron_env() as env, AsyncExitStack() as first:
        await first.enter_async_context(env.run_operator(identity="one", leader_election=True))
        await settle(5)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await submit(env, cron("@every 1m", concurrencyPolicy="Forbid"))
            await settle(50)
            held = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
            statuses = env.faults.fail_before(None, match=RequestMatch(verb="patch", plural="crons"), times=1_000_000)
            await settle(15)
            assert await status_of(env) == {}
            # The next job is due before there is a new leader, so the name of the job that runs is not tried again.
            leases = env.faults.fail_before(None, match=RequestMatch(plural="leases"), times=1_000_000)
            await first.aclose()
            statuses.times = 0
            await settle(MINUTE)
            leases.times = 0
            await settle(15)
            assert second.is_leading
            assert len(await job_names(env)) == 1
            held.release()
            await settle(MINUTE)
            assert len(await job_names(env)) == 1


@virtual_time
async def test_an_edit_between_the_creation_of_the_job_and_the_status_write_changes_nothing() -> None:
    async with cron_kit(operator=False) as (kit, jobs):
        operator = await kit.start_operator()
        await submit(kit, cron())
        await settle(9 * MINUTE)
        label = {"metadata": {"labels": {"edited": "yes"}}}
        change = SideEffect(lambda: kit.start_soon(lambda: kit.client.patch(CRONS, "nightly", label, namespace=NAMESPACE)))
        operator.transport.inject_faults_by(lambda _, request: change if request.method == "POST" and "ringjobs" in request.path else None)
        await settle(26 * MINUTE)
        assert jobs.times == [10 * MINUTE, 20 * MINUTE, 30 * MINUTE]
