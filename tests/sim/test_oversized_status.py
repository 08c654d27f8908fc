"""A status that the API server rejects as too large becomes a condition and is not retried endlessly."""

from __future__ import annotations

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import RING_JOBS, OperatorEnv, operator_env, ring, settle

# kube-apiserver passes on the error of etcd without a reason.
TOO_LARGE: JsonObject = {"kind": "Status", "status": "Failure", "code": 500, "message": "etcdserver: request is too large"}
STATUS = RequestMatch(verb="patch", plural="ringjobs")
ALWAYS = 1_000_000


async def run_job(env: OperatorEnv) -> None:
    await env.submit(ring())
    await settle()
    await env.set_pod_phases("Running")
    await settle()
    env.clear_requests()


@virtual_time
async def test_a_status_that_is_too_large_is_reported_in_a_smaller_one() -> None:
    async with operator_env() as env, env.run_operator():
        await run_job(env)
        env.faults.fail_before(TOO_LARGE, match=STATUS)
        await env.set_pod_phase("Succeeded", "ring-worker-0")
        await settle(10)
        blocked = (await env.conditions())["Blocked"]
        assert blocked["reason"] == "FailedUpdate"
        assert "request is too large" in blocked["message"]
        assert (await env.event_reasons())["FailedUpdate"] == 1
        assert len(await env.pods()) == 3
        await settle(130)
        assert "Blocked" not in await env.conditions()
        assert (await env.status())["dlop"]["completedIndexes"] == {"Worker": "0"}


@virtual_time
async def test_an_edit_of_the_spec_is_tried_at_once() -> None:
    async with operator_env() as env, env.run_operator():
        await run_job(env)
        env.faults.fail_before(TOO_LARGE, match=STATUS)
        await env.set_pod_phase("Succeeded", "ring-worker-0")
        await settle(10)
        await env.client.patch(RING_JOBS, "ring", {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 5}}}, namespace="default")
        await settle(1)
        assert "Blocked" not in await env.conditions()


@virtual_time
async def test_an_object_without_room_for_any_status_causes_an_event_and_few_requests() -> None:
    async with operator_env() as env, env.run_operator():
        await run_job(env)
        env.faults.fail_before(TOO_LARGE, match=STATUS, times=ALWAYS)
        await env.set_pod_phase("Succeeded", "ring-worker-0")
        await settle(600)
        assert "FailedUpdate" in await env.event_reasons()
        assert len(env.writes(method="PATCH", plural="ringjobs")) <= 12
        env.faults.clear()
        await settle(130)
        assert (await env.status())["dlop"]["completedIndexes"] == {"Worker": "0"}
