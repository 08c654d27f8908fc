"""Restart back-off, replacement of pods after an edit, and a status restored from an earlier attempt."""

from __future__ import annotations

import asyncio
import copy

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.kube.types import JsonObject
from dlop.testing.kit import OperatorKit
from dlop.testing.observed_job import ObservedJob
from dlop.testing.pod_steps import RunContainers
from dlop.testing.virtual_time import virtual_time
from tests.sim.ring_job import RingJob, ring


def image_patch(image: str) -> JsonObject:
    return {"spec": {"replicaSpecs": {"Worker": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}}}}


def images(job: ObservedJob) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in job.pods.values()}


@virtual_time
async def test_a_container_that_always_fails_is_restarted_with_backoff() -> None:
    async with OperatorKit([RingJob]) as kit:
        kit.script.when("*").run().fail(137)
        job = await kit.submit(ring(workers=1))
        await asyncio.sleep(3600)
        creates = [write for write in kit.writes if write.request.method == "POST" and write.request.path.endswith("/pods")]
        assert 10 < len(creates) < 20
        assert job.status["dlop"]["restarts"] == {"Worker": len(creates) - ("ring-worker-0" in job.pods)}


@virtual_time
async def test_editing_an_invalid_image_replaces_the_pods() -> None:
    async with OperatorKit([RingJob]) as kit:
        kit.script.when("*", times=1).image_pull_error()
        kit.script.when("*").run()
        job = await kit.submit(ring())
        await kit.until(job, reached=lambda job: "ImagePullBackOff" in str(job.condition("Blocked")))
        await kit.edit(job, image_patch("valid"))
        await kit.until(job, phase="Running", reached=lambda job: list(job.pod_phases.values()) == ["Running"] * 2, within_seconds=120)
        assert images(job) == {"valid"}
        assert ("ReplacedPods", "Replaced 2 pods that had not started, because the job's spec has changed") in job.events
        assert "disruptions" not in job.status["dlop"]
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_pod_that_started_while_watch_events_were_delayed_is_not_replaced() -> None:
    async with OperatorKit([RingJob], operator=False) as kit:
        kit.script.when("*").unschedulable().until_released()
        server = kit.new_server()
        await kit.start_operator(server)
        job = await kit.submit(ring(workers=1))
        await kit.until(job, reached=lambda job: "Unschedulable" in str(job.condition("Blocked")))
        await asyncio.sleep(5)
        held = server.faults.hold_watches(match=RequestMatch(plural="pods"))
        await kit.kubelet.perform("default/ring-worker-0", RunContainers())
        uid = job.pods["ring-worker-0"]["metadata"]["uid"]
        await kit.edit(job, image_patch("late"))
        await asyncio.sleep(5)
        held.release()
        await kit.until(job, phase="Running")
        await asyncio.sleep(60)
        assert job.pods["ring-worker-0"]["metadata"]["uid"] == uid
        assert images(job) == {"i"}
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_status_of_an_earlier_attempt_restored_by_a_user_is_corrected() -> None:
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
        assert await kit.writes_when_idle() == []
