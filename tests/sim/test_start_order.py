"""Roles with `start_after` start when the other role is running, ready or succeeded, and again after a restart."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType, StartAfter, StartCondition
from dlop.jobs.lookup import JobHandle
from dlop.jobs.view import build_view
from dlop.kube.objects import Pod, object_decoder
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import settle

SERVERS = {"train-server-0", "train-server-1"}
_decode_pod = object_decoder(Pod)


class OrderedJob(DLJob):
    """Workers start when all servers run."""

    job_type = JobType(group="example.org", version="v1", kind="OrderedJob")
    replica_types = (ReplicaType("Server", required_for_success=False), ReplicaType("Worker", start_after="Server"))
    container_properties = ContainerProperties(name="main", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        return {"RANK": str(replica.index)}


class ReadyJob(OrderedJob):
    """Workers start when all servers are ready."""

    replica_types = (
        ReplicaType("Server", required_for_success=False),
        ReplicaType("Worker", start_after=StartAfter("Server", StartCondition.READY)),
    )


class PreparedJob(OrderedJob):
    """Workers start when all servers have succeeded."""

    replica_types = (ReplicaType("Server"), ReplicaType("Worker", start_after=StartAfter("Server", StartCondition.SUCCEEDED)))


def manifest(*, servers: int = 2, **run_policy: object) -> JsonObject:
    role = {"restartPolicy": "ExitCode", "template": {"spec": {"containers": [{"name": "main", "image": "train:1"}]}}}
    roles = {"Server": {**role, "replicas": servers}, "Worker": {**role, "replicas": 1}}
    return {
        "apiVersion": "example.org/v1",
        "kind": "OrderedJob",
        "metadata": {"name": "train"},
        "spec": {"replicaSpecs": roles, "runPolicy": run_policy},
    }


def waiting(kind: type[DLJob], job: ObservedJob) -> list[str]:
    """What `dlop describe` lists as reasons why the job waits."""
    handle = JobHandle.decode(kind, msgspec.json.encode(job.body))
    return list(build_view(handle, [_decode_pod(msgspec.json.encode(pod)) for pod in job.pods.values()]).pending_reasons)


@virtual_time
async def test_a_role_starts_when_all_replicas_of_the_other_role_run() -> None:
    async with OperatorKit(frameworks=[OrderedJob]) as kit:
        kit.script.when("train-server-0").run()
        kit.script.when("train-server-1").until_released().run()
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.pod_phases.get("train-server-0") == "Running")
        await settle(60)
        assert job.pods.keys() == SERVERS
        assert waiting(OrderedJob, job) == ["Worker waits for Server: 1 of 2 running"]
        kit.kubelet.release("default/train-server-1")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3)
        assert waiting(OrderedJob, job) == []


@virtual_time
async def test_a_role_starts_when_all_replicas_of_the_other_role_are_ready() -> None:
    async with OperatorKit(frameworks=[ReadyJob]) as kit:
        kit.script.when("train-server-0").run()
        kit.script.when("train-server-1").run(ready=False).until_released().become_ready()
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: list(view.pod_phases.values()) == ["Running", "Running"])
        await settle(60)
        assert job.pods.keys() == SERVERS
        assert waiting(ReadyJob, job) == ["Worker waits for Server: 1 of 2 ready"]
        kit.kubelet.release("default/train-server-1")
        await kit.until(job, reached=lambda view: len(view.pods) == 3, within_seconds=2)
        await kit.until(job, phase="Running")


@virtual_time
async def test_a_role_starts_when_all_replicas_of_the_other_role_have_succeeded() -> None:
    async with OperatorKit(frameworks=[PreparedJob]) as kit:
        kit.script.when("train-server-0").run().after(10).succeed()
        kit.script.when("train-server-1").run().until_released().succeed()
        kit.script.when("train-worker-0").run().after(10).succeed()
        job = await kit.submit(manifest())
        await kit.until(job, reached=lambda view: view.pod_phases.get("train-server-0") == "Succeeded")
        await settle(60)
        assert job.pods.keys() == SERVERS
        assert waiting(PreparedJob, job) == ["Worker waits for Server: 1 of 2 succeeded"]
        kit.kubelet.release("default/train-server-1")
        await kit.until(job, phase="Succeeded")
        assert await kit.writes_when_idle() == []


@virtual_time
@pytest.mark.parametrize("servers", [0, 1])
async def test_a_role_without_replicas_does_not_delay_the_other_role(servers: int) -> None:
    async with OperatorKit(frameworks=[OrderedJob]) as kit:
        job = await kit.submit(manifest(servers=servers))
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == servers + 1)


@virtual_time
async def test_after_a_restart_of_the_whole_job_the_role_waits_again() -> None:
    async with OperatorKit(frameworks=[OrderedJob]) as kit:
        kit.script.when("train-worker-0", times=1).run().after(10).fail(exit_code=137)
        kit.script.when("train-server-1", times=1).run()
        kit.script.when("train-server-1").until_released().run()
        job = await kit.submit(manifest(restartScope="Job"))
        await kit.until(job, reached=lambda view: view.status.get("dlop", {}).get("attempt") == 1 and view.pods.keys() == SERVERS)
        await settle(60)
        assert job.pods.keys() == SERVERS
        kit.kubelet.release("default/train-server-1")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3)


@virtual_time
async def test_a_job_can_replace_the_order_of_the_kind() -> None:
    async with OperatorKit(frameworks=[OrderedJob]) as kit:
        kit.script.when("train-worker-0").until_released().run()
        body = manifest()
        body["spec"]["replicaSpecs"]["Worker"]["dependsOn"] = []
        body["spec"]["replicaSpecs"]["Server"]["dependsOn"] = [{"role": "worker"}]
        job = await kit.submit(body)
        await settle(60)
        assert job.pods.keys() == {"train-worker-0"}
        assert waiting(OrderedJob, job)[-1] == "Server waits for Worker: 0 of 1 running"
        kit.kubelet.release("default/train-worker-0")
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3)
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_roles_that_wait_for_each_other_make_the_job_invalid() -> None:
    async with OperatorKit(frameworks=[OrderedJob]) as kit:
        body = manifest()
        body["metadata"]["annotations"] = {"dlop.dev/start-order": '{"Server": [{"role": "Worker"}]}'}
        job = await kit.submit(body)
        await kit.until(job, phase="Invalid")
        message = (job.condition("Failed") or {})["message"]
        assert "metadata.annotations[dlop.dev/start-order].Server: makes the roles Server, Worker wait for each other" in message
        assert job.pods == {}
        await kit.edit(job, {"metadata": {"annotations": {"dlop.dev/start-order": "{}"}}})
        await kit.until(job, phase="Running", reached=lambda view: len(view.pods) == 3)
