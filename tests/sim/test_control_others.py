"""What a kind needs besides pods and services: made first, seen by its label, and never somebody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar

from dlop.api.child_objects import Create
from dlop.api.constants import JOB_UID_LABEL
from dlop.api.progress import Progress, ReplicaState
from dlop.embedded.apiserver.faults import Match
from dlop.kube.resources import CONFIG_MAPS, Resource
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import NAMESPACE, RingJob, World, a_while, ring, world


class HostsJob(RingJob):
    """A ring that reads its peers from a file."""

    other_resources: ClassVar[tuple[Resource, ...]] = (CONFIG_MAPS,)

    def other_objects(self) -> tuple[Create, ...]:
        metadata = self.owned(f"{self.metadata.name}-hosts")
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"hosts": "\n".join(self.addresses("Worker"))}}
        return (Create(CONFIG_MAPS, body),)


class RunningHostsJob(HostsJob):
    """A ring that reads from a file how many of its peers run."""

    def changing_objects(self, progress: Progress) -> tuple[Create, ...]:
        running = sum(role.count(ReplicaState.RUNNING) for role in progress.roles)
        return tuple(Create(each.resource, {**each.body, "data": {"running": str(running)}}) for each in self.other_objects())


@asynccontextmanager
async def hosts_world(job_class: type[HostsJob] = HostsJob) -> AsyncIterator[World]:
    async with world() as w, w.operating(job_class=job_class):
        yield w


@virtual_time
async def test_other_objects_come_before_services_and_pods_and_once() -> None:
    async with hosts_world() as w:
        job = await w.submit(ring())
        await a_while()
        posts = [request.path.rsplit("/", 1)[1] for request in w.writes(method="POST")]
        assert posts == ["configmaps"] + ["services"] * 3 + ["pods"] * 3
        found = await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert found["metadata"]["labels"][JOB_UID_LABEL] == job["metadata"]["uid"]


@virtual_time
async def test_an_other_object_that_somebody_deletes_comes_back() -> None:
    async with hosts_world() as w:
        await w.submit(ring())
        await a_while()
        await w.client.delete(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        await a_while()
        assert await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)


@virtual_time
async def test_somebody_else_s_object_of_that_name_is_told_and_left_alone() -> None:
    async with hosts_world() as w:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ring-hosts"}, "data": {"mine": "yes"}}
        before = await w.client.create(CONFIG_MAPS, body, namespace=NAMESPACE)
        await w.submit(ring())
        await a_while(600)
        assert await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE) == before
        assert "ring-hosts" in str(await w.status())
        assert w.creates("configmaps") < 20
        await w.client.delete(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        await a_while(300)
        assert len(await w.pods()) == 3


@virtual_time
async def test_a_pod_that_fails_while_an_object_without_its_label_is_asked_for_is_not_overlooked() -> None:
    async with hosts_world() as w:
        await w.submit(ring())
        await a_while()
        await w.report("Running")
        await a_while()
        w.faults.delay(2.0, match=Match(verb="create", plural="configmaps"))
        await w.client.patch(CONFIG_MAPS, "ring-hosts", {"metadata": {"labels": {JOB_UID_LABEL: None}}}, namespace=NAMESPACE)
        await a_while(1)
        await w.report_one("Failed", "ring-worker-0", exit_code=1)
        await a_while(30)
        assert (await w.status())["dlop"]["restarts"] == {"Worker": 1}


@virtual_time
async def test_an_object_that_follows_the_job_is_changed_when_it_has_to_be_and_then_left_alone() -> None:
    async with hosts_world(RunningHostsJob) as w:
        await w.submit(ring())
        await a_while()
        found = await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert found["data"]["running"] == "0"
        await w.report("Running")
        await a_while()
        found = await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert found["data"]["running"] == "3"
        await a_while(3600)
        assert (await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE))["metadata"] == found["metadata"]


@virtual_time
async def test_a_change_that_the_server_has_no_time_for_is_made_later() -> None:
    async with hosts_world(RunningHostsJob) as w:
        await w.submit(ring())
        await a_while()
        trouble = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "boom"}
        w.faults.fail_before(trouble, match=Match(verb="patch", plural="configmaps"), times=3)
        await w.report("Running")
        await a_while(60)
        found = await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert found["data"]["running"] == "3"


@virtual_time
async def test_an_object_that_has_lost_its_label_gets_it_back() -> None:
    async with hosts_world() as w:
        job = await w.submit(ring())
        await a_while()
        await w.client.patch(CONFIG_MAPS, "ring-hosts", {"metadata": {"labels": {JOB_UID_LABEL: None}}}, namespace=NAMESPACE)
        await a_while()
        found = await w.client.get(CONFIG_MAPS, "ring-hosts", namespace=NAMESPACE)
        assert found["metadata"]["labels"][JOB_UID_LABEL] == job["metadata"]["uid"]
