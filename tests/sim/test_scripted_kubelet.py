"""The scripted kubelet alone, on the embedded cluster and virtual time."""

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
from dlop.testing.kubelet import Kubelet
from dlop.testing.pod_steps import Exit
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock, virtual_time


def pod(name: str, *, restart_policy: str = "Never") -> JsonObject:
    spec = {"restartPolicy": restart_policy, "containers": [{"name": "main", "image": "i"}, {"name": "sidecar", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


@asynccontextmanager
async def kubelet_with(script: Script, *bodies: JsonObject) -> AsyncIterator[tuple[Client, Kubelet]]:
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        client = cluster.client()
        async with Kubelet(client, script, clock=clock) as kubelet:
            for body in bodies:
                await client.create(PODS, body, namespace="default")
            yield client, kubelet


async def status_of(client: Client, name: str) -> JsonObject:
    status: JsonObject = (await client.get(PODS, name, namespace="default"))["status"]
    return status


async def is_gone(client: Client, name: str) -> bool:
    try:
        await client.get(PODS, name, namespace="default")
    except NotFoundError:
        return True
    return False


@virtual_time
async def test_a_pod_that_no_rule_fits_runs_and_goes_on_running() -> None:
    async with kubelet_with(Script(), pod("a")) as (client, _):
        await asyncio.sleep(3600)
        status = await status_of(client, "a")
        assert status["phase"] == "Running"
        assert [found["ready"] for found in status["containerStatuses"]] == [True, True]


@virtual_time
async def test_a_failing_pod_tells_the_exit_code_of_its_first_container() -> None:
    script = Script()
    script.when("a").run().after(10).fail(137, reason="OOMKilled")
    async with kubelet_with(script, pod("a")) as (client, _):
        await asyncio.sleep(60)
        status = await status_of(client, "a")
        assert status["phase"] == "Failed"
        ended = [found["state"]["terminated"] for found in status["containerStatuses"]]
        assert [(end["exitCode"], end["reason"]) for end in ended] == [(137, "OOMKilled"), (0, "Completed")]


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
async def test_the_restart_policy_of_the_pod_decides_what_an_exit_code_means(
    restart_policy: str, exit_code: int, phase: str, restarts: int
) -> None:
    script = Script()
    script.when("a").run().then(Exit(exit_code))
    async with kubelet_with(script, pod("a", restart_policy=restart_policy)) as (client, _):
        await asyncio.sleep(60)
        status = await status_of(client, "a")
        assert status["phase"] == phase
        assert status["containerStatuses"][0]["restartCount"] == restarts


@virtual_time
async def test_restarts_in_place_are_counted_one_by_one() -> None:
    script = Script()
    script.when("a").run().restart_in_place(3, exit_code=139)
    async with kubelet_with(script, pod("a", restart_policy="OnFailure")) as (client, _):
        await asyncio.sleep(60)
        main = (await status_of(client, "a"))["containerStatuses"][0]
        assert main["restartCount"] == 3
        assert main["lastState"]["terminated"]["exitCode"] == 139


@virtual_time
async def test_a_deleted_pod_ends_and_its_deletion_is_confirmed() -> None:
    async with kubelet_with(Script(), pod("a")) as (client, _):
        await asyncio.sleep(10)
        await client.delete(PODS, "a", namespace="default")
        assert not await is_gone(client, "a")
        await asyncio.sleep(10)
        assert await is_gone(client, "a")


@virtual_time
async def test_a_pod_on_a_lost_node_stays_terminating_until_it_is_forced() -> None:
    script = Script()
    script.when("a").run().lose_node(deleted_after_seconds=40)
    async with kubelet_with(script, pod("a")) as (client, _):
        await asyncio.sleep(3600)
        found = await client.get(PODS, "a", namespace="default")
        assert found["metadata"]["deletionTimestamp"]
        assert found["status"]["phase"] == "Running"
        await client.delete(PODS, "a", namespace="default", grace_seconds=0)
        assert await is_gone(client, "a")


@pytest.mark.parametrize("course", ["evict", "preempt"])
@virtual_time
async def test_a_disrupted_pod_says_so_in_a_condition(course: str) -> None:
    script = Script()
    getattr(script.when("a").run(), course)()
    async with kubelet_with(script, pod("a")) as (client, _):
        await asyncio.sleep(3)
        conditions = {found["type"]: found["status"] for found in (await status_of(client, "a"))["conditions"]}
        assert conditions["DisruptionTarget"] == "True"


@virtual_time
async def test_a_pod_that_cannot_start_says_why() -> None:
    script = Script()
    script.when("image").image_pull_error()
    script.when("full").unschedulable()
    async with kubelet_with(script, pod("image"), pod("full")) as (client, _):
        await asyncio.sleep(60)
        image, full = await status_of(client, "image"), await status_of(client, "full")
        assert image["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
        assert [found["reason"] for found in full["conditions"] if found["type"] == "PodScheduled"] == ["Unschedulable"]
        assert (image["phase"], full["phase"]) == ("Pending", "Pending")


@virtual_time
async def test_a_rule_for_the_first_pod_of_a_name_leaves_its_replacement_to_the_next_rule() -> None:
    script = Script()
    script.when("a", times=1).run().fail()
    script.when("*").run().succeed()
    async with kubelet_with(script, pod("a")) as (client, _):
        await asyncio.sleep(10)
        assert (await status_of(client, "a"))["phase"] == "Failed"
        await client.delete(PODS, "a", namespace="default")
        await client.create(PODS, pod("a"), namespace="default")
        await asyncio.sleep(10)
        assert (await status_of(client, "a"))["phase"] == "Succeeded"


@virtual_time
async def test_a_test_can_hold_a_pod_back_and_let_it_go_on() -> None:
    script = Script()
    script.when("a").run().until_told().succeed()
    async with kubelet_with(script, pod("a")) as (client, kubelet):
        await asyncio.sleep(3600)
        assert (await status_of(client, "a"))["phase"] == "Running"
        kubelet.tell("default/a")
        await asyncio.sleep(10)
        assert (await status_of(client, "a"))["phase"] == "Succeeded"


@virtual_time
async def test_a_test_can_put_an_end_to_a_script() -> None:
    script = Script()
    script.when("a").run().after(100).succeed()
    async with kubelet_with(script, pod("a")) as (client, kubelet):
        await asyncio.sleep(10)
        await kubelet.perform("default/a", Exit(3))
        assert (await status_of(client, "a"))["phase"] == "Failed"
        await asyncio.sleep(1000)
        assert (await status_of(client, "a"))["phase"] == "Failed"
