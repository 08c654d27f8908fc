"""Gang scheduling with the PodGroups of all schedulers, on both API servers."""

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
from tests.frameworks.pod_groups import BY_COSCHEDULER, BY_KUBE_BATCH, BY_PLUGINS, BY_VOLCANO, PodGroups, pod_group_crd
from tests.frameworks.sandbox import Clock, Sandbox, Scenario, open_sandbox, run_embedded, run_real


def training_job(
    *, master: str = "1", worker: str = "500m", workers: int = 2, annotations: JsonObject | None = None, **more: Any
) -> JsonObject:
    """A job whose pods request this much CPU each."""

    def replica_spec(replicas: int, cpu: str) -> JsonObject:
        spec = role(PyTorchJob, replicas)
        spec["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
        return spec

    body = manifest(PyTorchJob, {"Master": replica_spec(1, master), "Worker": replica_spec(workers, worker)}, **more)
    body["metadata"]["annotations"] = annotations or {}
    return body


@asynccontextmanager
async def open_gang_sandbox(transport: Transport, clock: Clock, options: Options) -> AsyncIterator[tuple[Sandbox, PodGroups]]:
    scheduler = options.gang_scheduler_name
    async with open_sandbox(transport, PyTorchJob, clock=clock, options=options, further_crds=(pod_group_crd(scheduler),)) as sandbox:
        sandbox.script.when("*").run()
        yield sandbox, PodGroups(sandbox.client, scheduler, namespace=sandbox.namespace)


# --- full lifecycle -------------------------------------------------------------------------------------------------------


async def lifecycle_with_volcano(transport: Transport, clock: Clock) -> None:
    async with open_gang_sandbox(transport, clock, BY_VOLCANO) as (sandbox, groups):
        sandbox.start()
        job = await sandbox.submit(training_job(annotations={"rack": "7"}, runPolicy={"schedulingPolicy": {"priorityClass": "high"}}))
        await sandbox.until(groups.get)
        await sandbox.settle()
        assert not await sandbox.has_children()
        assert "startTime" not in await sandbox.status()
        await check_group(groups, job, {"minMember": 3, "minResources": {"cpu": "2"}, "queue": "default", "priorityClassName": "high"})

        await groups.set_phase("Inqueue")
        await sandbox.until_running(3)
        worker = (await sandbox.pods())["demo-worker-1"]
        assert worker["spec"]["schedulerName"] == "volcano"
        annotations = {"scheduling.k8s.io/group-name": "demo", "volcano.sh/task-spec": "worker"}
        assert annotations.items() <= worker["metadata"]["annotations"].items()

        await scale_and_restart(sandbox, groups)
        await suspend_and_resume(sandbox, groups)
        await groups.set_phase("Inqueue")
        await sandbox.until_running(3)
        await finish(sandbox, groups)


async def lifecycle_with_scheduler_plugins(transport: Transport, clock: Clock) -> None:
    spec = {"minMember": 3, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 90}
    await lifecycle_without_admission(transport, clock, BY_PLUGINS, spec, labels={"scheduling.x-k8s.io/pod-group": "demo"})


async def lifecycle_with_kube_coscheduler(transport: Transport, clock: Clock) -> None:
    label = "pod-group.scheduling.sigs.k8s.io"
    labels = {label: "demo", f"{label}/name": "demo", f"{label}/min-available": "3"}
    spec = {"minMember": 3, "minResources": {"cpu": "2"}, "scheduleTimeoutSeconds": 90}
    await lifecycle_without_admission(transport, clock, BY_COSCHEDULER, spec, scheduler_name="default-scheduler", labels=labels)


async def lifecycle_with_kube_batch(transport: Transport, clock: Clock) -> None:
    spec = {"minMember": 3, "queue": "night", "priorityClassName": "high"}
    await lifecycle_without_admission(transport, clock, BY_KUBE_BATCH, spec, annotations={"scheduling.k8s.io/group-name": "demo"})


async def lifecycle_without_admission(
    transport: Transport,
    clock: Clock,
    options: Options,
    spec: JsonObject,
    *,
    scheduler_name: str = "",
    labels: JsonObject | None = None,
    annotations: JsonObject | None = None,
) -> None:
    """The pods of the job are created at once. `spec` is that of the PodGroup."""
    policy = {"queue": "night", "priorityClass": "high", "scheduleTimeoutSeconds": 90}
    async with open_gang_sandbox(transport, clock, options) as (sandbox, groups):
        sandbox.start()
        job = await sandbox.submit(training_job(annotations={"rack": "7"}, runPolicy={"schedulingPolicy": policy}))
        await sandbox.until_running(3)
        await check_group(groups, job, spec)
        for pod in (await sandbox.pods()).values():
            assert pod["spec"]["schedulerName"] == (scheduler_name or options.gang_scheduler_name)
            assert (labels or {}).items() <= pod["metadata"]["labels"].items()
            assert (annotations or {}).items() <= pod["metadata"]["annotations"].items()
        await scale_and_restart(sandbox, groups)
        await suspend_and_resume(sandbox, groups)
        await sandbox.until_running(3)
        await finish(sandbox, groups)


async def check_group(groups: PodGroups, job: JsonObject, spec: JsonObject) -> None:
    group = await groups.get()
    assert group is not None
    assert group["spec"] == spec
    assert group["metadata"]["annotations"] == {"rack": "7"}
    [owner] = group["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (job["metadata"]["uid"], True)


async def scale_and_restart(sandbox: Sandbox, groups: PodGroups) -> None:
    """The PodGroup is patched when the job changes, and only then."""
    await sandbox.until_condition("Running")
    await sandbox.settle()
    assert sandbox.writes("podgroups") == ["POST"]
    await sandbox.edit({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}})
    await sandbox.until_running(4)
    spec = await groups.spec()
    assert spec["minMember"] == 4
    assert spec.get("minResources", {"cpu": "2500m"}) == {"cpu": "2500m"}
    await sandbox.edit({"spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 2}}}})
    await sandbox.until_running(3)
    assert (await groups.spec())["minMember"] == 3
    await sandbox.edit({"metadata": {"labels": {"touched": "yes"}}})
    await groups.set_phase("Running", running=3)
    await sandbox.settle()
    assert sandbox.writes("podgroups") == ["POST", "PATCH", "PATCH"]
    await sandbox.restart()
    await sandbox.settle()
    assert sandbox.writes("podgroups") == []


async def suspend_and_resume(sandbox: Sandbox, groups: PodGroups) -> None:
    """The PodGroup is deleted on suspension, and a new one is created on resumption."""
    first = await groups.get()
    assert first is not None
    await sandbox.edit({"spec": {"runPolicy": {"suspend": True}}})

    async def is_suspended() -> bool:
        return await groups.get() is None and not await sandbox.has_children()

    await sandbox.until(is_suspended)
    await sandbox.edit({"spec": {"runPolicy": {"suspend": False}}})
    await sandbox.until(groups.get)
    assert (await groups.get() or {})["metadata"]["uid"] != first["metadata"]["uid"]


async def finish(sandbox: Sandbox, groups: PodGroups) -> None:
    """The PodGroup of a finished job is deleted with one event. Afterwards the operator writes nothing."""
    sandbox.script.when("*").run()
    await sandbox.edit({"spec": {"runPolicy": {"activeDeadlineSeconds": 1}}})
    await sandbox.until_condition("Failed")

    async def is_deleted() -> bool:
        return await groups.get() is None

    await sandbox.until(is_deleted)
    await sandbox.settle()
    await sandbox.edit({"metadata": {"labels": {"touched": "again"}}})
    await sandbox.settle()
    assert sandbox.writes("podgroups") == ["DELETE", "POST", "DELETE"]
    assert await sandbox.event_count("DeletedPodGroup") == 2  # once when it was suspended, once now


# --- existing PodGroups -----------------------------------------------------------------------------------------------


async def adopt_group_of_kubeflow(transport: Transport, clock: Clock) -> None:
    """A PodGroup that Kubeflow's operator created is found by its owner reference and not changed."""
    async with open_gang_sandbox(transport, clock, BY_VOLCANO) as (sandbox, groups):
        job = await sandbox.submit(training_job())
        owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "demo", "uid": job["metadata"]["uid"]}
        spec = {"minMember": 3, "minResources": {"cpu": "2000m"}, "queue": "night"}
        metadata = {"name": "demo", "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}]}
        await groups.create({"metadata": metadata, "spec": spec})
        await groups.set_phase("Running")
        sandbox.start()
        await sandbox.until_running(3)
        await sandbox.until_condition("Running")
        await sandbox.settle()
        assert await groups.spec() == spec
        assert sandbox.writes("podgroups") == []


async def name_conflict(transport: Transport, clock: Clock) -> None:
    """A PodGroup of another owner is not changed and blocks the job until it is deleted."""
    async with open_gang_sandbox(transport, clock, BY_PLUGINS) as (sandbox, groups):
        await groups.create({"metadata": {"name": "demo"}, "spec": {"minMember": 7}})
        sandbox.start()
        await sandbox.submit(training_job())
        blocked = await sandbox.until_condition("Blocked")
        assert blocked["message"].startswith("podgroup demo: the name is already used")
        assert not await sandbox.has_children()
        assert await groups.spec() == {"minMember": 7}
        await sandbox.client.delete(groups.resource, "demo", namespace=sandbox.namespace)
        await sandbox.until_running(3)
        assert (await groups.spec())["minMember"] == 3


async def revert_edits_of_group(transport: Transport, clock: Clock) -> None:
    """Edited fields of the job are reverted, an edited queue is kept, and a deleted PodGroup is created again."""
    async with open_gang_sandbox(transport, clock, BY_VOLCANO) as (sandbox, groups):
        sandbox.start()
        await sandbox.submit(training_job())
        await sandbox.until(groups.get)
        await groups.set_phase("Running")
        await sandbox.until_running(3)
        await groups.edit({"spec": {"minMember": 9, "queue": "moved"}})

        async def is_reverted() -> bool:
            return bool((await groups.spec())["minMember"] == 3)

        await sandbox.until(is_reverted)
        assert (await groups.spec())["queue"] == "moved"
        before = await sandbox.pod_uids()
        await sandbox.client.delete(groups.resource, "demo", namespace=sandbox.namespace)
        await sandbox.until(groups.get)
        await sandbox.settle()
        assert await sandbox.pod_uids() == before


# --- priority classes -----------------------------------------------------------------------------------------------------


async def priorities(transport: Transport, clock: Clock) -> None:
    """If minAvailable is below the number of pods, minResources counts the pods of the highest priority, in every operator process."""
    async with open_gang_sandbox(transport, clock, BY_VOLCANO) as (sandbox, groups):
        name = f"high-{sandbox.namespace}"
        priority_class = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 1000}
        await sandbox.client.create(PRIORITY_CLASSES, priority_class)
        try:
            sandbox.start()
            job = training_job(master="1", worker="10", workers=3, runPolicy={"schedulingPolicy": {"minAvailable": 2}})
            job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = name
            await sandbox.submit(job)
            await sandbox.until(groups.get)
            assert await groups.spec() == {"minMember": 2, "minResources": {"cpu": "20"}, "queue": "default"}
            await groups.set_phase("Inqueue")
            await sandbox.until_running(4)
            await sandbox.restart()
            await sandbox.settle()
            assert sandbox.writes("podgroups") == []
        finally:
            await sandbox.client.delete(PRIORITY_CLASSES, name)


SCENARIOS = (
    lifecycle_with_volcano,
    lifecycle_with_scheduler_plugins,
    lifecycle_with_kube_coscheduler,
    lifecycle_with_kube_batch,
    adopt_group_of_kubeflow,
    name_conflict,
    revert_edits_of_group,
    priorities,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
@virtual_time
async def test_gang_scheduling_on_the_embedded_server(scenario: Scenario) -> None:
    await run_embedded(scenario)


async def test_gang_scheduling_on_the_real_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for scenario in SCENARIOS:
            group.create_task(run_real(scenario, real_cluster), name=scenario.__name__)
