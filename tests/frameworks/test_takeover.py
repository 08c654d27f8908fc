"""Whoever stops Kubeflow's operator and starts dlop: running jobs go on as if nothing had happened, and come to their ends."""

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

from dlop.api.crd import definitions
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
from dlop.testing.kubelet import Kubelet
from dlop.testing.operator_runner import RunningOperator
from dlop.testing.pod_steps import Step
from dlop.testing.script import Script
from dlop.testing.virtual_time import LoopClock, virtual_time
from tests.frameworks.golden_kubelet import Ended
from tests.frameworks.kubeflow_jobs import mpi_job
from tests.frameworks.old_operator import ALL_KINDS, LONG_AGO, LeftJob, belongings, leave, moments, objects_while_running

JOBS = 50
SINCE_LONG_AGO = 15 * 86_400
NOW = datetime.fromisoformat(LONG_AGO).timestamp() + SINCE_LONG_AGO


@dataclass(frozen=True, slots=True)
class Place:
    """A namespace with a kubelet that does only what it is told, and an operator that has not started."""

    client: Client
    kubelet: Kubelet
    operator: RunningOperator
    namespace: str

    async def job(self, left: LeftJob) -> JsonObject:
        return await self.client.get(left.resource, left.name, namespace=self.namespace)

    async def pods(self) -> dict[str, str]:
        """The uids of all pods by name."""
        found = await self.client.list(PODS, namespace=self.namespace)
        return {body["metadata"]["name"]: body["metadata"]["uid"] for body in found["items"]}

    async def perform(self, pod: str, step: Step) -> None:
        await self.kubelet.perform(f"{self.namespace}/{pod}", step)

    async def until(self, left: LeftJob, reached: Callable[[JsonObject], bool], *, within_seconds: float = 60.0) -> JsonObject:
        """Wait until the status of a job is so."""
        status: JsonObject = {}
        try:
            async with asyncio.timeout(within_seconds):
                while not reached(status):
                    self.operator.demand()
                    await asyncio.sleep(0.05)
                    status = (await self.job(left)).get("status", {})
        except TimeoutError:
            raise AssertionError(f"not reached: {left.name}, a {left.resource.kind} as in {left.golden}: {status}") from None
        return status

    def writes(self) -> list[str]:
        """What the operator has changed, events apart."""
        done = (write.request for write in self.operator.wire.writes if write.status is not None and write.status < 300)
        return [f"{request.method} {request.path}" for request in done if not request.path.endswith("/events")]

    def writes_to(self, *plurals: str) -> list[str]:
        """Those of them that changed, made or deleted objects of these types."""
        return [write for write in self.writes() if set(write.split("/")) & set(plurals)]


@asynccontextmanager
async def place(transport: Transport, *, clock: Callable[[], float]) -> AsyncIterator[Place]:
    client = Client(transport)
    await apply(client, definitions(ALL_KINDS), say=lambda _: None)
    namespace = f"takeover-{uuid.uuid4().hex[:8]}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    settings = Settings.model_validate({"leader_election": False, "bind_address": "off", "namespaces": [namespace]})
    operator = RunningOperator(transport, frameworks=ALL_KINDS, clock=clock, rng=random.Random(0), settings=settings)
    script = Script()
    script.when("*").until_told()
    try:
        async with Kubelet(client, script, namespace=namespace, clock=clock, stop_seconds=0.1) as kubelet:
            yield Place(client, kubelet, operator, namespace)
    finally:
        await operator.stop()
        await client.delete(NAMESPACES, namespace)


async def left_behind(there: Place, count: int = JOBS, *, prefix: str = "old-") -> list[LeftJob]:
    """So many jobs, of all shapes in turn."""
    shapes = itertools.islice(itertools.cycle(moments()), count)
    jobs = (
        leave(there.client, there.kubelet, shape, name=f"{prefix}{number}", namespace=there.namespace)
        for number, shape in enumerate(shapes)
    )
    return list(await asyncio.gather(*jobs))


def is_taken_over(status: JsonObject) -> bool:
    return "dlop" in status


def has_succeeded(status: JsonObject) -> bool:
    return any(condition["type"] == "Succeeded" and condition["status"] == "True" for condition in status.get("conditions", ()))


async def take_over_and_finish(transport: Transport, *, clock: Callable[[], float]) -> None:
    """Fifty jobs change hands without a pod being touched, and then come to their ends."""
    async with place(transport, clock=clock) as there:
        jobs = await left_behind(there)
        before, things = await there.pods(), await belongings(there.client, there.namespace)
        there.operator.start()
        await demand_untouched(there, jobs)
        assert await belongings(there.client, there.namespace) == things
        await asyncio.gather(*(finish(there, left) for left in jobs))
        assert (await there.pods()).items() <= before.items()
        assert [write for write in there.writes() if write.startswith("POST")] == []


async def demand_untouched(there: Place, jobs: list[LeftJob]) -> None:
    """Each job gets dlop's record and keeps every word that its status had. Pods and services are left as they are."""
    for left in jobs:
        status = await there.until(left, is_taken_over)
        assert {name: value for name, value in status.items() if name != "dlop"} == left.status, left.golden
    await asyncio.sleep(1)
    paths = (left.resource.path(namespace=there.namespace, name=left.name, subresource="status") for left in jobs)
    assert sorted(there.writes_to("status")) == sorted(f"PATCH {path}" for path in paths)
    assert there.writes_to("pods", "services") == []


async def finish(there: Place, left: LeftJob) -> None:
    for pod in left.pods:
        await there.perform(pod, Ended(0))
    status = await there.until(left, has_succeeded)
    assert status["startTime"] == left.status["startTime"]
    assert status["completionTime"]


def test_every_kind_is_among_the_jobs_that_are_left_behind() -> None:
    assert {moment.golden.manifest["kind"] for moment in moments()} == {kind.job_type.kind for kind in ALL_KINDS}


def test_what_launchers_were_told_is_what_was_recorded_in_the_end() -> None:
    (recorded,) = (moment.golden for moment in moments() if moment.golden.name == "mpi")
    assert objects_while_running(recorded)["configmaps"] == recorded.body["objects_after"]["configmaps"]


@virtual_time
async def test_fifty_jobs_of_the_old_operator_are_taken_over_and_finish_on_the_embedded_server() -> None:
    clock = LoopClock()
    async with EmbeddedCluster(clock=clock) as cluster:
        await take_over_and_finish(cluster.transport(), clock=clock)


async def test_fifty_jobs_of_the_old_operator_are_taken_over_and_finish_on_the_real_server(real_cluster: RealCluster) -> None:
    transport = await connect(str(real_cluster.kubeconfig_path))
    try:
        await take_over_and_finish(transport, clock=time.time)
    finally:
        await transport.close()


# --- jobs to which something happens --------------------------------------------------------------------------------------


@asynccontextmanager
async def embedded() -> AsyncIterator[Place]:
    clock = LoopClock(start=NOW)
    async with EmbeddedCluster(clock=clock) as cluster, place(cluster.transport(), clock=clock) as there:
        yield there


@virtual_time
async def test_jobs_with_long_names_keep_their_pods_and_all_that_belongs_to_them_and_finish() -> None:
    async with embedded() as there:
        jobs = await left_behind(there, len(list(moments())), prefix="l" * 61)
        before, things = await there.pods(), await belongings(there.client, there.namespace)
        there.operator.start()
        await asyncio.gather(*(there.until(left, is_taken_over) for left in jobs))
        await asyncio.sleep(60)
        after = await belongings(there.client, there.namespace)
        assert (await there.pods(), things.items() <= after.items()) == (before, True)
        assert {name.partition("/")[0] for name in after.keys() - things.keys()} == {"services"}
        await asyncio.gather(*(finish(there, left) for left in jobs))
        assert (await there.pods()).items() <= before.items()


@virtual_time
async def test_a_finished_pod_with_a_name_that_dlop_would_cut_is_not_run_again() -> None:
    async with embedded() as there:
        left = await left_as(there, "tf-single", name="t" * 60)
        for pod in left.pods:
            await there.perform(pod, Ended(0))
        there.operator.start()
        await there.until(left, has_succeeded)
        assert await there.pods() == left.pods


async def left_as(there: Place, golden: str, *, name: str = "old", spec: JsonObject | None = None) -> LeftJob:
    """One job as in this recording, with further fields in its spec."""
    moment = next(each for each in moments() if each.golden.name == golden)
    moment.golden.manifest["spec"] |= spec or {}
    return await leave(there.client, there.kubelet, moment, name=name, namespace=there.namespace)


@virtual_time
async def test_what_ended_while_no_operator_was_there_is_noticed() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker")
        for pod in left.pods:
            await there.perform(pod, Ended(0))
        there.operator.start()
        await there.until(left, has_succeeded)
        assert await there.pods() == left.pods


@virtual_time
async def test_a_pod_of_the_old_operator_that_fails_is_replaced_alone() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-exitcode-retry")
        there.operator.start()
        await there.until(left, is_taken_over)
        await there.perform("old-worker-0", Ended(137))
        status = await there.until(left, lambda status: status.get("dlop", {}).get("restarts") == {"Worker": 1})
        assert "Failed" not in str(status["conditions"])
        await asyncio.sleep(60)
        pods = await there.pods()
        assert [name for name, uid in left.pods.items() if pods[name] != uid] == ["old-worker-0"]


@virtual_time
async def test_a_pod_of_the_old_operator_that_was_done_is_not_run_again_when_it_is_collected() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker")
        await there.perform("old-worker-0", Ended(0))
        there.operator.start()
        await there.until(left, is_taken_over)
        await there.client.delete(PODS, "old-worker-0", namespace=there.namespace)
        await asyncio.sleep(60)
        assert [write for write in there.writes() if write.startswith("POST")] == []


@virtual_time
async def test_only_what_the_old_operator_had_not_made_yet_is_made() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker")
        await there.client.delete(PODS, "old-worker-1", namespace=there.namespace)
        await asyncio.sleep(60)
        there.operator.start()
        await there.until(left, is_taken_over)
        await asyncio.sleep(60)
        pods = await there.pods()
        assert pods.keys() == left.pods.keys()
        assert [name for name, uid in left.pods.items() if pods[name] != uid] == ["old-worker-1"]


@virtual_time
async def test_a_finished_job_of_the_old_operator_is_not_touched() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker")
        await old_end(there, left)
        there.operator.start()
        await asyncio.sleep(3600)
        assert there.writes() == []


@virtual_time
async def test_the_time_to_live_of_a_finished_job_runs_from_the_end_that_the_old_operator_saw() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker", spec={"runPolicy": {"ttlSecondsAfterFinished": SINCE_LONG_AGO + 600}})
        await old_end(there, left)
        there.operator.start()
        await asyncio.sleep(500)
        assert there.writes() == []
        await asyncio.sleep(200)
        assert there.writes() == [f"DELETE {left.resource.path(namespace=there.namespace, name=left.name)}"]


async def old_end(there: Place, left: LeftJob) -> None:
    """Let the job come to its end under the old operator, long ago."""
    for pod in left.pods:
        await there.perform(pod, Ended(0))
    told = {"reason": "PyTorchJobSucceeded", "message": "done", "lastUpdateTime": LONG_AGO, "lastTransitionTime": LONG_AGO}
    conditions = [*left.status["conditions"], {"type": "Succeeded", "status": "True", **told}]
    body = {"status": {"conditions": conditions, "completionTime": LONG_AGO}}
    await there.client.patch(left.resource, left.name, body, namespace=there.namespace, subresource="status")


@virtual_time
async def test_the_deadline_of_a_job_runs_from_the_start_that_the_old_operator_saw() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker", spec={"runPolicy": {"activeDeadlineSeconds": SINCE_LONG_AGO + 600}})
        there.operator.start()
        await there.until(left, is_taken_over)
        await asyncio.sleep(500)
        assert "Failed" not in str((await there.job(left))["status"]["conditions"])
        status = await there.until(left, lambda status: "active longer" in str(status), within_seconds=120)
        assert status["startTime"] == LONG_AGO


@virtual_time
async def test_a_job_of_the_old_operator_can_be_suspended_and_resumed() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker")
        there.operator.start()
        await there.until(left, is_taken_over)
        await there.client.patch(left.resource, left.name, {"spec": {"runPolicy": {"suspend": True}}}, namespace=there.namespace)
        await there.until(left, lambda status: status.get("dlop", {}).get("phase") == "Suspended")
        await asyncio.sleep(60)
        assert await there.pods() == {}
        await there.client.patch(left.resource, left.name, {"spec": {"runPolicy": {"suspend": False}}}, namespace=there.namespace)
        await asyncio.sleep(60)
        assert (await there.pods()).keys() == left.pods.keys()


@pytest.mark.parametrize("workers", [1, 3])
@virtual_time
async def test_the_pods_of_a_job_that_was_taken_over_stay_when_it_is_scaled(workers: int) -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-master-worker")
        there.operator.start()
        await there.until(left, is_taken_over)
        roles = {"Worker": {"replicas": workers}}
        await there.client.patch(left.resource, left.name, {"spec": {"pytorchReplicaSpecs": roles}}, namespace=there.namespace)
        await asyncio.sleep(60)
        pods = await there.pods()
        assert sorted(pods) == ["old-master-0", *(f"old-worker-{index}" for index in range(workers))]
        assert [name for name, uid in pods.items() if left.pods.get(name, uid) != uid] == []


@virtual_time
async def test_under_a_definition_that_forgets_what_dlop_has_to_remember_nothing_is_touched_until_it_is_replaced() -> None:
    async with embedded() as there:
        left = await left_as(there, "pytorch-exitcode-retry")
        await forget_records(there, left)
        there.operator.start()
        await there.perform("old-worker-0", Ended(137))
        await asyncio.sleep(600)
        assert there.writes() == []
        await apply(there.client, definitions(ALL_KINDS), say=lambda _: None)
        await there.until(left, lambda status: status.get("dlop", {}).get("restarts") == {"Worker": 1})
        await asyncio.sleep(60)
        assert (await there.pods()).keys() == left.pods.keys()


async def forget_records(there: Place, left: LeftJob) -> None:
    """Put a definition in place whose status has the fields of the old operator and no others."""
    name = left.resource.qualified_name
    definition = await there.client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    known: JsonObject = dict.fromkeys(("conditions", "replicaStatuses", "startTime", "completionTime"), anything)
    versions = definition["spec"]["versions"]
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {"type": "object", "properties": known}
    await there.client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, {"spec": {"versions": versions}})


@virtual_time
async def test_mpi_jobs_of_another_version_are_somebody_elses_and_the_other_kinds_run() -> None:
    async with embedded() as there:
        theirs = await with_another_version(there, MPIJob)
        body = {"apiVersion": theirs.api_version, "kind": "MPIJob", "metadata": {"name": "theirs"}, "spec": mpi_job()["spec"]}
        await there.client.create(theirs, body, namespace=there.namespace)
        left = await left_as(there, "pytorch-master-worker")
        there.operator.start()
        await there.until(left, is_taken_over)
        await asyncio.sleep(600)
        assert there.writes() == [f"PATCH {left.resource.path(namespace=there.namespace, name=left.name, subresource='status')}"]


async def with_another_version(there: Place, kind: type[DLJob]) -> Resource:
    """Put a definition in place that knows the kind in another version only."""
    (body,) = definitions([kind])
    await there.client.delete(CUSTOM_RESOURCE_DEFINITIONS, body["metadata"]["name"])
    body["spec"]["versions"][0]["name"] = "v2beta1"
    await apply(there.client, [body], say=lambda _: None)
    return replace(kind.job_type.resource, version="v2beta1")
