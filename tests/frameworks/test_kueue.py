"""Kueue and dlop: jobs of kubeflow.org wait, run where they are told, make room and end, on both API servers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from real_cluster import RealCluster

from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.frameworks.kubeflow.pytorchjob import PyTorchJob
from dlop.job import DLJob
from dlop.kube.resources import EVENTS
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import job, mpi_job
from tests.frameworks.kubeflow_manifests import KINDS
from tests.frameworks.kueue import QUEUE_LABEL, Kueue, placed
from tests.frameworks.pod_groups import BY_VOLCANO, Groups, definition
from tests.frameworks.server_stage import Clock, Stage, on_embedded, on_real, stage

ALL_KINDS: tuple[type[DLJob], ...] = (*KINDS, MPIJob)


def queued(kind: type[DLJob], **policy: Any) -> JsonObject:
    """A job as it is after Kueue's webhook has seen it: suspended from its birth."""
    run_policy = {"suspend": True, **policy}
    found = mpi_job(runPolicy=run_policy) if kind is MPIJob else job(kind, runPolicy=run_policy)
    found["metadata"]["labels"] = {QUEUE_LABEL: "team"}
    return found


def size_of(manifest: JsonObject, kind: type[DLJob]) -> int:
    return sum(role["replicas"] for role in manifest["spec"][kind.replica_specs_field].values())


async def demand_placed(there: Stage, kueue: Kueue, flavor: str) -> None:
    """Every pod is as its template says now, and had a gate."""
    wanted = placed(flavor)
    assert kueue.opened >= {(name, wanted["spec"]["schedulingGates"][0]["name"]) for name in await there.pods()}
    for name, pod in (await there.pods()).items():
        assert pod["spec"]["nodeSelector"] == wanted["spec"]["nodeSelector"], name
        assert wanted["spec"]["tolerations"][0] in pod["spec"]["tolerations"], name
        assert wanted["metadata"]["labels"].items() <= pod["metadata"]["labels"].items(), name
        assert wanted["metadata"]["annotations"].items() <= pod["metadata"]["annotations"].items(), name


async def wait_run_make_room_and_end(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    """Admitted on one flavor, stopped, admitted on another, done."""
    async with stage(transport, kind, clock=clock) as there:
        manifest = queued(kind)
        kueue, size = Kueue(there, manifest), size_of(manifest, kind)
        there.script.when("*", times=1).run()
        there.script.when("*").run().after(3).succeed()
        there.start()
        await there.submit(manifest)
        await there.until_condition("Suspended")
        await there.quiet()
        assert not await there.has_children()
        assert not await kueue.is_active()
        assert "startTime" not in await there.status()

        await kueue.admit("spot")
        await kueue.run(size)
        await there.until(kueue.is_ready)
        await there.until(kueue.is_active)
        await demand_placed(there, kueue, "spot")
        assert (await there.condition("Suspended") or {})["reason"] == f"{kind.job_type.kind}Resumed"
        first = await there.names_and_uids()

        await kueue.stop()
        await there.until_condition("Suspended")
        assert not await kueue.is_active()
        assert (await there.condition("Running") or {})["status"] == "False"

        async def has_made_room() -> bool:
            return not await there.has_children()

        await there.until(has_made_room)
        assert await kueue.verdict() is None

        await kueue.admit("reserved")
        await kueue.run(size)
        await there.until(kueue.is_ready)
        await demand_placed(there, kueue, "reserved")
        assert not set((await there.names_and_uids()).values()) & set(first.values())
        await demand_success(there, kueue)


async def demand_success(there: Stage, kueue: Kueue) -> None:
    """Once it is done it stays so, whatever Kueue does to it."""
    succeeded = await there.until_condition("Succeeded")
    assert await kueue.verdict() == ("Succeeded", succeeded["message"])
    assert succeeded["message"]
    await there.quiet()
    status = await there.status()
    await kueue.stop()
    await there.quiet()
    assert await there.status() == status


async def belong_to_another_cluster(transport: Transport, clock: Clock, kind: type[DLJob]) -> None:
    """A job that runs in another cluster has nothing here, and what Kueue copies from there is left as it is."""
    async with stage(transport, kind, clock=clock) as there:
        manifest = queued(kind, managedBy="kueue.x-k8s.io/multikueue")
        kueue = Kueue(there, manifest)
        there.start()
        await there.submit(manifest)
        await kueue.admit("remote")
        running = {"type": "Running", "status": "True", "reason": "There", "message": "it runs there", "lastTransitionTime": None}
        status = {"conditions": [{name: value for name, value in running.items() if value}], "replicaStatuses": {"Worker": {"active": 2}}}
        await kueue.copy_status(status)
        await there.restart()
        await there.quiet()
        assert await there.status() == status
        assert not await there.has_children()
        assert await there.all(EVENTS) == {}


async def wait_in_a_gang(transport: Transport, clock: Clock) -> None:
    """A suspended job has no group; whoever lets it go on finds it in one, and its pods wait until volcano lets that in."""
    async with stage(transport, PyTorchJob, clock=clock, options=BY_VOLCANO, more=(definition("volcano"),)) as there:
        manifest = queued(PyTorchJob)
        kueue, groups = Kueue(there, manifest), Groups(there.client, "volcano", namespace=there.namespace)
        there.script.when("*").run()
        there.start()
        await there.submit(manifest)
        await there.until_condition("Suspended")
        await there.quiet()
        assert await groups.get() is None
        await kueue.admit("spot")
        await there.until(groups.get)
        await there.quiet()
        assert not await there.has_children()
        assert not await kueue.is_active()
        await groups.say("Inqueue")
        await kueue.run(2)
        await demand_placed(there, kueue, "spot")


BY_KIND = pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.job_type.kind)


@BY_KIND
@virtual_time
async def test_a_job_waits_runs_where_it_is_told_makes_room_and_ends_on_the_embedded_server(kind: type[DLJob]) -> None:
    await on_embedded(wait_run_make_room_and_end, kind)


async def test_jobs_of_all_kinds_wait_run_where_they_are_told_make_room_and_end_on_the_real_server(real_cluster: RealCluster) -> None:
    async with asyncio.TaskGroup() as group:
        for kind in ALL_KINDS:
            group.create_task(on_real(wait_run_make_room_and_end, real_cluster, kind), name=kind.job_type.kind)


@BY_KIND
@virtual_time
async def test_a_job_of_another_cluster_is_left_alone_on_the_embedded_server(kind: type[DLJob]) -> None:
    await on_embedded(belong_to_another_cluster, kind)


async def test_a_job_of_another_cluster_is_left_alone_on_the_real_server(real_cluster: RealCluster) -> None:
    await on_real(belong_to_another_cluster, real_cluster, PyTorchJob)


@virtual_time
async def test_a_queued_job_is_placed_as_a_gang_on_the_embedded_server() -> None:
    await on_embedded(wait_in_a_gang)


async def test_a_queued_job_is_placed_as_a_gang_on_the_real_server(real_cluster: RealCluster) -> None:
    await on_real(wait_in_a_gang, real_cluster)
