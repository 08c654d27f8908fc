"""What belongs to whom: orphans are taken in, what is left over is waited for, jobs of one name are not mixed up."""

from __future__ import annotations

import pytest

from dlop.embedded.apiserver.faults import Match
from dlop.kube.client import Propagation
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import NAMESPACE, RINGS, a_while, ring, world

WITHOUT_OWNER = {"metadata": {"ownerReferences": None}}


@virtual_time
async def test_a_pod_that_lost_its_owner_is_taken_in_again() -> None:
    async with world() as w, w.operating():
        job = await w.submit(ring())
        await a_while()
        await w.client.patch(PODS, "ring-worker-1", WITHOUT_OWNER, namespace=NAMESPACE)
        await w.client.patch(SERVICES, "ring-worker-2", WITHOUT_OWNER, namespace=NAMESPACE)
        await a_while()
        pod = await w.client.get(PODS, "ring-worker-1", namespace=NAMESPACE)
        service = await w.client.get(SERVICES, "ring-worker-2", namespace=NAMESPACE)
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert service["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert w.creates("pods") == 3


@virtual_time
async def test_orphans_of_a_job_of_the_same_name_are_taken_in() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.remove("ring", propagation=Propagation.ORPHAN)
        await a_while()
        job = await w.submit(ring())
        await a_while(30)
        for pod in await w.pods():
            assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert w.creates("pods") == 3


@virtual_time
async def test_a_job_that_is_gone_on_the_server_adopts_nothing() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        hold = w.faults.hold_watches(match=Match(plural="ringjobs"))
        await w.remove("ring", propagation=Propagation.ORPHAN)
        await a_while(30)
        hold.release()
        await a_while()
        assert len(await w.pods()) == 3  # with an owner that is gone, they would be collected
        assert all("ownerReferences" not in pod["metadata"] for pod in await w.pods())


@virtual_time
async def test_a_job_deleted_and_made_again_gets_pods_of_its_own_without_a_complaint() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.remove("ring")
        job = await w.submit(ring())
        await a_while(60)
        for pod in await w.pods():
            assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert len(await w.pods()) == 3
        assert "NameConflict" not in await w.reasons()


@virtual_time
async def test_pods_that_a_deleted_job_of_the_same_name_leaves_behind_are_waited_for() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        for name in await w.pod_names():
            await w.bind(name)
        await w.remove("ring")
        await a_while(1)
        job = await w.submit(ring())
        await a_while(20)
        assert all("deletionTimestamp" in pod["metadata"] for pod in await w.pods())
        for name in await w.pod_names():
            await w.client.delete(PODS, name, namespace=NAMESPACE, grace_seconds=0)
        await a_while(1)
        assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in await w.pods()} == {job["metadata"]["uid"]}
        assert len(await w.pods()) == 3
        await a_while(30)
        reasons = await w.reasons()
        assert "NameConflict" not in reasons
        assert reasons["CreatedPods"] == 2


@pytest.mark.parametrize("resource", [PODS, SERVICES])
@virtual_time
async def test_what_a_deleted_job_leaves_behind_and_does_not_go_is_told_with_what_holds_it(resource: Resource) -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.client.patch(resource, "ring-worker-1", {"metadata": {"finalizers": ["example.org/hold"]}}, namespace=NAMESPACE)
        await w.remove("ring")
        await a_while(1)
        await w.submit(ring())
        await a_while(25)
        assert "Blocked" not in await w.conditions()
        await a_while(10)
        assert (await w.conditions())["Blocked"]["message"] == (
            f"{resource.kind.lower()} ring-worker-1 of the deleted RingJob ring is still being deleted: "
            "finalizers example.org/hold; remove them, or wait"
        )
        await w.client.patch(resource, "ring-worker-1", {"metadata": {"finalizers": None}}, namespace=NAMESPACE)
        await a_while(1)
        assert "Blocked" not in await w.conditions()
        assert len(await w.pods()) == len(await w.service_names()) == 3


@virtual_time
async def test_deleting_a_job_leaves_nothing_to_remember() -> None:
    async with world() as w, w.operating() as operator:
        for number in range(10):
            await w.submit(ring(f"ring-{number}"))
        await a_while()
        for number in range(10):
            await w.remove(f"ring-{number}")
        await a_while(60)
        assert await w.pods() == []
        assert operator.remembered_jobs == 0


@virtual_time
async def test_deleting_a_job_while_its_pods_are_created_leaves_nothing_to_remember() -> None:
    async with world() as w, w.operating() as operator:
        w.faults.delay(1.0, match=Match(verb="create", plural="pods"), times=100_000)
        await w.submit(ring())
        await a_while(0.5)
        await w.remove("ring")
        await a_while(60)
        assert await w.pods() == []
        assert operator.remembered_jobs == 0


@virtual_time
async def test_pods_on_a_lost_node_go_also_when_somebody_else_deletes_one_of_them_first() -> None:
    async with world() as w, w.operating(writes_in_flight=2):
        await w.submit(ring(run_policy={"nodeLostSeconds": 60}))
        await a_while()
        for name in await w.pod_names():
            await w.bind(name)
        await w.report("Running")
        await a_while()
        w.faults.delay(3.0, match=Match(verb="delete", plural="pods"), times=3)
        await w.client.patch(RINGS, "ring", {"spec": {"runPolicy": {"suspend": True}}}, namespace=NAMESPACE)
        await a_while(1)
        await w.client.delete(PODS, "ring-worker-2", namespace=NAMESPACE)
        await a_while(600)
        assert await w.pods() == []
