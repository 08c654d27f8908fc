"""Ownership: orphans are adopted, children of a deleted job of the same name are waited for."""

from __future__ import annotations

import pytest

from dlop.api.types import ForceDeletion, Options
from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.client import Propagation
from dlop.kube.resources import PODS, SERVICES, Resource
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, operator_env, ring, settle

WITHOUT_OWNER = {"metadata": {"ownerReferences": None}}


@virtual_time
async def test_a_pod_without_an_owner_is_adopted() -> None:
    async with operator_env() as env, env.run_operator():
        job = await env.submit(ring())
        await settle()
        await env.client.patch(PODS, "ring-worker-1", WITHOUT_OWNER, namespace=NAMESPACE)
        await env.client.patch(SERVICES, "ring-worker-2", WITHOUT_OWNER, namespace=NAMESPACE)
        await settle()
        pod = await env.client.get(PODS, "ring-worker-1", namespace=NAMESPACE)
        service = await env.client.get(SERVICES, "ring-worker-2", namespace=NAMESPACE)
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert service["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert env.create_count("pods") == 3


@virtual_time
async def test_orphans_of_a_job_of_the_same_name_are_adopted() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.delete_job("ring", propagation=Propagation.ORPHAN)
        await settle()
        job = await env.submit(ring())
        await settle(30)
        for pod in await env.pods():
            assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert env.create_count("pods") == 3


@virtual_time
async def test_a_job_deleted_on_the_server_does_not_adopt() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        hold = env.faults.hold_watches(match=RequestMatch(plural="ringjobs"))
        await env.delete_job("ring", propagation=Propagation.ORPHAN)
        await settle(30)
        hold.release()
        await settle()
        assert len(await env.pods()) == 3  # with a deleted owner they would be garbage-collected
        assert all("ownerReferences" not in pod["metadata"] for pod in await env.pods())


@virtual_time
async def test_a_job_deleted_and_created_again_gets_its_own_pods_without_a_name_conflict() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.delete_job("ring")
        job = await env.submit(ring())
        await settle(60)
        for pod in await env.pods():
            assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
        assert len(await env.pods()) == 3
        assert "NameConflict" not in await env.event_reasons()


@virtual_time
async def test_terminating_pods_of_a_deleted_job_of_the_same_name_are_waited_for() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        for name in await env.pod_names():
            await env.bind(name)
        await env.delete_job("ring")
        await settle(1)
        job = await env.submit(ring())
        await settle(20)
        assert all("deletionTimestamp" in pod["metadata"] for pod in await env.pods())
        for name in await env.pod_names():
            await env.client.delete(PODS, name, namespace=NAMESPACE, grace_seconds=0)
        await settle(1)
        assert {pod["metadata"]["ownerReferences"][0]["uid"] for pod in await env.pods()} == {job["metadata"]["uid"]}
        assert len(await env.pods()) == 3
        await settle(30)
        reasons = await env.event_reasons()
        assert "NameConflict" not in reasons
        assert reasons["CreatedPods"] == 2


@pytest.mark.parametrize("resource", [PODS, SERVICES])
@virtual_time
async def test_a_terminating_object_of_a_deleted_job_is_reported_with_its_finalizers(resource: Resource) -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring())
        await settle()
        await env.client.patch(resource, "ring-worker-1", {"metadata": {"finalizers": ["example.org/hold"]}}, namespace=NAMESPACE)
        await env.delete_job("ring")
        await settle(1)
        await env.submit(ring())
        await settle(25)
        assert "Blocked" not in await env.conditions()
        await settle(10)
        assert (await env.conditions())["Blocked"]["message"] == (
            f"{resource.kind.lower()} ring-worker-1 of the deleted RingJob ring is still terminating: "
            "finalizers example.org/hold; remove them, or wait"
        )
        await env.client.patch(resource, "ring-worker-1", {"metadata": {"finalizers": None}}, namespace=NAMESPACE)
        await settle(1)
        assert "Blocked" not in await env.conditions()
        assert len(await env.pods()) == len(await env.service_names()) == 3


@virtual_time
async def test_a_deleted_job_has_no_in_process_state() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        for number in range(10):
            await env.submit(ring(f"ring-{number}"))
        await settle()
        for number in range(10):
            await env.delete_job(f"ring-{number}")
        await settle(60)
        assert await env.pods() == []
        assert operator.tracked_jobs == 0


@virtual_time
async def test_a_job_deleted_while_its_pods_are_created_has_no_in_process_state() -> None:
    async with operator_env() as env, env.run_operator() as operator:
        env.faults.delay(1.0, match=RequestMatch(verb="create", plural="pods"), times=100_000)
        await env.submit(ring())
        await settle(0.5)
        await env.delete_job("ring")
        await settle(60)
        assert await env.pods() == []
        assert operator.tracked_jobs == 0


@virtual_time
async def test_pods_on_a_lost_node_are_deleted_even_if_a_user_deletes_one_first() -> None:
    options = Options(force_deletion=ForceDeletion.TIMEOUT)
    async with operator_env() as env, env.run_operator(writes_in_flight=2, options=options):
        await env.submit(ring())
        await settle()
        for name in await env.pod_names():
            await env.bind(name)
        await env.set_pod_phases("Running")
        await settle()
        env.faults.delay(3.0, match=RequestMatch(verb="delete", plural="pods"), times=3)
        await env.client.patch(RING_JOBS, "ring", {"spec": {"runPolicy": {"suspend": True}}}, namespace=NAMESPACE)
        await settle(1)
        await env.client.delete(PODS, "ring-worker-2", namespace=NAMESPACE)
        await settle(600)
        assert await env.pods() == []
