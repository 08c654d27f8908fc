"""What the engine decides about time and edits, carried out by an operator: delays, replaced pods, a status that is put back."""

from __future__ import annotations

import asyncio
import copy

from dlop.embedded.apiserver.faults import Match
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import RunFor
from dlop.testing.virtual_time import virtual_time
from tests.sim.ring import RingJob, ring


def with_image(image: str) -> JsonObject:
    """A patch that changes nothing else."""
    return {"spec": {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}}}


def images(job: ObservedJob) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in job.pods.values()}


@virtual_time
async def test_a_program_that_always_fails_at_once_makes_no_storm_of_pods() -> None:
    async with OperatorKit([RingJob]) as kit:
        kit.script.when("*").run().fail(137)
        job = await kit.submit(ring(workers=1))
        await asyncio.sleep(3600)
        creates = [write for write in kit.writes if write.request.method == "POST" and write.request.path.endswith("/pods")]
        assert 10 < len(creates) < 20
        assert job.status["dlop"]["restarts"] == {"Worker": len(creates) - ("ring-worker-0" in job.pods)}


@virtual_time
async def test_a_wrong_image_is_mended_by_an_edit() -> None:
    async with OperatorKit([RingJob]) as kit:
        kit.script.when("*", times=1).image_pull_error()
        kit.script.when("*").run()
        job = await kit.submit(ring())
        await kit.until(job, reached=lambda job: "ImagePullBackOff" in str(job.condition("Blocked")))
        await kit.edit(job, with_image("right"))
        await kit.until(job, phase="Running", reached=lambda job: list(job.pod_phases.values()) == ["Running"] * 2, within_seconds=120)
        assert images(job) == {"right"}
        assert ("ReplacedPods", "Replaced 2 pods that had not started: the job's spec has changed") in job.events
        assert "disruptions" not in job.status["dlop"]
        assert await kit.writes_at_rest() == []


@virtual_time
async def test_a_pod_that_starts_while_its_operator_does_not_see_it_is_left_alone() -> None:
    async with OperatorKit([RingJob], operator=False) as kit:
        kit.script.when("*").unschedulable().until_told()
        server = kit.new_server()
        await kit.start_operator(server)
        job = await kit.submit(ring(workers=1))
        await kit.until(job, reached=lambda job: "Unschedulable" in str(job.condition("Blocked")))
        await asyncio.sleep(5)
        held = server.faults.hold_watches(match=Match(plural="pods"))
        await kit.kubelet.perform("default/ring-worker-0", RunFor())
        uid = job.pods["ring-worker-0"]["metadata"]["uid"]
        await kit.edit(job, with_image("late"))
        await asyncio.sleep(5)
        held.release()
        await kit.until(job, phase="Running")
        await asyncio.sleep(60)
        assert job.pods["ring-worker-0"]["metadata"]["uid"] == uid
        assert images(job) == {"i"}
        assert await kit.writes_at_rest() == []


@virtual_time
async def test_a_status_of_an_earlier_attempt_that_is_put_back_by_hand_is_caught_up_with() -> None:
    async with OperatorKit([RingJob]) as kit:
        kit.script.when("ring-worker-0", times=1).run().after(30).fail(137)
        kit.script.when("*").run()
        job = await kit.submit(ring(restartScope="Job"))
        await kit.until(job, phase="Running")
        await asyncio.sleep(10)
        before = copy.deepcopy(job.status)
        await kit.until(job, phase="Running", reached=lambda job: job.status["dlop"].get("attempt") == 1)
        await asyncio.sleep(60)
        uids = {name: pod["metadata"]["uid"] for name, pod in job.pods.items()}
        body = {**job.body, "status": before}
        await kit.client.replace(RingJob.job_type.resource, "ring", body, namespace="default", subresource="status")
        await asyncio.sleep(60)
        assert job.status["dlop"]["attempt"] == 1
        assert {name: pod["metadata"]["uid"] for name, pod in job.pods.items()} == uids
        assert await kit.writes_at_rest() == []
