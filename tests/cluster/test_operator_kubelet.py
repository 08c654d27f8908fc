"""The scripted kubelet has the same effect on the embedded and on the real API server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable

from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import NAMESPACES, PODS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.script import Script

NAMES = ("succeeds", "fails", "restarts", "evicted", "preempted", "image", "init", "full", "lost")


def build_script() -> Script:
    script = Script()
    script.when("succeeds").run().succeed()
    script.when("fails").run().fail(137)
    script.when("restarts").run().restart_in_place(2).succeed()
    script.when("evicted").run().evict()
    script.when("preempted").run().preempt()
    script.when("image").image_pull_error()
    script.when("init").fail_init("prepare", message="no disk")
    script.when("full").unschedulable()
    script.when("lost").run().lose_node(deleted_after_seconds=1)
    return script


def settled(pods: dict[str, JsonObject]) -> bool:
    """Whether the script has finished for every pod."""
    phases = {name: pods[name]["status"]["phase"] for name in pods}
    waiting = [bool(pods.get(name, {}).get("status", {}).get("conditions")) for name in ("image", "full")]
    finished = all(phases.get(name) in ("Succeeded", "Failed") for name in ("succeeds", "fails", "restarts", "evicted", "init"))
    return finished and all(waiting) and "preempted" not in phases and "deletionTimestamp" in pods["lost"]["metadata"]


def comparable(pod: JsonObject) -> JsonObject:
    """The status of a pod without the parts that differ between servers."""
    status = pod["status"]
    containers = [
        (next(iter(container["state"])), container["restartCount"], container["state"].get("terminated", {}).get("exitCode"))
        for container in status.get("containerStatuses", ())
    ]
    conditions = sorted((condition["type"], condition["status"], condition.get("reason")) for condition in status.get("conditions", ()))
    deleted = "deletionTimestamp" in pod["metadata"]
    return {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "containers": containers,
        "conditions": conditions,
        "deleted": deleted,
    }


async def run_script(client: Client, namespace: str) -> dict[str, JsonObject]:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    async with ScriptedKubelet(client, build_script(), namespace=namespace, time_scale=0.02):
        for name in NAMES:
            spec = {"restartPolicy": "OnFailure" if name == "restarts" else "Never", "containers": [{"name": "main", "image": "i"}]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            await client.create(PODS, body, namespace=namespace)
        return await until(client, namespace, settled)


async def until(client: Client, namespace: str, reached: Callable[[dict[str, JsonObject]], bool]) -> dict[str, JsonObject]:
    async with asyncio.timeout(30):
        while True:
            listed = await client.list(PODS, namespace=namespace)
            pods = {pod["metadata"]["name"]: pod for pod in listed["items"]}
            if reached(pods):
                return pods
            await asyncio.sleep(0.05)


async def test_a_script_has_the_same_result_on_both_servers(real_cluster: RealCluster) -> None:
    namespace = f"kubelet-{uuid.uuid4().hex[:8]}"
    async with EmbeddedCluster() as embedded:
        embedded_pods = await run_script(embedded.client(), namespace)
    client = Client(await connect(real_cluster.kubeconfig_path))
    try:
        real_pods = await run_script(client, namespace)
        await client.delete(NAMESPACES, namespace)
        await client.delete(PODS, "lost", namespace=namespace, grace_seconds=0)
    finally:
        await client.close()
    assert {name: comparable(pod) for name, pod in embedded_pods.items()} == {name: comparable(pod) for name, pod in real_pods.items()}
