"""The node is an ordinary client: the same node serves the real API server."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.embedded.kubelet.kubelet import Node
from dlop.embedded.kubelet.runtime.detect import choose
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import LEASES, NAMESPACES, NODES, SERVICE_ACCOUNTS
from tests.embedded.kubelet_cases import RUNNING, condition, config_map, ended, main, pod, sh
from tests.embedded.node_world import HURRIED, NodeWorld, difference, world_of

_TRAP = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture
async def world(real_cluster: RealCluster, tmp_path: Path) -> AsyncIterator[NodeWorld]:
    client = Client(await connect(real_cluster.kubeconfig_path))
    namespace = f"node-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    node = Node(client, runtime=(await choose()).runtime, folder=tmp_path, name=f"node-{uuid.uuid4().hex[:8]}", pace=HURRIED)
    try:
        async with world_of(client, node, tmp_path, namespace=namespace) as world:
            yield world
    finally:
        await client.delete(NODES, node.name)
        await client.delete(NAMESPACES, namespace)
        await client.close()


async def test_the_node_is_ready_and_keeps_a_lease(world: NodeWorld) -> None:
    node = await world.client.get(NODES, world.node.name)
    assert not difference({"conditions": [condition("Ready", "True", reason="KubeletReady")]}, node["status"])
    assert not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints") or ())
    lease = await world.client.get(LEASES, world.node.name, namespace="kube-node-lease")
    assert lease["spec"]["holderIdentity"] == world.node.name


async def test_a_pod_runs_to_its_end_with_a_token_and_its_inputs(world: NodeWorld) -> None:
    creation = config_map("words", word="hello")
    await world.create(creation.resource, creation.body)
    await world.create(SERVICE_ACCOUNTS, {"metadata": {"name": "runner"}})
    variable = {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}}
    container = sh("test -s /it/token && echo $WORD", env=[variable], volumeMounts=[{"name": "it", "mountPath": "/it"}])
    volume = {"name": "it", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    await world.run_pod("first", pod(container, volumes=[volume], serviceAccountName="runner"))
    status = await world.sees_the_end("first")
    assert not difference({"phase": "Succeeded", "podIP": re.compile("."), **main(state=ended(0, "Completed"))}, status)
    assert world.output("first") == "hello\n"


async def test_conditions_of_a_running_pod_lose_what_was_said_before(world: NodeWorld) -> None:
    await world.run_pod("second", pod(sh(_TRAP)))
    at = await world.sees("second", {"conditions": [condition("Ready", "True")]})
    ready = next(each for each in world.sight("second").versions[at]["status"]["conditions"] if each["type"] == "Ready")
    assert not ready.get("reason")
    assert not ready.get("message")


async def test_a_deleted_pod_tells_its_end_and_is_gone(world: NodeWorld) -> None:
    await world.run_pod("third", pod(sh(_TRAP)))
    await world.sees("third", main(state=RUNNING))
    await world.delete("third")
    status = await world.sees_it_gone("third")
    assert not difference({"phase": "Succeeded", **main(state=ended(0, "Completed"))}, status)


async def test_a_pod_that_does_not_fit_says_why(world: NodeWorld) -> None:
    await world.run_pod("fourth", pod(sh("exit 0", resources={"limits": {"nvidia.com/gpu": "1"}})))
    await world.sees("fourth", {"conditions": [condition("PodScheduled", "False", reason="Unschedulable")]})
    await world.hears("fourth", {"reason": "FailedScheduling"})
