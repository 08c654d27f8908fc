"""Child objects other than pods and services: created first, watched by label, and never taken from another owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from dlop.api.child_objects import Create
from dlop.api.constants import JOB_UID_LABEL
from dlop.api.progress import Progress, ReplicaState
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import CONFIG_MAPS
from dlop.policies import ChildObjects
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, OperatorEnv, operator_env, ring, settle
from tests.sim.ring_job import RingJob


class Hosts(ChildObjects[RingJob]):
    """A config map of the peers."""

    resources = (CONFIG_MAPS,)

    def build(self, job: RingJob) -> tuple[Create, ...]:
        metadata = job.child_metadata(f"{job.metadata.name}-hosts")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"hosts": "\n".join(job.addresses("Worker"))}}
        return (Create(CONFIG_MAPS, body),)


class RunningHosts(Hosts):
    """A config map that has the number of running peers."""

    def update(self, job: RingJob, progress: Progress) -> tuple[Create, ...]:
        running = sum(role.count(ReplicaState.RUNNING) for role in progress.roles)
        return tuple(Create(create.resource, {**create.body, "data": {"running": str(running)}}) for create in self.build(job))


class HostsJob(RingJob):
    children: ClassVar[tuple[ChildObjects[Any], ...]] = (Hosts(),)


class RunningHostsJob(HostsJob):
    children = (RunningHosts(),)


@asynccontextmanager
async def hosts_env(job_class: type[HostsJob] = HostsJob) -> AsyncIterator[OperatorEnv]:
    async with operator_env() as env, env.run_operator(job_class=job_class):
        yield env


@virtual_time
async def test_child_objects_are_created_once_and_before_services_and_pods() -> None:
    async with hosts_env() as env:
        job = await env.submit(ring())
        await settle()
        posts = [request.path.rsplit("/", 1)[1] for request in env.writes(method="POST")]
        assert posts == ["configmaps"] + ["services"] * 3 + ["pods"] * 3
        config_map = await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert config_map["metadata"]["labels"][JOB_UID_LABEL] == job["metadata"]["uid"]


@virtual_time
async def test_a_child_object_deleted_by_a_user_is_created_again() -> None:
    async with hosts_env() as env:
        await env.submit(ring())
        await settle()
        await env.client.delete(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        await settle()
        assert await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)


@virtual_time
async def test_an_object_of_another_owner_with_the_same_name_is_reported_and_left_alone() -> None:
    async with hosts_env() as env:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ring-hosts"}, "data": {"other": "yes"}}
        before = await env.client.create(CONFIG_MAPS, body, namespace=NAMESPACE)
        await env.submit(ring())
        await settle(600)
        assert await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE) == before
        assert "ring-hosts" in str(await env.status())
        assert env.create_count("configmaps") < 20
        await env.client.delete(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        await settle(300)
        assert len(await env.pods()) == 3


@virtual_time
async def test_a_pod_that_fails_while_an_unlabelled_child_object_is_created_is_restarted() -> None:
    async with hosts_env() as env:
        await env.submit(ring())
        await settle()
        await env.set_pod_phases("Running")
        await settle()
        env.faults.delay(2.0, match=RequestMatch(verb="create", plural="configmaps"))
        await env.client.patch(CONFIG_MAPS, "ring-hosts", {"metadata": {"labels": {JOB_UID_LABEL: None}}}, namespace=NAMESPACE)
        await settle(1)
        await env.set_pod_phase("Failed", "ring-worker-0", exit_code=1)
        await settle(30)
        assert (await env.status())["dlop"]["restarts"] == {"Worker": 1}


@virtual_time
async def test_a_child_object_is_updated_with_the_progress_of_the_job_and_not_patched_at_rest() -> None:
    async with hosts_env(RunningHostsJob) as env:
        await env.submit(ring())
        await settle()
        config_map = await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert config_map["data"]["running"] == "0"
        await env.set_pod_phases("Running")
        await settle()
        config_map = await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert config_map["data"]["running"] == "3"
        await settle(3600)
        assert (await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE))["metadata"] == config_map["metadata"]


@virtual_time
async def test_a_patch_that_fails_is_retried() -> None:
    async with hosts_env(RunningHostsJob) as env:
        await env.submit(ring())
        await settle()
        error = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "boom"}
        env.faults.fail_before(error, match=RequestMatch(verb="patch", plural="configmaps"), times=3)
        await env.set_pod_phases("Running")
        await settle(60)
        config_map = await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert config_map["data"]["running"] == "3"


@virtual_time
async def test_a_child_object_without_the_job_label_is_labelled_again() -> None:
    async with hosts_env() as env:
        job = await env.submit(ring())
        await settle()
        await env.client.patch(CONFIG_MAPS, "ring-hosts", {"metadata": {"labels": {JOB_UID_LABEL: None}}}, namespace=NAMESPACE)
        await settle()
        config_map = await env.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert config_map["metadata"]["labels"][JOB_UID_LABEL] == job["metadata"]["uid"]
