"""What the server does not take is told in the status and by one event, costs few calls, and is tried again patiently."""

from __future__ import annotations

from dlop.embedded.apiserver.faults import Match
from dlop.kube.resources import PODS
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import NAMESPACE, RINGS, a_while, ring, world

QUOTA: JsonObject = {
    "kind": "Status",
    "status": "Failure",
    "code": 403,
    "reason": "Forbidden",
    "message": 'pods "ring-worker-0" is forbidden: exceeded quota: small, requested: pods=1, used: pods=0, limited: pods=0',
}
CREATE_PODS = Match(verb="create", plural="pods")


def stranger(name: str, **metadata: object) -> JsonObject:
    spec = {"containers": [{"name": "main", "image": "other:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


@virtual_time
async def test_a_quota_costs_a_few_calls_and_is_told_once() -> None:
    async with world() as w, w.operating():
        w.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await w.submit(ring(workers=1000))
        await a_while(600)
        assert w.creates("pods") <= 8 + 20
        assert (await w.reasons())["FailedCreate"] == 1
        assert "exceeded quota" in str(await w.status())


@virtual_time
async def test_a_quota_that_is_lifted_lets_the_job_go_on() -> None:
    async with world() as w, w.operating():
        w.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await w.submit(ring(workers=100))
        await a_while(60)
        w.faults.clear()
        await a_while(300)
        assert len(await w.pods()) == 100
        assert "exceeded quota" not in str((await w.status())["dlop"])


@virtual_time
async def test_what_was_refused_at_first_is_told_of_when_it_is_there_and_not_before() -> None:
    async with world() as w, w.operating():
        w.faults.fail_before(QUOTA, match=CREATE_PODS, times=1)
        await w.submit(ring())
        await a_while(0.5)
        assert "CreatedPods" not in await w.reasons()
        await a_while(60)
        assert len(await w.pods()) == 3
        assert (await w.reasons())["CreatedPods"] == 1


@virtual_time
async def test_a_refused_create_is_tried_at_once_when_the_spec_changes() -> None:
    async with world() as w, w.operating():
        w.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await w.submit(ring(workers=10))
        await a_while(500)
        w.faults.clear()
        await w.client.patch(RINGS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}, namespace=NAMESPACE)
        await a_while(1)
        assert len(await w.pods()) == 2


@virtual_time
async def test_a_pod_that_the_server_finds_invalid_is_told_in_the_status() -> None:
    async with world() as w, w.operating():
        job = ring()
        job["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 700_000}]
        await w.submit(job)
        await a_while(60)
        assert "700000" in str(await w.status())
        assert await w.pods() == []


@virtual_time
async def test_a_name_that_is_taken_is_told_and_nothing_of_it_is_touched() -> None:
    async with world() as w, w.operating():
        await w.client.create(PODS, stranger("ring-worker-1"), namespace=NAMESPACE)
        before = await w.client.get(PODS, "ring-worker-1", namespace=NAMESPACE)
        await w.submit(ring())
        await a_while(60)
        assert await w.client.get(PODS, "ring-worker-1", namespace=NAMESPACE) == before
        assert (await w.reasons())["NameConflict"] == 1
        assert "ring-worker-1" in str((await w.status())["dlop"])
        assert await w.pod_names() == ["ring-worker-0", "ring-worker-1", "ring-worker-2"]


@virtual_time
async def test_a_name_that_becomes_free_is_used_at_once() -> None:
    async with world() as w, w.operating():
        await w.client.create(PODS, stranger("ring-worker-1"), namespace=NAMESPACE)
        job = await w.submit(ring())
        await a_while(600)
        await w.client.delete(PODS, "ring-worker-1", namespace=NAMESPACE, grace_seconds=0)
        await a_while(1)
        pod = await w.client.get(PODS, "ring-worker-1", namespace=NAMESPACE)
        assert pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]


@virtual_time
async def test_a_name_that_is_taken_behind_the_cache_s_back_is_looked_up() -> None:
    async with world() as w, w.operating():
        hold = w.faults.hold_watches(match=Match(plural="pods"))
        await w.client.create(PODS, stranger("ring-worker-1"), namespace=NAMESPACE)
        await w.submit(ring())
        await a_while(1)
        hold.release()
        await a_while(60)
        assert (await w.reasons())["NameConflict"] == 1
        assert len(await w.pods()) == 3
        assert w.creates("pods") == 3


@virtual_time
async def test_a_spec_that_makes_no_sense_is_told_and_hurts_nobody_else() -> None:
    async with world() as w, w.operating():
        bad = ring("bad")
        bad["spec"]["replicaSpecs"]["Worker"]["replicas"] = "many"
        worse = ring("worse")
        worse["spec"] = ["not", "a", "spec"]
        await w.submit(bad)
        await w.submit(worse)
        await w.submit(ring("good"))
        await a_while(10)
        assert await w.pod_names() == ["good-worker-0", "good-worker-1", "good-worker-2"]
        assert "replicas" in (await w.conditions("bad"))["Failed"]["message"]
        assert "Failed" in await w.conditions("worse")
        w.forget_requests()
        await a_while(600)
        assert w.writes() == []


@virtual_time
async def test_what_was_refused_and_is_no_longer_asked_for_is_in_nobody_s_way() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=2))
        await a_while()
        await w.report("Running")
        w.faults.fail_before(QUOTA, match=CREATE_PODS, times=100_000)
        await w.client.patch(RINGS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 3}}}}, namespace=NAMESPACE)
        await a_while(30)
        assert "Blocked" in await w.conditions()
        await w.client.patch(RINGS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}, namespace=NAMESPACE)
        await a_while(1)
        assert "Blocked" not in await w.conditions()
