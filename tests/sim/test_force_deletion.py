"""Pods on lost nodes are force-deleted only if the operator sees that the node is down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from dlop.api.types import ForceDeletion, Options
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import NODES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, OperatorEnv, operator_env, ring, settle

FORBIDDEN: JsonObject = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "forbidden"}
OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}

BringDown = Callable[[OperatorEnv], Awaitable[None]]


async def create_node(env: OperatorEnv) -> None:
    await env.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}})


async def set_ready(env: OperatorEnv, status: str) -> None:
    ready = {"type": "Ready", "status": status, "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    await env.client.patch(NODES, "node", {"status": {"conditions": [ready]}}, subresource="status")


async def set_out_of_service(env: OperatorEnv) -> None:
    await env.client.patch(NODES, "node", {"spec": {"taints": [OUT_OF_SERVICE]}})


async def remove_node(env: OperatorEnv) -> None:
    await env.client.delete(NODES, "node")


async def stop_kubelet(env: OperatorEnv) -> None:
    await set_ready(env, "Unknown")


@asynccontextmanager
async def terminating_pod(mode: ForceDeletion, *, nodes_forbidden: bool = False) -> AsyncIterator[tuple[OperatorEnv, str]]:
    """A pod that was just deleted, on a node that is ready and never confirms the deletion. Yields its uid."""
    async with operator_env() as env:
        await create_node(env)
        await set_ready(env, "True")
        if nodes_forbidden:
            env.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="nodes", verb="list"), times=100_000)
            env.faults.fail_before(FORBIDDEN, match=RequestMatch(plural="nodes", verb="watch"), times=100_000)
        async with env.run_operator(options=Options(force_deletion=mode)):
            await env.submit(ring(workers=1))
            await settle()
            await env.bind("ring-worker-0")
            await env.set_pod_phases("Running")
            await settle()
            uid = await pod_uid(env)
            await env.client.delete(PODS, "ring-worker-0", namespace=NAMESPACE)
            await settle()
            yield env, uid


@asynccontextmanager
async def overdue_pod(mode: ForceDeletion, *, nodes_forbidden: bool = False) -> AsyncIterator[tuple[OperatorEnv, str]]:
    """A pod that was deleted ten minutes ago and still exists, on a node that is ready. Yields its uid."""
    async with terminating_pod(mode, nodes_forbidden=nodes_forbidden) as (env, uid):
        await settle(600)
        yield env, uid


async def pod_uid(env: OperatorEnv) -> str:
    return str((await env.client.get(PODS, "ring-worker-0", namespace=NAMESPACE))["metadata"]["uid"])


@pytest.mark.parametrize(
    ("bring_down", "seen"),
    [
        (stop_kubelet, "node node is not ready (NodeStatusUnknown: Kubelet stopped posting node status.)"),
        (set_out_of_service, "node node has the taint node.kubernetes.io/out-of-service"),
        (remove_node, "node node no longer exists"),
    ],
    ids=["not ready", "out of service", "gone"],
)
def test_an_overdue_pod_is_replaced_as_soon_as_its_node_goes_down(bring_down: BringDown, seen: str) -> None:
    @virtual_time
    async def check() -> None:
        async with overdue_pod(ForceDeletion.NODE_DOWN) as (env, uid):
            assert await pod_uid(env) == uid
            assert (await env.conditions())["Blocked"]["reason"] == "Terminating"
            await bring_down(env)
            await settle(5)
            assert await pod_uid(env) != uid
            assert f"Force-deleted 1 pod (ring-worker-0): {seen}" in [event["note"] for event in await env.events()]

    check()


@pytest.mark.parametrize(
    ("mode", "nodes_forbidden"),
    [(ForceDeletion.NEVER, False), (ForceDeletion.NODE_DOWN, True)],
    ids=["never", "nodes cannot be read"],
)
def test_an_overdue_pod_is_kept_if_force_deletion_is_off_or_nodes_cannot_be_read(mode: ForceDeletion, *, nodes_forbidden: bool) -> None:
    @virtual_time
    async def check() -> None:
        async with overdue_pod(mode, nodes_forbidden=nodes_forbidden) as (env, uid):
            await remove_node(env)
            await settle(600)
            assert await pod_uid(env) == uid
            assert (await env.conditions())["Blocked"]["reason"] == "Terminating"

    check()


@virtual_time
async def test_an_operator_that_gets_access_to_nodes_later_uses_it() -> None:
    async with overdue_pod(ForceDeletion.NODE_DOWN, nodes_forbidden=True) as (env, uid):
        await remove_node(env)
        env.faults.clear()
        await settle(300)
        assert await pod_uid(env) != uid


@pytest.mark.parametrize("bring_down", [stop_kubelet, remove_node], ids=["not ready", "gone"])
def test_an_overdue_pod_is_kept_if_its_node_is_up_and_the_node_cache_is_stale(bring_down: BringDown) -> None:
    @virtual_time
    async def check() -> None:
        async with terminating_pod(ForceDeletion.NODE_DOWN) as (env, uid):
            await bring_down(env)
            await settle(1)
            env.faults.hold_watches(match=RequestMatch(plural="nodes"))
            if bring_down is remove_node:
                await create_node(env)
            await set_ready(env, "True")
            env.clear_requests()
            await settle(600)
            assert await pod_uid(env) == uid
            assert env.writes(method="DELETE", plural="pods") == []
            await stop_kubelet(env)
            await settle(130)
            assert await pod_uid(env) != uid

    check()
