"""The scripted kubelet without an operator, on the embedded cluster and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.client import Client
from dlop.kube.errors import NotFoundError
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.pod_steps import ContainerExit
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock, virtual_time


def pod(name: str, *, restart_policy: str = "Never") -> JsonObject:
    spec = {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "i"}, {"name": "sidecar", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def run_kubelet(script: Script, *bodies: JsonObject) -> AsyncIterator[tuple[Client, ScriptedKubelet]]:
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        client = cluster.client()
        async with ScriptedKubelet(client, script, clock=clock) as kubelet:
            for body in bodies:
                await client.create(PODS, body, namespace="default")
            yield client, kubelet


async def get_status(client: Client, name: str) -> JsonObject:
    status: JsonObject = (await client.get(PODS, name, namespace="default"))["status"]
    return status


async def is_deleted(client: Client, name: str) -> bool:
    try:
        await client.get(PODS, name, namespace="default")
    except NotFoundError:
        return True
    return False


@virtual_time
async def test_a_pod_without_a_rule_keeps_running() -> None:
    async with run_kubelet(Script(), pod("a")) as (client, _):
        await asyncio.sleep(3600)
        status = await get_status(client, "a")
        assert status["phase"] == "Running"
        assert [container["ready"] for container in status["containerStatuses"]] == [True, True]


@virtual_time
async def test_a_failed_pod_has_the_exit_code_of_its_first_container() -> None:
    script = Script()
    script.when("a").run().after(10).fail(137, reason="OOMKilled")
    async with run_kubelet(script, pod("a")) as (client, _):
        await asyncio.sleep(60)
        status = await get_status(client, "a")
        assert status["phase"] == "Failed"
        terminated = [container["state"]["terminated"] for container in status["containerStatuses"]]
        assert [(state["exitCode"], state["reason"]) for state in terminated] == [(137, "OOMKilled"), (0, "Completed")]


@pytest.mark.parametrize(
    ("restart_policy", "exit_code", "phase", "restarts"),
    [
        ("Never", 1, "Failed", 0),
        ("Never", 0, "Succeeded", 0),
        ("OnFailure", 1, "Running", 1),
        ("OnFailure", 0, "Succeeded", 0),
        ("Always", 1, "Running", 1),
        ("Always", 0, "Running", 1),
    ],
)
@virtual_time
async def test_the_restart_policy_decides_the_effect_of_an_exit_code(
    restart_policy: str, exit_code: int, phase: str, restarts: int
) -> None:
    script = Script()
    script.when("a").run().then(ContainerExit(exit_code))
    async with run_kubelet(script, pod("a", restart_policy=restart_policy)) as (client, _):
        await asyncio.sleep(60)
        status = await get_status(client, "a")
        assert status["phase"] == phase
        assert status["containerStatuses"][0]["restartCount"] == restarts


@virtual_time
async def test_in_place_restarts_are_counted() -> None:
    script = Script()
    script.when("a").run().restart_in_place(3, exit_code=139)
    async with run_kubelet(script, pod("a", restart_policy="OnFailure")) as (client, _):
        await asyncio.sleep(60)
        main = (await get_status(client, "a"))["containerStatuses"][0]
        assert main["restartCount"] == 3
        assert main["lastState"]["terminated"]["exitCode"] == 139


@virtual_time
async def test_a_deleted_pod_terminates_and_is_removed() -> None:
    async with run_kubelet(Script(), pod("a")) as (client, _):
        await asyncio.sleep(10)
        await client.delete(PODS, "a", namespace="default")
        assert not await is_deleted(client, "a")
        await asyncio.sleep(10)
        assert await is_deleted(client, "a")


@virtual_time
async def test_a_pod_on_a_lost_node_stays_terminating_until_it_is_force_deleted() -> None:
    script = Script()
    script.when("a").run().lose_node(deleted_after_seconds=40)
    async with run_kubelet(script, pod("a")) as (client, _):
        await asyncio.sleep(3600)
        pod_on_lost_node = await client.get(PODS, "a", namespace="default")
        assert pod_on_lost_node["metadata"]["deletionTimestamp"]
        assert pod_on_lost_node["status"]["phase"] == "Running"
        await client.delete(PODS, "a", namespace="default", grace_seconds=0)
        assert await is_deleted(client, "a")


@pytest.mark.parametrize("step", ["evict", "preempt"])
@virtual_time
async def test_a_disrupted_pod_has_a_disruption_condition(step: str) -> None:
    script = Script()
    getattr(script.when("a").run(), step)()
    async with run_kubelet(script, pod("a")) as (client, _):
        await asyncio.sleep(3)
        conditions = {condition["type"]: condition["status"] for condition in (await get_status(client, "a"))["conditions"]}
        assert conditions["DisruptionTarget"] == "True"


@virtual_time
async def test_a_pod_that_cannot_start_has_the_reason_in_its_status() -> None:
    script = Script()
    script.when("image").image_pull_error()
    script.when("full").unschedulable()
    async with run_kubelet(script, pod("image"), pod("full")) as (client, _):
        await asyncio.sleep(60)
        image, full = await get_status(client, "image"), await get_status(client, "full")
        assert image["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        assert [condition["reason"] for condition in full["conditions"] if condition["type"] == "PodScheduled"] == ["Unschedulable"]
        assert (image["phase"], full["phase"]) == ("Pending", "Pending")


@virtual_time
async def test_a_rule_for_one_pod_does_not_apply_to_its_replacement() -> None:
    script = Script()
    script.when("a", times=1).run().fail()
    script.when("*").run().succeed()
    async with run_kubelet(script, pod("a")) as (client, _):
        await asyncio.sleep(10)
        assert (await get_status(client, "a"))["phase"] == "Failed"
        await client.delete(PODS, "a", namespace="default")
        await client.create(PODS, pod("a"), namespace="default")
        await asyncio.sleep(10)
        assert (await get_status(client, "a"))["phase"] == "Succeeded"


@virtual_time
async def test_a_script_can_wait_until_the_test_releases_the_pod() -> None:
    script = Script()
    script.when("a").run().until_released().succeed()
    async with run_kubelet(script, pod("a")) as (client, kubelet):
        await asyncio.sleep(3600)
        assert (await get_status(client, "a"))["phase"] == "Running"
        kubelet.release("default/a")
        await asyncio.sleep(10)
        assert (await get_status(client, "a"))["phase"] == "Succeeded"


@virtual_time
async def test_a_test_can_override_a_script() -> None:
    script = Script()
    script.when("a").run().after(100).succeed()
    async with run_kubelet(script, pod("a")) as (client, kubelet):
        await asyncio.sleep(10)
        await kubelet.perform("default/a", ContainerExit(3))
        assert (await get_status(client, "a"))["phase"] == "Failed"
        await asyncio.sleep(1000)
        assert (await get_status(client, "a"))["phase"] == "Failed"
