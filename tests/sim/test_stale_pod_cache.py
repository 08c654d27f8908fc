"""Decisions with a pod cache that does not show yet that a pod has finished."""

from __future__ import annotations

import pytest

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, OperatorEnv, operator_env, ring, settle


async def set_suspend(env: OperatorEnv, suspend: bool) -> None:
    await env.client.patch(RING_JOBS, "ring", {"spec": {"runPolicy": {"suspend": suspend}}}, namespace=NAMESPACE)


@pytest.mark.parametrize("held_seconds", [0.1, 60])
@virtual_time
async def test_a_replica_that_finishes_while_its_job_is_suspended_does_not_run_again(held_seconds: float) -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        held = env.faults.hold_watches(match=RequestMatch(plural="pods"))
        await env.set_pod_phase("Succeeded", "ring-worker-0")
        await set_suspend(env, True)
        await settle(held_seconds)
        assert "Suspended" in await env.conditions()
        held.release()
        await settle(130)
        assert await env.pod_names() == []
        assert (await env.status())["dlop"]["completedIndexes"] == {"Worker": "0"}
        await set_suspend(env, False)
        await settle()
        assert await env.pod_names() == ["ring-worker-1", "ring-worker-2"]


@virtual_time
async def test_a_rejected_replacement_is_retried_even_if_the_pod_cache_shows_the_old_pod_terminating() -> None:
    """The deletion of a finished pod is two events: the API server sets a deletionTimestamp, and then removes the pod."""
    async with operator_env() as env, env.run_operator():
        job = ring()
        job["spec"]["replicaSpecs"]["Worker"]["restartPolicy"] = "ExitCode"
        await env.submit(job)
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        held = env.faults.hold_watches(match=RequestMatch(plural="pods"))
        rejection = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "invalid"}
        env.faults.fail_before(rejection, match=RequestMatch(verb="create", plural="pods"))
        await env.set_pod_phase("Failed", "ring-worker-0", exit_code=137)
        for _ in range(3):
            held.send_next()
            await settle(7)
        held.release()
        await settle(10)
        assert await env.pod_names() == ["ring-worker-0", "ring-worker-1", "ring-worker-2"]
