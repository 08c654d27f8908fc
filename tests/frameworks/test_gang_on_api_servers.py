"""Pods that are placed together, with the groups of volcano and of the scheduler-plugins family, on both API servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop.api.types import Options
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.kube.resources import PRIORITY_CLASSES
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import manifest, role
from tests.frameworks.pod_groups import BY_PLUGINS, BY_VOLCANO, PLUGINS, Groups, definition
from tests.frameworks.server_stage import Clock, Stage, Story, on_embedded, on_real, stage


def trained(*, master: str = "1", worker: str = "500m", workers: int = 2, annotations: JsonObject | None = None, **more: Any) -> JsonObject:
    """A job whose pods ask for so much of a processor each."""

    def part(replicas: int, cpu: str) -> JsonObject:
        found = role(PyTorchJob, replicas)
        found["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        return found

    found = manifest(PyTorchJob, {"Master": part(1, master), "Worker": part(workers, worker)}, **more)
    found["metadata"]["annotations"] = annotations or {}
    return found


@asynccontextmanager
async def gang_stage(transport: Transport, clock: Clock, options: Options) -> AsyncIterator[tuple[Stage, Groups]]:
    scheduler = options.gang_scheduler_name
    async with stage(transport, PyTorchJob, clock=clock, options=options, more=(definition(scheduler),)) as there:
        there.script.when("*").run()
        yield there, Groups(there.client, scheduler, namespace=there.namespace)


# --- a whole life --------------------------------------------------------------------------------------------------------


async def life_with_volcano(transport: Transport, clock: Clock) -> None:
    async with gang_stage(transport, clock, BY_VOLCANO) as (there, groups):
        there.start()
        job = await there.submit(trained(annotations={"rack": "7"}, runPolicy={"schedulingPolicy": {"priorityClass": "high"}}))
        await there.until(groups.get)
        await there.quiet()
        assert not await there.has_children()
        assert "startTime" not in await there.status()
        await demand_group(groups, job, {"minMember": 3, "minResources": {"cpu": "2"}, "queue": "default", "priorityClassName": "high"})

        await groups.say("Inqueue")
        await there.until_running(3)
        worker = (await there.pods())["demo-worker-1"]
        assert worker["spec"]["schedulerName"] == "volcano"
        marks = {"scheduling.k8s.io/group-name": "demo", "volcano.sh/task-spec": "worker"}
        assert marks.items() <= worker["metadata"]["annotations"].items()

        await follow_the_job(there, groups)
        await hold_still(there, groups)
        await groups.say("Inqueue")
        await there.until_running(3)
        await come_to_the_end(there, groups)


async def life_with_scheduler_plugins(transport: Transport, clock: Clock) -> None:
    async with gang_stage(transport, clock, BY_PLUGINS) as (there, groups):
        there.start()
        job = await there.submit(trained(annotations={"rack": "7"}, runPolicy={"schedulingPolicy": {"scheduleTimeoutSeconds": 90}}))
        await there.until_running(3)
        await demand_group(groups, job, {"minMember": 3, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 90})
        for pod in (await there.pods()).values():
            assert pod["spec"]["schedulerName"] == PLUGINS
            assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "demo"
        await follow_the_job(there, groups)
        await hold_still(there, groups)
        await there.until_running(3)
        await come_to_the_end(there, groups)


async def demand_group(groups: Groups, job: JsonObject, spec: JsonObject) -> None:
    found = await groups.get()
    assert found is not None
    assert found["spec"] == spec
    assert found["metadata"]["annotations"] == {"rack": "7"}
    [owner] = found["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (job["metadata"]["uid"], True)


async def follow_the_job(there: Stage, groups: Groups) -> None:
    """The group is changed when the job is, and at no other time."""
    await there.until_condition("Running")
    await there.quiet()
    assert there.writes("podgroups") == ["POST"]
    await there.edit({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}})
    await there.until_running(4)
    found = await groups.spec()
    assert (found["minMember"], found["minResources"]) == (4, {"cpu": "2500m"})
    await there.edit({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    await there.until_running(3)
    assert (await groups.spec())["minMember"] == 3
    await there.edit({"metadata": {"labels": {"touched": "yes"}}})
    await groups.say("Running", running=3)
    await there.quiet()
    assert there.writes("podgroups") == ["POST", "PATCH", "PATCH"]
    await there.restart()
    await there.quiet()
    assert there.writes("podgroups") == []


async def hold_still(there: Stage, groups: Groups) -> None:
    """A suspended job has no group, and gets another one when it goes on."""
    first = await groups.get()
    assert first is not None
    await there.edit({"spec": {"runPolicy": {"suspend": True}}})

    async def is_still() -> bool:
        return await groups.get() is None and not await there.has_children()

    await there.until(is_still)
    await there.edit({"spec": {"runPolicy": {"suspend": False}}})
    await there.until(groups.get)
    assert (await groups.get() or {})["metadata"]["uid"] != first["metadata"]["uid"]


async def come_to_the_end(there: Stage, groups: Groups) -> None:
    """So does a job that is done. That is told once, and then nobody does anything any more."""
    there.script.when("*").run()
    await there.edit({"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}})
    await there.until_condition("Failed")

    async def is_gone() -> bool:
        return await groups.get() is None

    await there.until(is_gone)
    await there.quiet()
    await there.edit({"metadata": {"labels": {"touched": "again"}}})
    await there.quiet()
    assert there.writes("podgroups") == ["DELETE", "POST", "DELETE"]
    assert await there.told("DeletedPodGroup") == 2  # once when it was suspended, once now


# --- what is there already -----------------------------------------------------------------------------------------------


async def take_over(transport: Transport, clock: Clock) -> None:
    """The group of a job that Kubeflow's operator has left behind is found by its owner, and nothing is done to it."""
    async with gang_stage(transport, clock, BY_VOLCANO) as (there, groups):
        job = await there.submit(trained())
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "demo", "uid": job["metadata"]["uid"]}
        spec = {"minMember": 3, "minResources": {"cpu": "2000m"}, "queue": "night"}
        metadata = {"name": "demo", "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
        await groups.create({"metadata": metadata, "spec": spec})
        await groups.say("Running")
        there.start()
        await there.until_running(3)
        await there.until_condition("Running")
        await there.quiet()
        assert await groups.spec() == spec
        assert there.writes("podgroups") == []


async def a_name_that_is_taken(transport: Transport, clock: Clock) -> None:
    """The group of somebody else is left alone, and told; when it is gone the job goes on."""
    async with gang_stage(transport, clock, BY_PLUGINS) as (there, groups):
        await groups.create({"metadata": {"name": "demo"}, "spec": {"minMember": 7}})
        there.start()
        await there.submit(trained())
        told = await there.until_condition("Blocked")
        assert told["message"].startswith("podgroup demo: the name is taken")
        assert not await there.has_children()
        assert await groups.spec() == {"minMember": 7}
        await there.client.delete(groups.resource, "demo", namespace=there.namespace)
        await there.until_running(3)
        assert (await groups.spec())["minMember"] == 3


async def what_somebody_does_to_the_group(transport: Transport, clock: Clock) -> None:
    """What the job says is set right, the queue stays where an administrator has put it; and a group that is deleted comes back."""
    async with gang_stage(transport, clock, BY_VOLCANO) as (there, groups):
        there.start()
        await there.submit(trained())
        await there.until(groups.get)
        await groups.say("Running")
        await there.until_running(3)
        await groups.edit({"spec": {"minMember": 9, "queue": "moved"}})

        async def is_right_again() -> bool:
            return bool((await groups.spec())["minMember"] == 3)

        await there.until(is_right_again)
        assert (await groups.spec())["queue"] == "moved"
        before = await there.names_and_uids()
        await there.client.delete(groups.resource, "demo", namespace=there.namespace)
        await there.until(groups.get)
        await there.quiet()
        assert await there.names_and_uids() == before


# --- who comes first -----------------------------------------------------------------------------------------------------


async def priorities(transport: Transport, clock: Clock) -> None:
    """Of a part of the pods, what those of the higher priority class need is counted: the same by every operator."""
    async with gang_stage(transport, clock, BY_VOLCANO) as (there, groups):
        name = f"high-{there.namespace}"
        important = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
        await there.client.create(PRIORITY_CLASSES, important)
        try:
            there.start()
            job = trained(master="1", worker="10", workers=3, runPolicy={"schedulingPolicy": {"minAvailable": 2}})
            job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = name
            await there.submit(job)
            await there.until(groups.get)
            assert await groups.spec() == {"minMember": 2, "minResources": {"cpu": "20"}, "queue": "default"}
            await groups.say("Inqueue")
            await there.until_running(4)
            await there.restart()
            await there.quiet()
            assert there.writes("podgroups") == []
        finally:
            await there.client.delete(PRIORITY_CLASSES, name)


STORIES = (life_with_volcano, life_with_scheduler_plugins, take_over, a_name_that_is_taken, what_somebody_does_to_the_group, priorities)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
@virtual_time
async def test_pods_are_placed_together_on_the_embedded_server(story: Story) -> None:
    await on_embedded(story)


async def test_pods_are_placed_together_on_the_real_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for story in STORIES:
            group.create_task(on_real(story, real_cluster), name=story.__name__)
