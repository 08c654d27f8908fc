"""Kueue and dlop on both API servers: jobs of kubeflow.org, and pods of other jobs, are queued, admitted, preempted and finished."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop.api.constants import QUEUE_LABEL
from dlop.frameworks.kubedl.xdljob import XDLJob
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.job import DLJob
from dlop.kube.resources import EVENTS
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubedl_manifests import kubedl_job, role
from tests.frameworks.kubeflow_jobs import job, mpi_job
from tests.frameworks.kubeflow_manifests import KINDS
from tests.frameworks.kueue import Kueue, PodKueue, placement, queued_template
from tests.frameworks.pod_groups import BY_VOLCANO, PodGroups, pod_group_crd
from tests.frameworks.sandbox import Clock, Sandbox, open_sandbox, run_embedded, run_real

ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)


def queued(kind: type[DLJob], **policy: Any) -> JsonObject:
    """A job after Kueue's webhook, which suspends it on creation."""
    run_policy = {"suspend": True, **policy}
    manifest = mpi_job(runPolicy=run_policy) if kind is MPIJob else job(kind, runPolicy=run_policy)
    manifest["metadata"]["labels"] = {QUEUE_LABEL: "team"}
    return manifest


def replica_count(manifest: JsonObject, kind: type[DLJob]) -> int:
    return sum(role["replicas"] for role in manifest["spec"][kind.schema.field].values())


async def check_placement(sandbox: Sandbox, kueue: Kueue, flavor: str) -> None:
    """Check that every pod matches the current template and had a scheduling gate."""
    expected = placement(flavor)
    assert kueue.removed_gates >= {(name, expected["spec"]["schedulingGates"][0]["name"]) for name in await sandbox.pods()}
    for name, pod in (await sandbox.pods()).items():
        assert pod["spec"]["nodeSelector"] == expected["spec"]["nodeSelector"], name
        assert expected["spec"]["tolerations"][0] in pod["spec"]["tolerations"], name
        assert expected["metadata"]["labels"].items() <= pod["metadata"]["labels"].items(), name
        assert expected["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items(), name


async def admit_preempt_and_finish(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    """Admitted with one flavor, preempted, admitted with another, finished."""
    async with open_sandbox(transport, kind, clock=clock) as sandbox:
        manifest = queued(kind)
        kueue, size = Kueue(sandbox, manifest), replica_count(manifest, kind)
        sandbox.script.when("*", times=1).run()
        sandbox.script.when("*").run().after(3).succeed()
        sandbox.start()
        await sandbox.submit(manifest)
        await sandbox.until_condition("Suspended")
        await sandbox.settle()
        assert not await sandbox.has_children()
        assert not await kueue.is_active()
        assert "startTime" not in await sandbox.status()

        await kueue.admit("spot")
        await kueue.run(size)
        await sandbox.until(kueue.is_ready)
        await sandbox.until(kueue.is_active)
        await check_placement(sandbox, kueue, "spot")
        assert (await sandbox.condition("Suspended") or {})["reason"] == f"{kind.job_type.kind}Resumed"
        first = await sandbox.pod_uids()

        await kueue.preempt()
        await sandbox.until_condition("Suspended")
        assert not await kueue.is_active()
        assert (await sandbox.condition("Running") or {})["status"] == "False"

        async def has_no_children() -> bool:
            return not await sandbox.has_children()

        await sandbox.until(has_no_children)
        assert await kueue.result() is None

        await kueue.admit("reserved")
        await kueue.run(size)
        await sandbox.until(kueue.is_ready)
        await check_placement(sandbox, kueue, "reserved")
        assert not set((await sandbox.pod_uids()).values()) & set(first.values())
        await check_success(sandbox, kueue)


async def check_success(sandbox: Sandbox, kueue: Kueue) -> None:
    """Check that the job succeeds and stays finished when Kueue preempts it."""
    succeeded = await sandbox.until_condition("Succeeded")
    assert await kueue.result() == ("Succeeded", succeeded["message"])
    assert succeeded["message"]
    await sandbox.settle()
    status = await sandbox.status()
    await kueue.preempt()
    await sandbox.settle()
    assert await sandbox.status() == status


async def leave_multikueue_job_alone(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    """A job that runs in a worker cluster has no children here, and the status that MultiKueue copies is not changed."""
    async with open_sandbox(transport, kind, clock=clock) as sandbox:
        manifest = queued(kind, managedBy="kueue.x-k8s.io/multikueue")
        kueue = Kueue(sandbox, manifest)
        sandbox.start()
        await sandbox.submit(manifest)
        await kueue.admit("remote")
        running = {
            "type": "Running",
            "status": "True",
            "reason": "Remote",
            "message": "runs in the worker cluster",
            "lastTransitionTime": None,
        }
        status = {"conditions": [{name: value for name, value in running.items() if value}], "replicaStatuses": {"Worker": {"active": 2}}}
        await kueue.copy_status(status)
        await sandbox.restart()
        await sandbox.settle()
        assert await sandbox.status() == status
        assert not await sandbox.has_children()
        assert await sandbox.all(EVENTS) == {}


async def wait_for_gang_admission(transport: Transport, clock: Clock) -> None:
    """A suspended job has no PodGroup. After its admission by Kueue, its pods wait for the admission of the PodGroup by Volcano."""
    async with open_sandbox(transport, PyTorchJob, clock=clock, options=BY_VOLCANO, further_crds=(pod_group_crd("volcano"),)) as sandbox:
        manifest = queued(PyTorchJob)
        kueue, groups = Kueue(sandbox, manifest), PodGroups(sandbox.client, "volcano", namespace=sandbox.namespace)
        sandbox.script.when("*").run()
        sandbox.start()
        await sandbox.submit(manifest)
        await sandbox.until_condition("Suspended")
        await sandbox.settle()
        assert await groups.get() is None
        await kueue.admit("spot")
        await sandbox.until(groups.get)
        await sandbox.settle()
        assert not await sandbox.has_children()
        assert not await kueue.is_active()
        await groups.set_phase("Inqueue")
        await kueue.run(2)
        await check_placement(sandbox, kueue, "spot")


async def queue_single_pods(transport: Transport, clock: Clock) -> None:
    """The pods of a kind that Kueue does not manage wait for admission. A preempted pod is replaced, which is not a failure."""
    async with open_sandbox(transport, XDLJob, clock=clock) as sandbox:
        kueue, workers = PodKueue(sandbox), ["demo-worker-0", "demo-worker-1"]
        sandbox.script.when("demo-worker-*", times=1).until_released().run()
        sandbox.script.when("demo-worker-*").until_released().run().after(2).succeed()
        sandbox.script.when("*").until_released().run()
        roles = {name: role(replicas) for name, replicas in {"PS": 1, "Worker": 2}.items()}
        for spec in roles.values():
            spec["template"] = queued_template(spec["template"], "research")
        sandbox.start()
        await sandbox.submit(kubedl_job(XDLJob, roles, schedulingPolicy={"queue": "research"}, backoffLimit=0))

        async def all_wait(names: list[str]) -> bool:
            await kueue.release()
            return await kueue.waiting() == names

        await sandbox.until(lambda: all_wait(["demo-ps-0", *workers]))
        await sandbox.settle()
        assert {pod["metadata"]["labels"][QUEUE_LABEL] for pod in (await sandbox.pods()).values()} == {"research"}
        assert {pod["status"]["phase"] for pod in (await sandbox.pods()).values()} == {"Pending"}

        await kueue.admit()
        await sandbox.until_running(3)
        first = await sandbox.pod_uids()
        for name in workers:
            await kueue.preempt(name)
        await sandbox.until(lambda: all_wait(workers))
        replaced = await sandbox.pod_uids()
        assert [name for name in first if replaced[name] != first[name]] == workers
        assert (await sandbox.condition("Failed") or {}).get("status") != "True"

        await kueue.admit()
        await sandbox.until_condition("Succeeded")

        async def is_released() -> bool:
            await kueue.release()
            return not any(pod["metadata"].get("finalizers") for pod in (await sandbox.pods()).values())

        await sandbox.until(is_released)
        await sandbox.settle()
        assert await kueue.waiting() == []
        assert await sandbox.event_count("QueueIgnored") == 0


BY_KIND = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)


@BY_KIND
@virtual_time
async def test_a_job_is_admitted_preempted_and_finished_on_the_embedded_server(kind: type[DLJob]) -> None:
    await run_embedded(admit_preempt_and_finish, kind)


async def test_jobs_of_all_kinds_are_admitted_preempted_and_finished_on_the_real_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for kind in ALL_KINDS:
            group.create_task(run_real(admit_preempt_and_finish, real_cluster, kind), name=kind.job_type.kind)


@BY_KIND
@virtual_time
async def test_a_multikueue_job_is_not_touched_on_the_embedded_server(kind: type[DLJob]) -> None:
    await run_embedded(leave_multikueue_job_alone, kind)


async def test_a_multikueue_job_is_not_touched_on_the_real_server(real_cluster: RealCluster) -> None:
    await run_real(leave_multikueue_job_alone, real_cluster, PyTorchJob)


@virtual_time
async def test_a_queued_job_waits_for_gang_admission_on_the_embedded_server() -> None:
    await run_embedded(wait_for_gang_admission)


async def test_a_queued_job_waits_for_gang_admission_on_the_real_server(real_cluster: RealCluster) -> None:
    await run_real(wait_for_gang_admission, real_cluster)


@virtual_time
async def test_single_pods_are_admitted_preempted_and_finished_on_the_embedded_server() -> None:
    await run_embedded(queue_single_pods)


async def test_single_pods_are_admitted_preempted_and_finished_on_the_real_server(real_cluster: RealCluster) -> None:
    await run_real(queue_single_pods, real_cluster)
