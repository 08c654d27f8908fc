"""The scripted kubelet does the same to pods on the embedded server and on the real one."""

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
from dlop.testing.kubelet import Kubelet
from dlop.testing.script import Script

NAMES = ("succeeds", "fails", "restarts", "evicted", "preempted", "image", "full", "lost")


def script() -> Script:
    made = Script()
    made.when("succeeds").run().succeed()
    made.when("fails").run().fail(137)
    made.when("restarts").run().restart_in_place(2).succeed()
    made.when("evicted").run().evict()
    made.when("preempted").run().preempt()
    made.when("image").image_pull_error()
    made.when("full").unschedulable()
    made.when("lost").run().lose_node(deleted_after_seconds=1)
    return made


def settled(pods: dict[str, JsonObject]) -> bool:
    """Whether the script has come to its end for every pod."""
    phases = {name: pods[name]["status"]["phase"] for name in pods}
    waiting = [bool(pods.get(name, {}).get("status", {}).get("conditions")) for name in ("image", "full")]
    ended = all(phases.get(name) in ("Succeeded", "Failed") for name in ("succeeds", "fails", "restarts", "evicted"))
    return ended and all(waiting) and "preempted" not in phases and "deletionTimestamp" in pods["lost"]["metadata"]


def told(pod: JsonObject) -> JsonObject:
    """What a pod shows of its life, without what differs from server to server."""
    status = pod["status"]
    containers = [
        (next(iter(found["state"])), found["restartCount"], found["state"].get("terminated", {}).get("exitCode"))
        for found in status.get("containerStatuses", ())
    ]
    conditions = sorted((found["type"], found["status"], found.get("reason")) for found in status.get("conditions", ()))
    deleted = "deletionTimestamp" in pod["metadata"]
    return {
        "phase": status["phase"],
        "reason": status.get("reason"),
        "containers": containers,
        "conditions": conditions,
        "deleted": deleted,
    }


async def end_of(client: Client, namespace: str) -> dict[str, JsonObject]:
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    async with Kubelet(client, script(), namespace=namespace, time_scale=0.02):
        for name in NAMES:
            spec = {"restartPolicy": "OnFailure" if name == "restarts" else "Never", "containers": [{"name": "main", "image": "i"}]}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            await client.create(PODS, body, namespace=namespace)
        return await until(client, namespace, settled)


async def until(client: Client, namespace: str, reached: Callable[[dict[str, JsonObject]], bool]) -> dict[str, JsonObject]:
    async with asyncio.timeout(30):
        while True:
            listed = await client.list(PODS, namespace=namespace)
            pods = {found["metadata"]["name"]: found for found in listed["items"]}
            if reached(pods):
                return pods
            await asyncio.sleep(0.05)


async def test_one_script_gives_the_same_pods_on_both_servers(real_cluster: RealCluster) -> None:
    namespace = f"kubelet-{uuid.uuid4().hex[:8]}"
    async with EmbeddedCluster() as embedded:
        here = await end_of(embedded.client(), namespace)
    client = Client(await connect(real_cluster.kubeconfig_path))
    try:
        there = await end_of(client, namespace)
        await client.delete(NAMESPACES, namespace)
        await client.delete(PODS, "lost", namespace=namespace, grace_seconds=0)
    finally:
        await client.close()
    assert {name: told(found) for name, found in here.items()} == {name: told(found) for name, found in there.items()}
