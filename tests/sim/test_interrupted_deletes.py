"""A delete that the API server did not complete is retried, whoever requested it."""

from __future__ import annotations

from dlop.embedded.apiserver.store import ObjectKey
from dlop.kube.timestamps import format_time
from dlop.reconcile.deletion import RETRY_DELETE_AFTER_SECONDS
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, OperatorEnv, operator_env, ring, settle


async def uids(env: OperatorEnv) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await env.pods()}


def interrupt_delete(env: OperatorEnv, pod: str) -> None:
    """Leave a pod between the two steps of a delete without a grace period."""
    key = ObjectKey("pods", NAMESPACE, pod)
    stored = env.cluster.store.get(key)
    assert stored is not None
    deletion = {"deletionTimestamp": format_time(env.clock()), "deletionGracePeriodSeconds": 0}
    env.cluster.store.update(key, {**stored.body, "metadata": {**stored.body["metadata"], **deletion}})


@virtual_time
async def test_a_pod_that_should_be_gone_is_deleted_again_and_replaced() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        before = await uids(env)
        interrupt_delete(env, "ring-worker-0")
        await settle(RETRY_DELETE_AFTER_SECONDS - 1)
        assert await uids(env) == before
        await settle(10)
        assert len(await uids(env)) == 3
        assert len(await uids(env) - before) == 1
        assert "ForceDeletedPods" not in await env.event_reasons()


@virtual_time
async def test_a_new_operator_deletes_what_the_old_one_left() -> None:
    async with operator_env() as env:
        async with env.run_operator():
            await env.submit(ring())
            await settle()
        before = await uids(env)
        for name in await env.pod_names():
            interrupt_delete(env, name)
        await settle(60)
        async with env.run_operator():
            await settle(10)
            assert len(await uids(env)) == 3
            assert (await uids(env)).isdisjoint(before)
