"""A job becomes services and pods: each once, services first, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import Match
from dlop.kube.resources import PODS, SERVICES
from dlop.operator.operator import Operator
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import NAMESPACE, RINGS, a_while, ring, world


def passes(operator: Operator) -> int:
    """How often the operator has looked at a job."""
    labels = {"controller": "ringjobs.example.org", "result": "success"}
    found = operator.metrics.registry.get_sample_value("controller_runtime_reconcile_total", labels)
    return int(found or 0)


RING_OF_THREE = ["ring-worker-0", "ring-worker-1", "ring-worker-2"]


@virtual_time
async def test_a_job_gets_its_services_and_then_its_pods_each_once() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        assert await w.pod_names() == RING_OF_THREE
        assert await w.service_names() == RING_OF_THREE
        posts = [request.path.rsplit("/", 1)[1] for request in w.writes(method="POST")]
        assert posts == ["services"] * 3 + ["pods"] * 3
        assert "Created" in await w.conditions()


@virtual_time
async def test_to_see_what_it_has_asked_for_makes_the_operator_look_at_nothing_again() -> None:
    async with world() as w, w.operating() as operator:
        await w.submit(ring())
        await a_while()
        await w.report("Running")
        await a_while()
        assert "Running" in await w.conditions()
        assert len(w.writes(method="PATCH")) == 2
        assert passes(operator) == 2


@virtual_time
async def test_whoever_meddles_with_the_status_is_noticed_also_right_after_it_was_written() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.client.patch(RINGS, "ring", {"status": {"conditions": None}}, namespace=NAMESPACE, subresource="status")
        await a_while()
        assert "Created" in await w.conditions()


@virtual_time
async def test_a_pod_that_fails_while_others_are_created_is_not_overlooked() -> None:
    async with world() as w, w.operating():
        w.faults.delay(3.0, match=Match(verb="create", plural="pods"), times=3)
        await w.submit(ring())
        await a_while(3.5)
        await w.report_one("Running", "ring-worker-0")
        await w.report_one("Failed", "ring-worker-0", exit_code=1)
        await a_while(30)
        assert (await w.status())["dlop"]["restarts"] == {"Worker": 1}


@virtual_time
async def test_pods_and_services_belong_to_the_job() -> None:
    async with world() as w, w.operating():
        job = await w.submit(ring())
        await a_while()
        for pod in await w.pods():
            (owner,) = pod["metadata"]["ownerReferences"]
            assert owner["uid"] == job["metadata"]["uid"]
            assert owner["controller"] is True


@virtual_time
async def test_a_thousand_pods_are_created_once_each() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=1000))
        await a_while()
        assert len(await w.pods()) == 1000
        assert w.creates("pods") == 1000
        assert w.creates("services") == 1000


@virtual_time
async def test_changes_that_come_while_pods_are_created_make_no_duplicates() -> None:
    async with world() as w, w.operating():
        w.faults.delay(0.5, match=Match(verb="create", plural="pods"), times=100)
        await w.submit(ring(workers=20))
        for number in range(50):
            await w.client.patch(RINGS, "ring", {"metadata": {"labels": {"number": str(number)}}}, namespace=NAMESPACE)
            await asyncio.sleep(0.05)
        await a_while(30)
        assert w.creates("pods") == 20
        assert w.creates("services") == 20


@virtual_time
async def test_withheld_watch_events_make_no_duplicates() -> None:
    async with world() as w, w.operating():
        hold = w.faults.hold_watches(match=Match(plural="pods"))
        await w.submit(ring())
        await a_while(5)
        await w.client.patch(RINGS, "ring", {"metadata": {"labels": {"a": "b"}}}, namespace=NAMESPACE)
        await a_while(2)
        hold.release()
        await a_while(60)
        assert w.creates("pods") == 3
        assert await w.pod_names() == RING_OF_THREE


@virtual_time
async def test_a_create_whose_answer_is_lost_is_not_made_twice() -> None:
    async with world() as w, w.operating():
        w.faults.fail_after(None, match=Match(verb="create", plural="pods", name=None), times=1)
        await w.submit(ring())
        await a_while(30)
        assert await w.pod_names() == RING_OF_THREE
        assert w.creates("pods") == 3


@virtual_time
async def test_a_create_whose_answer_is_lost_while_the_watch_is_silent_is_looked_up_and_not_made_twice() -> None:
    async with world() as w, w.operating():
        hold = w.faults.hold_watches(match=Match(plural="pods"))
        w.faults.fail_after(None, match=Match(verb="create", plural="pods"), times=1)
        await w.submit(ring(workers=1))
        await a_while(8)
        hold.release()
        await a_while(30)
        assert await w.pod_names() == RING_OF_THREE[:1]
        assert w.creates("pods") == 1


@virtual_time
async def test_a_create_that_never_arrived_is_made_again() -> None:
    async with world() as w, w.operating():
        w.faults.fail_before(None, match=Match(verb="create", plural="pods"), times=1)
        await w.submit(ring())
        await a_while(30)
        assert await w.pod_names() == RING_OF_THREE
        assert w.creates("pods") == 4


@virtual_time
async def test_a_server_in_trouble_is_asked_again() -> None:
    async with world() as w, w.operating():
        trouble = {"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "boom"}
        w.faults.fail_before(trouble, match=Match(verb="create", plural="services"), times=3)
        w.faults.fail_before(trouble, match=Match(verb="create", plural="pods"), times=3)
        w.faults.fail_before(trouble, match=Match(verb="patch", plural="ringjobs"), times=3)
        await w.submit(ring())
        await a_while(30)
        assert await w.pod_names() == RING_OF_THREE


@virtual_time
async def test_lost_watches_lose_nothing() -> None:
    async with world() as w, w.operating():
        await w.submit(ring("one"))
        await a_while()
        w.faults.drop_watches()
        await w.submit(ring("two"))
        w.faults.compact()
        await a_while(60)
        assert len(await w.pods()) == 6
        assert w.creates("pods") == 6


@virtual_time
async def test_an_operator_that_is_killed_midway_is_taken_up_by_the_next() -> None:
    async with world() as w:
        async with w.operating():
            w.faults.delay(1.0, match=Match(verb="create", plural="pods"), times=100)
            await w.submit(ring(workers=50))
            await asyncio.sleep(1.5)
        some = len(await w.pods())
        w.faults.clear()
        async with w.operating(identity="two"):
            await a_while(30)
            assert 0 < some < 50
            assert len(await w.pods()) == 50
            assert len(await w.service_names()) == 50


@virtual_time
async def test_a_job_that_was_there_before_the_operator_is_looked_after() -> None:
    async with world() as w:
        await w.submit(ring())
        async with w.operating():
            await a_while()
            assert await w.pod_names() == RING_OF_THREE


@virtual_time
async def test_a_pod_that_somebody_deletes_is_replaced() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.report("Running")
        await a_while()
        before = (await w.client.get(PODS, "ring-worker-1", namespace=NAMESPACE))["metadata"]["uid"]
        await w.client.delete(PODS, "ring-worker-1", namespace=NAMESPACE, grace_seconds=0)
        await a_while(30)
        after = (await w.client.get(PODS, "ring-worker-1", namespace=NAMESPACE))["metadata"]["uid"]
        assert before != after
        assert w.creates("pods") == 4


@virtual_time
async def test_a_service_that_somebody_deletes_comes_back() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.client.delete(SERVICES, "ring-worker-1", namespace=NAMESPACE)
        await a_while()
        assert await w.service_names() == RING_OF_THREE


@virtual_time
async def test_a_pod_that_came_and_went_while_nobody_could_see_it_is_made_again() -> None:
    async with world() as w, w.operating():
        hold = w.faults.hold_watches(match=Match(plural="pods"))
        await w.submit(ring())
        await a_while(2)
        await w.client.delete(PODS, "ring-worker-1", namespace=NAMESPACE, grace_seconds=0)
        w.faults.drop_watches(match=Match(plural="pods"))
        w.faults.compact()
        hold.release()
        await a_while(60)
        assert await w.pod_names() == RING_OF_THREE
        assert w.creates("pods") == 4
