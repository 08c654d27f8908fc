"""Rejected creates: reported in the status and by one event, and retried with back-off."""

from __future__ import annotations

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.operator_env import NAMESPACE, RING_JOBS, operator_env, ring, settle

QUOTA: JsonObject = {
    "kind": "Status",
    "status": "Failure",
    "code": 403,
    "reason": "Forbidden",
    "message": 'pods "ring-worker-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0',
}
CREATE_PODS = RequestMatch(verb="create", plural="pods")


def unowned_pod(name: str, **metadata: object) -> JsonObject:
    spec = {"containers": [{"name": "main", "image": "other:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


@virtual_time
async def test_an_exceeded_quota_costs_few_requests_and_one_event() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await env.submit(ring(workers=1000))
        await settle(600)
        assert env.create_count("pods") <= 8 + 20
        assert (await env.event_reasons())["FailedCreate"] == 1
        assert "exceeded quota" in str(await env.status())


@virtual_time
async def test_the_job_continues_when_the_quota_is_raised() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await env.submit(ring(workers=100))
        await settle(60)
        env.faults.clear()
        await settle(300)
        assert len(await env.pods()) == 100
        assert "exceeded quota" not in str((await env.status())["dlop"])


@virtual_time
async def test_the_event_about_created_pods_waits_until_all_pods_are_created() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_before(QUOTA, match=CREATE_PODS, times=1)
        await env.submit(ring())
        await settle(0.5)
        assert "CreatedPods" not in await env.event_reasons()
        await settle(60)
        assert len(await env.pods()) == 3
        assert (await env.event_reasons())["CreatedPods"] == 1


@virtual_time
async def test_a_changed_spec_retries_rejected_creates_at_once() -> None:
    async with operator_env() as env, env.run_operator():
        env.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await env.submit(ring(workers=10))
        await settle(500)
        env.faults.clear()
        await env.client.patch(RING_JOBS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}, namespace=NAMESPACE)
        await settle(1)
        assert len(await env.pods()) == 2


@virtual_time
async def test_an_invalid_pod_is_reported_in_the_status() -> None:
    async with operator_env() as env, env.run_operator():
        job = ring()
        job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 700_000}]
        await env.submit(job)
        await settle(60)
        assert "700000" in str(await env.status())
        assert await env.pods() == []


@virtual_time
async def test_a_name_conflict_is_reported_and_the_existing_object_is_left_alone() -> None:
    async with operator_env() as env, env.run_operator():
        await env.client.create(PODS, unowned_pod("ring-worker-1"), namespace=NAMESPACE)
        before = await env.client.get(PODS, "ring-worker-1", namespace=NAMESPACE)
        await env.submit(ring())
        await settle(60)
        assert await env.client.get(PODS, "ring-worker-1", namespace=NAMESPACE) == before
        assert (await env.event_reasons())["NameConflict"] == 1
        assert "ring-worker-1" in str((await env.status())["dlop"])
        assert await env.pod_names() == ["ring-worker-0", "ring-worker-1", "ring-worker-2"]


@virtual_time
async def test_a_resolved_name_conflict_is_noticed_at_once() -> None:
    async with operator_env() as env, env.run_operator():
        await env.client.create(PODS, unowned_pod("ring-worker-1"), namespace=NAMESPACE)
        job = await env.submit(ring())
        await settle(600)
        await env.client.delete(PODS, "ring-worker-1", namespace=NAMESPACE, grace_seconds=0)
        await settle(1)
        pod = await env.client.get(PODS, "ring-worker-1", namespace=NAMESPACE)
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


@virtual_time
async def test_a_name_conflict_that_the_cache_does_not_show_is_detected() -> None:
    async with operator_env() as env, env.run_operator():
        hold = env.faults.hold_watches(match=RequestMatch(plural="pods"))
        await env.client.create(PODS, unowned_pod("ring-worker-1"), namespace=NAMESPACE)
        await env.submit(ring())
        await settle(1)
        hold.release()
        await settle(60)
        assert (await env.event_reasons())["NameConflict"] == 1
        assert len(await env.pods()) == 3
        assert env.create_count("pods") == 3


@virtual_time
async def test_an_invalid_spec_is_reported_and_does_not_affect_other_jobs() -> None:
    async with operator_env() as env, env.run_operator():
        bad = ring("bad")
        bad["spec"]["replicaSpecs"]["Worker"]["replicas"] = "many"
        worse = ring("worse")
        worse["spec"] = ["not", "a", "spec"]
        await env.submit(bad)
        await env.submit(worse)
        await env.submit(ring("good"))
        await settle(10)
        assert await env.pod_names() == ["good-worker-0", "good-worker-1", "good-worker-2"]
        assert "replicas" in (await env.conditions("bad"))["Failed"]["message"]
        assert "Failed" in await env.conditions("worse")
        env.clear_requests()
        await settle(600)
        assert env.writes() == []


@virtual_time
async def test_a_rejected_create_that_is_no_longer_needed_does_not_block_the_job() -> None:
    async with operator_env() as env, env.run_operator():
        await env.submit(ring(workers=2))
        await settle()
        await env.set_pod_phases("Running")
        env.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await env.client.patch(RING_JOBS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 3}}}}, namespace=NAMESPACE)
        await settle(30)
        assert "Blocked" in await env.conditions()
        await env.client.patch(RING_JOBS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}, namespace=NAMESPACE)
        await settle(1)
        assert "Blocked" not in await env.conditions()
