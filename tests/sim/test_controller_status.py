"""Status writes: one per pass, never over a concurrent change, and none at rest."""

from __future__ import annotations

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, OperatorEnv, operator_env, ring, settle

CONFLICT: JsonObject = {"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "the object has been modified"}


async def succeed(env: OperatorEnv) -> None:
    await settle()
    await env.set_pod_phases("Running")
    await settle()
    await env.set_pod_phases("Succeeded")
    await settle()


@virtual_time
async def test_a_successful_job_takes_at_most_four_status_writes() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await succeed(env)
        assert "Succeeded" in await env.conditions()
        assert len(env.writes(method="PATCH", plural="ringjobs")) <= 4


@virtual_time
async def test_a_finished_job_causes_no_writes() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await succeed(env)
        env.clear_requests()
        await settle(24 * 3600)
        assert env.writes() == []


@virtual_time
async def test_a_running_job_causes_no_writes_at_rest() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        env.clear_requests()
        await settle(24 * 3600)
        assert env.writes() == []


@virtual_time
async def test_an_operator_that_starts_with_finished_jobs_writes_nothing() -> None:
    async with operator_env() as env:
        async with env.run_operator():
            await env.submit(ring())
            await succeed(env)
        env.clear_requests()
        async with env.run_operator(identity="two"):
            await settle(3600)
        assert env.writes() == []


@virtual_time
async def test_a_status_write_with_a_conflict_is_retried() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_before(CONFLICT, match=RequestMatch(verb="patch", plural="ringjobs"), times=3)
        await env.submit(ring())
        await succeed(env)
        assert "Succeeded" in await env.conditions()


@virtual_time
async def test_a_status_write_whose_response_is_lost_is_retried() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_after(None, match=RequestMatch(verb="patch", plural="ringjobs"), times=2)
        await env.submit(ring())
        await succeed(env)
        assert "Succeeded" in await env.conditions()
        assert env.create_count("pods") == 3


@virtual_time
async def test_a_status_write_based_on_a_stale_job_is_rejected_and_retried() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        hold = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        await env.client.patch(RING_JOBS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}, namespace=NAMESPACE)
        await env.set_pod_phases("Running")
        await settle(3)
        assert "Running" not in await env.conditions()
        hold.release()
        await settle(60)
        assert "Running" in await env.conditions()
        assert len(await env.pods()) == 2


@virtual_time
async def test_a_finished_job_is_deleted_after_its_ttl() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(run_policy={"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "None"}))
        await succeed(env)
        await settle(3500)
        assert (await env.client.list(RING_JOBS, namespace=NAMESPACE))["items"] != []
        await settle(200)
        assert (await env.client.list(RING_JOBS, namespace=NAMESPACE))["items"] == []
        assert await env.pods() == []


@virtual_time
async def test_a_job_causes_few_events_and_each_once() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=100))
        await succeed(env)
        await settle(60)
        reasons = await env.event_reasons()
        assert sum(reasons.values()) <= 6
        assert all(count == 1 for count in reasons.values())


@virtual_time
async def test_a_finished_job_has_no_in_process_state() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        await env.submit(ring())
        await succeed(env)
        await settle(60)
        assert operator.tracked_jobs == 0


@virtual_time
async def test_changes_of_many_pods_are_debounced() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=300))
        await settle()
        env.clear_requests()
        for name in await env.pod_names():
            await env.set_pod_phase("Running", name)
            await settle(0.01)
        await settle()
        assert len(env.writes(plural="ringjobs")) <= 10
        assert "Running" in await env.conditions()


@virtual_time
async def test_the_last_pod_to_run_or_to_succeed_is_reported_at_once() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=3))
        await settle()
        for phase in ("Running", "Succeeded"):
            await env.set_pod_phases(phase)
            await settle(0.1)
            assert phase in await env.conditions()


@virtual_time
async def test_pods_that_start_one_by_one_are_reported_together() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=3))
        await settle()
        env.clear_requests()
        for name in await env.pod_names():
            await env.set_pod_phase("Running", name)
            await settle(0.6)
        assert len(env.writes(method="PATCH", plural="ringjobs")) == 1
        assert "Running" in await env.conditions()


@virtual_time
async def test_pods_that_succeed_one_by_one_are_reported_in_batches_and_the_last_one_at_once() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=4))
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        env.clear_requests()
        for name in await env.pod_names():
            await env.set_pod_phase("Succeeded", name)
            await settle(0.7)
        assert "Succeeded" in await env.conditions()
        assert len(env.writes(method="PATCH", plural="ringjobs")) == 3
