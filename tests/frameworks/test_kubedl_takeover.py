"""Replacing KubeDL with dlop: running jobs continue undisturbed and finish."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import pytest
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.http.transport import connect
from dlop.kube.resources import CONFIG_MAPS, PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import LoopClock, virtual_time
from tests.frameworks.golden_pod_steps import FinishPod, RunPod
from tests.frameworks.kubedl_inherited_jobs import create_inherited_job
from tests.frameworks.kubedl_manifests import KINDS
from tests.frameworks.kubedl_objects import WRITTEN_AT, KubeDLState, states
from tests.frameworks.takeover_jobs import InheritedJob, owned_objects
from tests.frameworks.test_takeover import TakeoverSandbox, has_succeeded, is_taken_over, open_takeover_sandbox

JOBS = 30
SECONDS_SINCE = 15 * 86_400
NOW = datetime.fromisoformat(WRITTEN_AT).timestamp() + SECONDS_SINCE


async def create_job(
    sandbox: TakeoverSandbox, state: KubeDLState, *, name: str = "old", manifest: JsonObject | None = None
) -> InheritedJob:
    """Create a job on the server with all its objects and its status."""
    return await create_inherited_job(sandbox.client, sandbox.kubelet, state, name=name, namespace=sandbox.namespace, manifest=manifest)


@asynccontextmanager
async def open_sandbox() -> AsyncIterator[TakeoverSandbox]:
    clock = LoopClock(start=NOW)
    async with EmbeddedCluster(clock=clock) as cluster, open_takeover_sandbox(cluster.transport(), clock=clock, kinds=KINDS) as sandbox:
        yield sandbox


async def finish(sandbox: TakeoverSandbox, job: InheritedJob, state: KubeDLState) -> None:
    for pod, phase in state.phases(job.name).items():
        if phase == "Pending":
            await sandbox.perform(pod, RunPod())
    for pod in state.last_pods(job.name):
        await sandbox.perform(pod, FinishPod(0))
    status = await sandbox.until(job, has_succeeded)
    assert status["startTime"] == job.status["startTime"], state.title
    assert [each["type"] for each in status["conditions"]] == ["Created", "Queuing", "Running", "Succeeded"], state.title
    assert status["completionTime"]


async def take_over_and_finish(transport: Transport, *, clock: Callable[[], float]) -> None:
    """Thirty jobs are taken over without a write to their pods and services, and then finish."""
    async with open_takeover_sandbox(transport, clock=clock, kinds=KINDS) as sandbox:
        chosen = list(itertools.islice(itertools.cycle(states("running", "partly finished", "restarted")), JOBS))
        jobs = [await create_job(sandbox, state, name=f"old-{number}") for number, state in enumerate(chosen)]
        pods, objects = await sandbox.pod_uids(), await owned_objects(sandbox.client, sandbox.namespace)
        sandbox.operator.start()
        for job, state in zip(jobs, chosen, strict=True):
            status = await sandbox.until(job, is_taken_over)
            if state.point != "restarted":
                assert {name: value for name, value in status.items() if name != "dlop"} == job.status, state.title
        await asyncio.sleep(1)
        assert sandbox.writes_to("pods", "services") == []
        assert await owned_objects(sandbox.client, sandbox.namespace) == objects
        await asyncio.gather(*(finish(sandbox, job, state) for job, state in zip(jobs, chosen, strict=True)))
        assert (await sandbox.pod_uids()).items() <= pods.items()
        assert [write for write in sandbox.writes() if write.startswith("POST")] == []


def test_there_is_a_running_state_of_every_kind() -> None:
    assert {state.kind.name for state in states("running")} == {kind.job_type.kind for kind in KINDS}


@virtual_time
async def test_thirty_jobs_of_kubedl_are_taken_over_and_finish_on_the_embedded_server() -> None:
    clock = LoopClock(start=NOW)
    async with EmbeddedCluster(clock=clock) as cluster:
        await take_over_and_finish(cluster.transport(), clock=clock)


async def test_thirty_jobs_of_kubedl_are_taken_over_and_finish_on_the_real_server(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        await take_over_and_finish(transport, clock=time.time)
    finally:
        await transport.close()


# --- individual jobs ---------------------------------------------------------------------------------------


def by_title(state: KubeDLState) -> str:
    return state.title


@pytest.mark.parametrize("state", states("created"), ids=by_title)
@virtual_time
async def test_a_job_whose_pods_have_not_started_continues_with_the_other_roles(state: KubeDLState) -> None:
    async with open_sandbox() as sandbox:
        job = await create_job(sandbox, state)
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await asyncio.sleep(60)
        assert await sandbox.pod_uids() == job.pods
        for pod in job.pods:
            await sandbox.perform(pod, RunPod())
        await asyncio.sleep(60)
        pods = await sandbox.pod_uids()
        assert pods.keys() == KubeDLState(state.kind, "running").pods("old", "").keys()
        assert job.pods.items() <= pods.items()
        for pod in pods.keys() - job.pods.keys():
            await sandbox.perform(pod, RunPod())
        running = await sandbox.until(job, lambda status: status["conditions"][-1]["type"] == "Running" if status else False)
        assert running["startTime"]
        for pod in KubeDLState(state.kind, "running").last_pods("old"):
            await sandbox.perform(pod, FinishPod(0))
        await sandbox.until(job, has_succeeded)


@pytest.mark.parametrize("state", states("succeeded", "failed"), ids=by_title)
@virtual_time
async def test_a_finished_job_of_kubedl_is_not_touched(state: KubeDLState) -> None:
    async with open_sandbox() as sandbox:
        await create_job(sandbox, state)
        sandbox.operator.start()
        await asyncio.sleep(3600)
        assert sandbox.writes_to("status", state.kind.name.lower() + "s") == []
        assert [write for write in sandbox.writes() if write.startswith("POST")] == []


@virtual_time
async def test_the_ttl_starts_at_the_completion_time_that_kubedl_wrote() -> None:
    async with open_sandbox() as sandbox:
        (state,) = (state for state in states("succeeded") if state.kind.name == "XGBoostJob")
        manifest = state.manifest("old")
        manifest["spec"]["ttlSecondsAfterFinished"] = SECONDS_SINCE + 600
        job = await create_job(sandbox, state, manifest=manifest)
        sandbox.operator.start()
        await asyncio.sleep(500)
        assert sandbox.writes() == []
        await asyncio.sleep(200)
        assert sandbox.writes() == [f"DELETE {job.resource.path(namespace=sandbox.namespace, name=job.name)}"]


@pytest.mark.parametrize("state", [state for state in states("running") if state.kind.restarted], ids=by_title)
@virtual_time
async def test_a_retryable_failure_after_the_takeover_replaces_only_the_failed_pod(state: KubeDLState) -> None:
    async with open_sandbox() as sandbox:
        job = await create_job(sandbox, state)
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        failed = f"old-{state.kind.restarted}"
        await sandbox.perform(failed, FinishPod(137))
        status = await sandbox.until(job, lambda status: bool(status.get("dlop", {}).get("restarts")))
        assert list(status["dlop"]["restarts"].values()) == [1]
        await asyncio.sleep(60)
        pods = await sandbox.pod_uids()
        assert [name for name, uid in job.pods.items() if pods[name] != uid] == [failed]


@pytest.mark.parametrize("state", [state for state in states("running") if state.kind.partly], ids=by_title)
@virtual_time
async def test_a_succeeded_pod_of_kubedl_is_not_run_again_when_it_is_deleted(state: KubeDLState) -> None:
    async with open_sandbox() as sandbox:
        job = await create_job(sandbox, KubeDLState(state.kind, "partly finished"))
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await sandbox.client.delete(PODS, f"old-{state.kind.partly}", namespace=sandbox.namespace)
        await asyncio.sleep(60)
        assert [write for write in sandbox.writes() if write.startswith("POST")] == []


@pytest.mark.parametrize("state", states("running"), ids=by_title)
@virtual_time
async def test_a_status_without_the_condition_created_keeps_the_order_of_the_others(state: KubeDLState) -> None:
    async with open_sandbox() as sandbox:
        job = await create_job(sandbox, state)
        running = [each for each in job.status["conditions"] if each["type"] == "Running"]
        patch = {"status": {"conditions": running}}
        await sandbox.client.patch(job.resource, job.name, patch, namespace=sandbox.namespace, subresource="status")
        sandbox.operator.start()
        status = await sandbox.until(job, is_taken_over)
        assert [each["type"] for each in status["conditions"]] == ["Created", "Running"]
        assert status["conditions"][-1] == running[0]


@pytest.mark.parametrize("state", states("running"), ids=by_title)
@virtual_time
async def test_a_job_with_a_long_name_keeps_its_pods_and_finishes(state: KubeDLState) -> None:
    async with open_sandbox() as sandbox:
        job = await create_job(sandbox, state, name="l" * 60)
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await asyncio.sleep(60)
        assert await sandbox.pod_uids() == job.pods
        if state.kind.name == "MPIJob":
            config_map = await sandbox.client.get(CONFIG_MAPS, f"{job.name}-config", namespace=sandbox.namespace)
            assert config_map["data"] == state.config_maps(job.name)[f"{job.name}-config"]["data"]
        await finish(sandbox, job, state)
        assert (await sandbox.pod_uids()).items() <= job.pods.items()


@virtual_time
async def test_a_launcher_without_a_named_account_gets_its_permissions_and_keeps_its_pod() -> None:
    async with open_sandbox() as sandbox:
        (state,) = (state for state in states("running") if state.kind.name == "MPIJob")
        manifest = state.manifest("old")
        del manifest["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["serviceAccountName"]
        job = await create_job(sandbox, state, manifest=manifest)
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await asyncio.sleep(60)
        for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
            assert await sandbox.client.get(resource, "old-launcher", namespace=sandbox.namespace)
        assert await sandbox.pod_uids() == job.pods
        await finish(sandbox, job, state)
