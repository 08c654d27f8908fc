"""A delete that the API server did not complete is retried, whoever requested it."""

from __future__ import annotations

from dlop.controller.slow_start import INITIAL_BATCH_SIZE
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.embedded.apiserver.store import ObjectKey
from dlop.kube.timestamps import format_time
from dlop.kube.types import JsonObject
from dlop.reconcile.deletion import RETRY_DELETE_AFTER_SECONDS
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, OperatorEnv, operator_env, ring, settle

UNAVAILABLE: JsonObject = {"kind": "Status", "status": "Failure", "code": 503, "reason": "ServiceUnavailable", "message": "unavailable"}


async def uids(env: OperatorEnv) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await env.pods()}


def interrupt_delete(env: OperatorEnv, pod: str) -> None:
    """Leave a pod between the two steps of a delete without a grace period."""
    update_metadata(env, pod, deletionTimestamp=format_time(env.clock()), deletionGracePeriodSeconds=0)


def update_metadata(env: OperatorEnv, pod: str, **fields: object) -> None:
    key = ObjectKey("pods", NAMESPACE, pod)
    stored = env.cluster.store.get(key)
    assert stored is not None
    env.cluster.store.update(key, {**stored.body, "metadata": {**stored.body["metadata"], **fields}})


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


@virtual_time
async def test_a_delete_that_fails_is_retried_with_back_off() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        before = await uids(env)
        env.faults.fail_before(UNAVAILABLE, match=RequestMatch(verb="delete", plural="pods"), times=1_000_000)
        interrupt_delete(env, "ring-worker-0")
        await settle(600)
        assert 5 <= len(env.writes(method="DELETE", plural="pods")) <= 30
        env.faults.clear()
        await settle(130)
        assert len(await uids(env) - before) == 1


@virtual_time
async def test_a_job_is_reconciled_while_finalizers_keep_pods_whose_deletes_were_retried() -> None:
    """A delete of a pod that has got a finalizer in the meantime changes nothing, so that no watch event follows."""
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=20))
        await settle()
        for name in await env.pod_names():
            interrupt_delete(env, name)
        env.faults.delay(1, match=RequestMatch(verb="delete", plural="pods"), times=INITIAL_BATCH_SIZE)
        await settle(RETRY_DELETE_AFTER_SECONDS + 0.5)
        for name in await env.pod_names():
            update_metadata(env, name, finalizers=["example.org/keep"])
        await settle(10)
        assert len(await env.pods()) == 20
        await env.client.patch(RING_JOBS, "ring", {"spec": {"runPolicy": {"suspend": True}}}, namespace=NAMESPACE)
        await settle(10)
        assert "Suspended" in await env.conditions()
