"""Replacing Kubeflow's operator with dlop: running jobs continue undisturbed and finish."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime

import pytest
from real_cluster import RealCluster

from dlop.api.crd import build_crds
from dlop.deploy.apply import apply
from dlop.embedded.cluster import EmbeddedCluster
from dlop.frameworks.kubeflow.mpi.job import MPIJob
from dlop.job import DLJob
from dlop.kube.client import Client
from dlop.kube.http.transport import connect
from dlop.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, PODS, Resource
from dlop.kube.transport import Transport
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.kubelet import ScriptedKubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.pod_steps import Step
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock, virtual_time
from tests.frameworks.golden_pod_steps import FinishPod
from tests.frameworks.kubeflow_jobs import mpi_job
from tests.frameworks.takeover_jobs import (
    ALL_KINDS,
    RECORDED_AT,
    InheritedJob,
    create_inherited_job,
    objects_while_running,
    owned_objects,
    running_states,
)

JOBS = 50
SECONDS_SINCE_RECORDING = 15 * 86_400
NOW = datetime.fromisoformat(RECORDED_AT).timestamp() + SECONDS_SINCE_RECORDING


@dataclass(frozen=True, slots=True)
class TakeoverSandbox:
    """A namespace with a kubelet that acts on request only, and an operator that is not started yet."""

    client: Client
    kubelet: ScriptedKubelet
    operator: RunningOperator
    namespace: str

    async def get_job(self, job: InheritedJob) -> JsonObject:
        return await self.client.get(job.resource, job.name, namespace=self.namespace)

    async def pod_uids(self) -> dict[str, str]:
        response = await self.client.list(PODS, namespace=self.namespace)
        return {body["metadata"]["name"]: body["metadata"]["uid"] for body in response["items"]}

    async def perform(self, pod: str, step: Step) -> None:
        await self.kubelet.perform(f"{self.namespace}/{pod}", step)

    async def until(self, job: InheritedJob, reached: Callable[[JsonObject], bool], *, within_seconds: float = 60.0) -> JsonObject:
        """Wait until `reached` holds for the status of a job."""
        status: JsonObject = {}
        try:
            async with asyncio.timeout(within_seconds):
                while not reached(status):
                    self.operator.raise_if_stopped()
                    await asyncio.sleep(0.05)
                    status = (await self.get_job(job)).get("status", {})
        except TimeoutError:
            raise AssertionError(f"not reached: {job.resource.kind} {job.name} from recording {job.golden}: {status}") from None
        return status

    def writes(self) -> list[str]:
        """Successful writes of the operator without events."""
        requests = (write.request for write in self.operator.transport.writes if write.status is not None and write.status < 300)
        return [f"{request.method} {request.path}" for request in requests if not request.path.endswith("/events")]

    def writes_to(self, *plurals: str) -> list[str]:
        """Successful writes to objects of these types."""
        return [write for write in self.writes() if set(write.split("/")) & set(plurals)]


@asynccontextmanager
async def open_takeover_sandbox(
    transport: Transport, *, clock: Callable[[], float], kinds: tuple[type[DLJob], ...] = ALL_KINDS
) -> AsyncIterator[TakeoverSandbox]:
    client = Client(transport)
    await apply(client, build_crds(kinds), report=lambda _: None)
    namespace = f"takeover-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=kinds, clock=clock, rng=random.Random(0), settings=settings)
    script = Script()
    script.when("*").until_released()
    try:
        async with ScriptedKubelet(client, script, namespace=namespace, clock=clock, stop_seconds=0.1) as kubelet:
            yield TakeoverSandbox(client, kubelet, operator, namespace)
    finally:
        await operator.stop()
        await client.delete(NAMESPACES, namespace)


async def create_jobs(sandbox: TakeoverSandbox, count: int = JOBS, *, prefix: str = "old-") -> list[InheritedJob]:
    """Create `count` jobs, cycling through all recordings."""
    states = itertools.islice(itertools.cycle(running_states()), count)
    jobs = (
        create_inherited_job(sandbox.client, sandbox.kubelet, state, name=f"{prefix}{number}", namespace=sandbox.namespace)
        for number, state in enumerate(states)
    )
    return list(await asyncio.gather(*jobs))


def is_taken_over(status: JsonObject) -> bool:
    return "dlop" in status


def has_succeeded(status: JsonObject) -> bool:
    return any(condition["type"] == "Succeeded" and condition["status"] == "True" for condition in status.get("conditions", ()))


async def take_over_and_finish(transport: Transport, *, clock: Callable[[], float]) -> None:
    """Fifty jobs are taken over without a write to their pods, and then finish."""
    async with open_takeover_sandbox(transport, clock=clock) as sandbox:
        jobs = await create_jobs(sandbox)
        pods, objects = await sandbox.pod_uids(), await owned_objects(sandbox.client, sandbox.namespace)
        sandbox.operator.start()
        await check_untouched(sandbox, jobs)
        assert await owned_objects(sandbox.client, sandbox.namespace) == objects
        await asyncio.gather(*(finish(sandbox, job) for job in jobs))
        assert (await sandbox.pod_uids()).items() <= pods.items()
        assert [write for write in sandbox.writes() if write.startswith("POST")] == []


async def check_untouched(sandbox: TakeoverSandbox, jobs: list[InheritedJob]) -> None:
    """Check that each job gets dlop's record, keeps the rest of its status, and that its pods and services are not written."""
    for job in jobs:
        status = await sandbox.until(job, is_taken_over)
        assert {name: value for name, value in status.items() if name != "dlop"} == job.status, job.golden
    await asyncio.sleep(1)
    paths = (job.resource.path(namespace=sandbox.namespace, name=job.name, subresource="status") for job in jobs)
    assert sorted(sandbox.writes_to("status")) == sorted(f"PATCH {path}" for path in paths)
    assert sandbox.writes_to("pods", "services") == []


async def finish(sandbox: TakeoverSandbox, job: InheritedJob) -> None:
    for pod in job.pods:
        await sandbox.perform(pod, FinishPod(0))
    status = await sandbox.until(job, has_succeeded)
    assert status["startTime"] == job.status["startTime"]
    assert status["completionTime"]


def test_there_is_a_running_state_of_every_kind() -> None:
    assert {state.golden.manifest["kind"] for state in running_states()} == {kind.job_type.kind for kind in ALL_KINDS}


def test_the_updated_config_map_of_a_launcher_matches_the_one_recorded_at_the_end() -> None:
    (recorded,) = (state.golden for state in running_states() if state.golden.name == "mpi")
    assert objects_while_running(recorded)["configmaps"] == recorded.body["objects_after"]["configmaps"]


@virtual_time
async def test_fifty_jobs_of_kubeflows_operator_are_taken_over_and_finish_on_the_embedded_server() -> None:
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        await take_over_and_finish(cluster.transport(), clock=clock)


async def test_fifty_jobs_of_kubeflows_operator_are_taken_over_and_finish_on_the_real_server(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        await take_over_and_finish(transport, clock=time.time)
    finally:
        await transport.close()


# --- individual jobs ---------------------------------------------------------------------------------------


@asynccontextmanager
async def open_embedded_sandbox() -> AsyncIterator[TakeoverSandbox]:
    clock = LoopClock(start=NOW)
    async with EmbeddedCluster(clock=clock) as cluster, open_takeover_sandbox(cluster.transport(), clock=clock) as sandbox:
        yield sandbox


@virtual_time
async def test_jobs_with_long_names_keep_all_their_objects_and_finish() -> None:
    async with open_embedded_sandbox() as sandbox:
        jobs = await create_jobs(sandbox, len(list(running_states())), prefix="l" * 61)
        pods, objects = await sandbox.pod_uids(), await owned_objects(sandbox.client, sandbox.namespace)
        sandbox.operator.start()
        await asyncio.gather(*(sandbox.until(job, is_taken_over) for job in jobs))
        await asyncio.sleep(60)
        after = await owned_objects(sandbox.client, sandbox.namespace)
        assert (await sandbox.pod_uids(), objects.items() <= after.items()) == (pods, True)
        assert {name.partition("/")[0] for name in after.keys() - objects.keys()} == {"services"}
        await asyncio.gather(*(finish(sandbox, job) for job in jobs))
        assert (await sandbox.pod_uids()).items() <= pods.items()


@virtual_time
async def test_a_finished_pod_whose_name_dlop_would_truncate_is_not_run_again() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "tf-single", name="t" * 60)
        for pod in job.pods:
            await sandbox.perform(pod, FinishPod(0))
        sandbox.operator.start()
        await sandbox.until(job, has_succeeded)
        assert await sandbox.pod_uids() == job.pods


async def create_job(sandbox: TakeoverSandbox, golden: str, *, name: str = "old", spec: JsonObject | None = None) -> InheritedJob:
    """Create the job of a recording with further fields in its spec."""
    state = next(state for state in running_states() if state.golden.name == golden)
    state.golden.manifest["spec"] |= spec or {}
    return await create_inherited_job(sandbox.client, sandbox.kubelet, state, name=name, namespace=sandbox.namespace)


@virtual_time
async def test_pods_that_finished_while_no_operator_ran_are_noticed() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-master-worker")
        for pod in job.pods:
            await sandbox.perform(pod, FinishPod(0))
        sandbox.operator.start()
        await sandbox.until(job, has_succeeded)
        assert await sandbox.pod_uids() == job.pods


@virtual_time
async def test_a_failed_pod_of_kubeflows_operator_is_replaced_and_the_others_are_kept() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-exitcode-retry")
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await sandbox.perform("old-worker-0", FinishPod(137))
        status = await sandbox.until(job, lambda status: status.get("dlop", {}).get("restarts") == {"Worker": 1})
        assert "Failed" not in str(status["conditions"])
        await asyncio.sleep(60)
        pods = await sandbox.pod_uids()
        assert [name for name, uid in job.pods.items() if pods[name] != uid] == ["old-worker-0"]


@virtual_time
async def test_a_succeeded_pod_of_kubeflows_operator_is_not_run_again_when_it_is_deleted() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-master-worker")
        await sandbox.perform("old-worker-0", FinishPod(0))
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await sandbox.client.delete(PODS, "old-worker-0", namespace=sandbox.namespace)
        await asyncio.sleep(60)
        assert [write for write in sandbox.writes() if write.startswith("POST")] == []


@virtual_time
async def test_only_missing_pods_are_created() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-master-worker")
        await sandbox.client.delete(PODS, "old-worker-1", namespace=sandbox.namespace)
        await asyncio.sleep(60)
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await asyncio.sleep(60)
        pods = await sandbox.pod_uids()
        assert pods.keys() == job.pods.keys()
        assert [name for name, uid in job.pods.items() if pods[name] != uid] == ["old-worker-1"]


@virtual_time
async def test_a_finished_job_of_kubeflows_operator_is_not_touched() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-master-worker")
        await finish_under_kubeflow(sandbox, job)
        sandbox.operator.start()
        await asyncio.sleep(3600)
        assert sandbox.writes() == []


@virtual_time
async def test_the_ttl_of_a_job_starts_at_the_completion_time_that_kubeflows_operator_wrote() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(
            sandbox, "pytorch-master-worker", spec={"runPolicy": {"ttlSecondsAfterFinished": SECONDS_SINCE_RECORDING + 600}}
        )
        await finish_under_kubeflow(sandbox, job)
        sandbox.operator.start()
        await asyncio.sleep(500)
        assert sandbox.writes() == []
        await asyncio.sleep(200)
        assert sandbox.writes() == [f"DELETE {job.resource.path(namespace=sandbox.namespace, name=job.name)}"]


async def finish_under_kubeflow(sandbox: TakeoverSandbox, job: InheritedJob) -> None:
    """Finish the job as Kubeflow's operator would have done at the time of the recording."""
    for pod in job.pods:
        await sandbox.perform(pod, FinishPod(0))
    details = {"reason": "PyTorchJobSucceeded", "message": "done", "lastUpdateTime": RECORDED_AT, "lastTransitionTime": RECORDED_AT}
    conditions = [*job.status["conditions"], {"type": "Succeeded", "status": "True", **details}]
    body = {"status": {"conditions": conditions, "completionTime": RECORDED_AT}}
    await sandbox.client.patch(job.resource, job.name, body, namespace=sandbox.namespace, subresource="status")


@virtual_time
async def test_the_deadline_of_a_job_starts_at_the_start_time_that_kubeflows_operator_wrote() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(
            sandbox, "pytorch-master-worker", spec={"runPolicy": {"activeDeadlineSeconds": SECONDS_SINCE_RECORDING + 600}}
        )
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await asyncio.sleep(500)
        assert "Failed" not in str((await sandbox.get_job(job))["status"]["conditions"])
        status = await sandbox.until(job, lambda status: "active longer" in str(status), within_seconds=120)
        assert status["startTime"] == RECORDED_AT


@virtual_time
async def test_a_job_of_kubeflows_operator_can_be_suspended_and_resumed() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-master-worker")
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await sandbox.client.patch(job.resource, job.name, {"spec": {"runPolicy": {"suspend": True}}}, namespace=sandbox.namespace)
        await sandbox.until(job, lambda status: status.get("dlop", {}).get("phase") == "Suspended")
        await asyncio.sleep(60)
        assert await sandbox.pod_uids() == {}
        await sandbox.client.patch(job.resource, job.name, {"spec": {"runPolicy": {"suspend": False}}}, namespace=sandbox.namespace)
        await asyncio.sleep(60)
        assert (await sandbox.pod_uids()).keys() == job.pods.keys()


@pytest.mark.parametrize("workers", [1, 3])
@virtual_time
async def test_scaling_a_job_keeps_the_running_pods_of_kubeflows_operator(workers: int) -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-master-worker")
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        roles = {"Worker": {"replicas": workers}}
        await sandbox.client.patch(job.resource, job.name, {"spec": {"pytorchReplicaSpecs": roles}}, namespace=sandbox.namespace)
        await asyncio.sleep(60)
        pods = await sandbox.pod_uids()
        assert sorted(pods) == ["old-master-0", *(f"old-worker-{index}" for index in range(workers))]
        assert [name for name, uid in pods.items() if job.pods.get(name, uid) != uid] == []


@virtual_time
async def test_nothing_is_written_while_the_crd_prunes_the_record_of_dlop() -> None:
    async with open_embedded_sandbox() as sandbox:
        job = await create_job(sandbox, "pytorch-exitcode-retry")
        await prune_records(sandbox, job)
        sandbox.operator.start()
        await sandbox.perform("old-worker-0", FinishPod(137))
        await asyncio.sleep(600)
        assert sandbox.writes() == []
        await apply(sandbox.client, build_crds(ALL_KINDS), report=lambda _: None)
        await sandbox.until(job, lambda status: status.get("dlop", {}).get("restarts") == {"Worker": 1})
        await asyncio.sleep(60)
        assert (await sandbox.pod_uids()).keys() == job.pods.keys()


async def prune_records(sandbox: TakeoverSandbox, job: InheritedJob) -> None:
    """Install a CRD whose status has only the fields of Kubeflow's operator."""
    name = job.resource.qualified_name
    crd = await sandbox.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    known: JsonObject = dict.fromkeys(("conditions", "replicaStatuses", "startTime", "completionTime"), anything)
    versions = crd["spec"]["versions"]
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {"type": "object", "properties": known}
    await sandbox.client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": {"versions": versions}})


@virtual_time
async def test_mpi_jobs_of_an_unknown_version_are_ignored_and_the_other_kinds_run() -> None:
    async with open_embedded_sandbox() as sandbox:
        resource = await install_other_version(sandbox, MPIJob)
        body = {"apiVersion": resource.api_version, "kind": "MPIJob", "metadata": {"name": "other"}, "spec": mpi_job()["spec"]}
        await sandbox.client.create(resource, body, namespace=sandbox.namespace)
        job = await create_job(sandbox, "pytorch-master-worker")
        sandbox.operator.start()
        await sandbox.until(job, is_taken_over)
        await asyncio.sleep(600)
        assert sandbox.writes() == [f"PATCH {job.resource.path(namespace=sandbox.namespace, name=job.name, subresource='status')}"]


async def install_other_version(sandbox: TakeoverSandbox, kind: type[DLJob]) -> Resource:
    """Install a CRD that serves the kind in another version only."""
    (crd,) = build_crds([kind])
    await sandbox.client.delete(CUSTOM_RESOURCE_DEFINITIONS, crd["metadata"]["name"])
    crd["spec"]["versions"][0]["name"] = "v2beta1"
    await apply(sandbox.client, [crd], report=lambda _: None)
    return replace(kind.job_type.resource, version="v2beta1")
