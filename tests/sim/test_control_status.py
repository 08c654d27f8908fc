"""The status: one write a pass, never over somebody else's, and none when nothing happens."""

from __future__ import annotations

from dlop.embedded.apiserver.faults import Match
from dlop.kube.types import JsonObject
from dlop.testing.virtual_time import virtual_time
from tests.sim.control_world import NAMESPACE, RINGS, World, a_while, ring, world

CONFLICT: JsonObject = {"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict", "message": "the object has been modified"}


async def finish(w: World) -> None:
    await a_while()
    await w.report("Running")
    await a_while()
    await w.report("Succeeded")
    await a_while()


@virtual_time
async def test_a_plain_success_takes_at_most_four_status_writes() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await finish(w)
        assert "Succeeded" in await w.conditions()
        assert len(w.writes(method="PATCH", plural="ringjobs")) <= 4


@virtual_time
async def test_a_finished_job_makes_no_writes_at_rest() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await finish(w)
        w.forget_requests()
        await a_while(24 * 3600)
        assert w.writes() == []


@virtual_time
async def test_a_running_job_makes_no_writes_at_rest() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        await w.report("Running")
        await a_while()
        w.forget_requests()
        await a_while(24 * 3600)
        assert w.writes() == []


@virtual_time
async def test_an_operator_that_starts_next_to_finished_jobs_writes_nothing() -> None:
    async with world() as w:
        async with w.operating():
            await w.submit(ring())
            await finish(w)
        w.forget_requests()
        async with w.operating(identity="two"):
            await a_while(3600)
        assert w.writes() == []


@virtual_time
async def test_a_status_write_that_meets_a_conflict_is_made_again() -> None:
    async with world() as w, w.operating():
        w.faults.fail_before(CONFLICT, match=Match(verb="patch", plural="ringjobs"), times=3)
        await w.submit(ring())
        await finish(w)
        assert "Succeeded" in await w.conditions()


@virtual_time
async def test_a_status_write_whose_answer_is_lost_does_no_harm() -> None:
    async with world() as w, w.operating():
        w.faults.fail_after(None, match=Match(verb="patch", plural="ringjobs"), times=2)
        await w.submit(ring())
        await finish(w)
        assert "Succeeded" in await w.conditions()
        assert w.creates("pods") == 3


@virtual_time
async def test_what_somebody_wrote_into_the_status_meanwhile_is_not_written_over_blindly() -> None:
    async with world() as w, w.operating():
        await w.submit(ring())
        await a_while()
        hold = w.faults.hold_watches(match=Match(plural="ringjobs"))
        await w.client.patch(RINGS, "ring", {"spec": {"replicaSpecs": {"Worker": {"replicas": 2}}}}, namespace=NAMESPACE)
        await w.report("Running")
        await a_while(3)
        assert "Running" not in await w.conditions()
        hold.release()
        await a_while(60)
        assert "Running" in await w.conditions()
        assert len(await w.pods()) == 2


@virtual_time
async def test_a_finished_job_goes_when_its_time_has_come() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(run_policy={"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "None"}))
        await finish(w)
        await a_while(3500)
        assert (await w.client.list(RINGS, namespace=NAMESPACE))["items"] != []
        await a_while(200)
        assert (await w.client.list(RINGS, namespace=NAMESPACE))["items"] == []
        assert await w.pods() == []


@virtual_time
async def test_events_tell_the_story_of_a_job_in_a_few_lines() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=100))
        await finish(w)
        await a_while(60)
        reasons = await w.reasons()
        assert sum(reasons.values()) <= 6
        assert all(count == 1 for count in reasons.values())


@virtual_time
async def test_of_a_finished_job_nothing_is_kept_in_memory() -> None:
    async with world() as w, w.operating() as operator:
        await w.submit(ring())
        await finish(w)
        await a_while(60)
        assert operator.remembered_jobs == 0


@virtual_time
async def test_a_large_job_whose_pods_change_one_by_one_is_looked_at_now_and_then() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=300))
        await a_while()
        w.forget_requests()
        for name in await w.pod_names():
            await w.report_one("Running", name)
            await a_while(0.01)
        await a_while()
        assert len(w.writes(plural="ringjobs")) <= 10
        assert "Running" in await w.conditions()


@virtual_time
async def test_the_last_pod_to_run_or_to_succeed_is_told_of_at_once() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=3))
        await a_while()
        for phase in ("Running", "Succeeded"):
            await w.report(phase)
            await a_while(0.1)
            assert phase in await w.conditions()


@virtual_time
async def test_pods_that_come_to_run_one_by_one_are_told_of_together() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=3))
        await a_while()
        w.forget_requests()
        for name in await w.pod_names():
            await w.report_one("Running", name)
            await a_while(0.6)
        assert len(w.writes(method="PATCH", plural="ringjobs")) == 1
        assert "Running" in await w.conditions()


@virtual_time
async def test_pods_that_succeed_one_by_one_are_told_of_in_lots_and_the_last_one_at_once() -> None:
    async with world() as w, w.operating():
        await w.submit(ring(workers=4))
        await a_while()
        await w.report("Running")
        await a_while()
        w.forget_requests()
        for name in await w.pod_names():
            await w.report_one("Succeeded", name)
            await a_while(0.7)
        assert "Succeeded" in await w.conditions()
        assert len(w.writes(method="PATCH", plural="ringjobs")) == 3
