"""A new leader whose job cache is behind the records of the leader before it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import PODS
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, operator_env, ring, settle


@virtual_time
async def test_a_new_leader_with_a_stale_job_cache_counts_a_lost_pod_before_it_replaces_it() -> None:
    async with operator_env() as env, AsyncExitStack() as first:
        await first.enter_async_context(env.run_operator(identity="one", leader_election=True))
        await settle(5)
        async with env.run_operator(identity="two", leader_election=True) as second:
            await env.submit(ring())
            await settle(5)
            held = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
            await env.set_pod_phases("Running")
            await settle(5)
            assert (await env.status())["dlop"]["startedIndexes"] == {"Worker": "0-2"}
            await first.aclose()
            await env.client.delete(PODS, "ring-worker-0", namespace=NAMESPACE, grace_seconds=0)
            await settle(60)
            assert second.is_leading
            assert await env.pod_names() == ["ring-worker-1", "ring-worker-2"]
            held.release()
            await settle(5)
            assert len(await env.pods()) == 3
            assert (await env.status())["dlop"]["disruptions"] == {"Worker": 1}


@virtual_time
async def test_pods_of_a_deleted_job_are_not_created_again_and_again_while_the_job_cache_is_stale() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle(5)
        assert len(await env.pods()) == 3
        held = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        env.clear_requests()
        await env.client.delete(RING_JOBS, "ring", namespace=NAMESPACE)
        await settle(120)
        assert [write for write in env.writes() if write.method == "POST" and write.path.endswith("/pods")] == []
        held.release()
        await settle(60)
        assert await env.pods() == []
