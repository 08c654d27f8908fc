"""How soon the operator reacts to a change of a pod. The embedded cluster answers without delay, so all delays are the operator's."""

from __future__ import annotations

import asyncio

import pytest

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import PODS
from dlop.kube.transport import Request, Response
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import RING_JOBS, OperatorEnv, RecordingTransport, operator_env, ring, settle

AT_ONCE_SECONDS = 0.001


def restartable_ring(*, workers: int = 3) -> JsonObject:
    job = ring(workers=workers)
    job["spec"]["replicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
    return job


async def uids(env: OperatorEnv) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await env.pods()}


async def run_job(env: OperatorEnv, *, workers: int = 3) -> dict[str, str]:
    """Submit a job and run its pods. Returns their UIDs."""
    await env.submit(restartable_ring(workers=workers))
    await settle()
    await env.set_pod_phases("Running")
    await settle()
    env.clear_requests()
    return await uids(env)


@virtual_time
async def test_a_failed_pod_is_recorded_deleted_and_replaced_at_once() -> None:
    async with operator_env() as env, env.run_operator():
        before = await run_job(env)
        await env.set_pod_phase("Failed", "ring-worker-1", exit_code=137)
        await asyncio.sleep(AT_ONCE_SECONDS)
        changed = {name for name, uid in (await uids(env)).items() if before[name] != uid}
        assert changed == {"ring-worker-1"}
        assert [write.method for write in env.writes()] == ["PATCH", "DELETE", "POST", "PATCH"]
        assert (await env.status())["dlop"]["restarts"] == {"Worker": 1}
        await settle()
        assert len(env.writes()) == 4


@virtual_time
async def test_a_failed_pod_is_replaced_before_the_watches_show_the_writes() -> None:
    async with operator_env() as env, env.run_operator():
        before = await run_job(env)
        held = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        await env.set_pod_phase("Failed", "ring-worker-1", exit_code=137)
        await asyncio.sleep(AT_ONCE_SECONDS)
        assert (await uids(env))["ring-worker-1"] != before["ring-worker-1"]
        held.release()
        await settle()
        assert len(env.writes(method="POST", plural="pods")) == 1


@virtual_time
async def test_failures_shortly_after_the_first_one_are_handled_together() -> None:
    async with operator_env() as env, env.run_operator():
        before = await run_job(env)
        for name in before:
            await env.set_pod_phase("Failed", name, exit_code=137)
            await asyncio.sleep(2 * AT_ONCE_SECONDS)
        await settle()
        assert set((await uids(env)).values()).isdisjoint(before.values())
        assert (await env.status())["dlop"]["restarts"] == {"Worker": 3}
        # Two statuses for the first failure, and two for the others together.
        assert len(env.writes(method="PATCH", plural="ringjobs")) == 4


@pytest.mark.parametrize(("workers", "reactions"), [(4, 4), (300, 2)], ids=["small job", "large job"])
def test_failures_of_a_larger_job_are_handled_together_for_longer(workers: int, reactions: int) -> None:
    @virtual_time
    async def check() -> None:
        async with operator_env() as env, env.run_operator():
            await run_job(env, workers=workers)
            for index in range(4):
                await env.set_pod_phase("Failed", f"ring-worker-{index}", exit_code=137)
                await asyncio.sleep(0.025)
            await settle()
            assert (await env.status())["dlop"]["restarts"] == {"Worker": 4}
            assert len(env.writes(method="PATCH", plural="ringjobs")) == 2 * reactions

    check()


@virtual_time
async def test_a_pod_with_a_sidecar_is_replaced_at_once_when_its_main_container_fails() -> None:
    async with operator_env() as env, env.run_operator():
        before = await run_job(env)
        main = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {"terminated": {"exitCode": 137}}}
        await env.client.patch(
            PODS, "ring-worker-1", {"status": {"phase": "Running", "containerStatuses": [main]}}, namespace="default", subresource="status"
        )
        await asyncio.sleep(AT_ONCE_SECONDS)
        assert (await uids(env))["ring-worker-1"] != before["ring-worker-1"]


@virtual_time
async def test_a_job_is_running_as_soon_as_its_last_pod_runs() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.set_pod_phases("Running")
        await asyncio.sleep(AT_ONCE_SECONDS)
        assert "Running" in await env.conditions()


@virtual_time
async def test_a_job_has_succeeded_as_soon_as_its_last_pod_has() -> None:
    async with operator_env() as env, env.run_operator():
        await run_job(env)
        await env.set_pod_phases("Succeeded")
        await asyncio.sleep(AT_ONCE_SECONDS)
        assert "Succeeded" in await env.conditions()


@virtual_time
async def test_a_new_operator_reacts_as_soon_as_the_one_before() -> None:
    async with operator_env() as env:
        async with env.run_operator():
            await run_job(env)
        async with env.run_operator(identity="two"):
            await settle()
            await env.set_pod_phases("Succeeded")
            await asyncio.sleep(AT_ONCE_SECONDS)
            assert "Succeeded" in await env.conditions()


class HoldingTransport(RecordingTransport):
    """Before a status is written, it stops the watches of jobs."""

    def __init__(self, env: OperatorEnv) -> None:
        super().__init__(env.cluster.transport())
        self._faults = env.faults
        self.is_active = False

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        if self.is_active and request.path.endswith("/status"):
            self._faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        return await super().send(request, timeout_seconds=timeout_seconds)


@virtual_time
async def test_the_pods_of_a_suspended_job_are_deleted_before_the_watches_show_the_status() -> None:
    async with operator_env() as env:
        transport = HoldingTransport(env)
        async with env.run_operator(transport=transport):
            await run_job(env)
            transport.is_active = True
            await env.client.patch(RING_JOBS, "ring", {"spec": {"runPolicy": {"suspend": True}}}, namespace="default")
            await asyncio.sleep(AT_ONCE_SECONDS)
            assert await env.pod_names() == []
            assert "Suspended" in await env.conditions()
