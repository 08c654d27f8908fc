"""The kubelet is an ordinary client and works with the real API server."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_cluster import RealCluster

from dlop.embedded.kubelet.kubelet import EmbeddedKubelet
from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import LEASES, NAMESPACES, NODES, SERVICE_ACCOUNTS
from tests.embedded.kubelet_cases import RUNNING, condition, config_map, main, pod, sh, terminated
from tests.embedded.node_env import FAST_TIMINGS, NodeEnv, find_mismatch, node_env

_TRAP = "trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done"


@pytest.fixture
async def env(cluster_with_nodes: RealCluster, tmp_path: Path) -> AsyncIterator[NodeEnv]:
    client = Client(await connect(cluster_with_nodes.kubeconfig_path))
    namespace = f"node-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    node = EmbeddedKubelet(
        client, runtime=(await detect_runtime()).runtime, root_dir=tmp_path, name=f"node-{uuid.uuid4().hex[:8]}", timings=FAST_TIMINGS
    )
    try:
        async with node_env(client, node, tmp_path, namespace=namespace) as env:
            yield env
    finally:
        await client.delete(NODES, node.name)
        await client.delete(NAMESPACES, namespace)
        await client.close()


async def test_the_node_is_ready_and_has_a_lease(env: NodeEnv) -> None:
    node = await env.client.get(NODES, env.node.name)
    assert not find_mismatch({"conditions": [condition("Ready", "True", reason="KubeletReady")]}, node["status"])
    assert not any(taint["key"] == "node.kubernetes.io/not-ready" for taint in node["spec"].get("taints") or ())
    lease = await env.client.get(LEASES, env.node.name, namespace="kube-node-lease")
    assert lease["spec"]["holderIdentity"] == env.node.name


async def test_a_pod_with_a_token_and_a_config_map_runs(env: NodeEnv) -> None:
    creation = config_map("words", word="hello")
    await env.create(creation.resource, creation.body)
    await env.create(SERVICE_ACCOUNTS, {"metadata": {"name": "runner"}})
    variable = {"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}}
    container = sh("test -s /it/token && echo $WORD", env=[variable], volumeMounts=[{"name": "it", "mountPath": "/it"}])
    volume = {"name": "it", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    await env.run_pod("first", pod(container, volumes=[volume], serviceAccountName="runner"))
    status = await env.wait_finished("first")
    assert not find_mismatch({"phase": "Succeeded", "podIP": re.compile("."), **main(state=terminated(0, "Completed"))}, status)
    assert env.output("first") == "hello\n"


async def test_conditions_of_a_running_pod_have_no_reason_and_message(env: NodeEnv) -> None:
    await env.run_pod("second", pod(sh(_TRAP)))
    version = await env.wait_for_status("second", {"conditions": [condition("Ready", "True")]})
    ready = next(item for item in env.history("second").versions[version]["status"]["conditions"] if item["type"] == "Ready")
    assert not ready.get("reason")
    assert not ready.get("message")


async def test_the_final_status_is_written_before_a_pod_is_deleted(env: NodeEnv) -> None:
    await env.run_pod("third", pod(sh(_TRAP)))
    await env.wait_for_status("third", main(state=RUNNING))
    await env.delete("third")
    status = await env.wait_deleted("third")
    assert not find_mismatch({"phase": "Succeeded", **main(state=terminated(0, "Completed"))}, status)


async def test_a_pod_that_does_not_fit_is_unschedulable(env: NodeEnv) -> None:
    await env.run_pod("fourth", pod(sh("exit 0", resources={"limits": {"nvidia.com/gpu": "1"}})))
    await env.wait_for_status("fourth", {"conditions": [condition("PodScheduled", "False", reason="Unschedulable")]})
    await env.wait_for_event("fourth", {"reason": "FailedScheduling"})
