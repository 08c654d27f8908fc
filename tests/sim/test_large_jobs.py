"""Large jobs are planned in a thread, one at a time, and do not block the event loop.

These tests run on a real event loop, because a loop with virtual time has no threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

from dlop.api.spec import RoleSpec
from dlop.job import DLJob
from dlop.kube.resources import PODS, Resource
from dlop.kube.types import JsonObject
from dlop.policies.naming import Naming
from tests.sim.operator_env import NAMESPACE, RING_JOBS, OperatorEnv, operator_env, ring
from tests.sim.ring_job import RingJob

TIMEOUT_SECONDS = 30.0
LARGE = 1_000


class Gate:
    """Stops the planning of large jobs until it is opened."""

    def __init__(self) -> None:
        self.entered: list[str] = []
        """The names of the jobs whose planning has started."""
        self.has_entered = threading.Event()
        self._is_open = threading.Event()

    def enter(self, job: str) -> None:
        if job not in self.entered:
            self.entered.append(job)
        self.has_entered.set()
        assert self._is_open.wait(TIMEOUT_SECONDS), "planning blocks the event loop"

    def open(self) -> None:
        self._is_open.set()


class GatedNaming(Naming[DLJob]):
    gate: Gate

    def pod_name(self, job: DLJob, role: RoleSpec, index: int) -> str:
        if role.replicas >= LARGE:
            self.gate.enter(job.metadata.name)
        return super().pod_name(job, role, index)


class GatedJob(RingJob):
    job_type = RingJob.job_type
    naming = GatedNaming()


@pytest.fixture
def gate() -> Iterator[Gate]:
    GatedNaming.gate = gate = Gate()
    yield gate
    gate.open()


def suspended_ring(name: str) -> JsonObject:
    """A large job without pods, so that only its planning takes time."""
    return ring(name, workers=LARGE, run_policy={"suspend": True})


async def wait_for_phase(env: OperatorEnv, job: str, phase: str) -> None:
    def is_reached(event: JsonObject) -> bool:
        return (event["metadata"].get("name"), event.get("status", {}).get("dlop", {}).get("phase")) == (job, phase)

    await wait_for_event(env, RING_JOBS, is_reached)


async def wait_for_pods(env: OperatorEnv, count: int) -> None:
    names: set[str] = set()

    def is_reached(event: JsonObject) -> bool:
        names.add(event["metadata"].get("name", ""))
        return len(names - {""}) == count

    await wait_for_event(env, PODS, is_reached)


async def wait_for_event(env: OperatorEnv, resource: Resource, is_reached: Callable[[JsonObject], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS), env.client.watch(resource, namespace=NAMESPACE, send_initial_events=True) as events:
        async for event in events:
            if is_reached(event.decode()):
                return


async def test_other_jobs_are_reconciled_while_a_large_job_is_planned(gate: Gate) -> None:
    async with operator_env() as env, env.run_operator(job_class=GatedJob):
        await env.submit(suspended_ring("large"))
        await env.submit(ring("small", workers=2))
        await wait_for_pods(env, 2)
        assert (gate.entered, await env.status("large")) == (["large"], {})
        gate.open()
        await wait_for_phase(env, "large", "Suspended")


async def test_large_jobs_are_planned_one_at_a_time(gate: Gate) -> None:
    async with operator_env() as env, env.run_operator(job_class=GatedJob):
        for name in ("large-0", "large-1"):
            await env.submit(suspended_ring(name))
        await env.submit(ring("small", workers=2))
        await wait_for_pods(env, 2)
        assert len(gate.entered) == 1
        gate.open()
        for name in ("large-0", "large-1"):
            await wait_for_phase(env, name, "Suspended")


async def test_an_operator_that_is_stopped_does_not_wait_for_the_plan_of_a_large_job(gate: Gate) -> None:
    async with operator_env() as env:
        async with env.run_operator(job_class=GatedJob):
            await env.submit(suspended_ring("large"))
            assert await asyncio.to_thread(gate.has_entered.wait, TIMEOUT_SECONDS)
        assert await env.status("large") == {}
        gate.open()
