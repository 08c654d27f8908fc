"""The testing kit, as the author of a framework uses it."""

from __future__ import annotations

import pytest

from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.sim.ring import RingJob, ring


@virtual_time
async def test_a_job_runs_and_succeeds() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        kit.script.when("*-worker-*").run().after(60).succeed()
        job = await kit.submit(ring())
        await kit.until("default/ring", phase="Succeeded")
        assert job.pod_phases == {"ring-worker-0": "Succeeded", "ring-worker-1": "Succeeded"}
        assert list(job.services) == ["ring-worker-0", "ring-worker-1"]
        assert await kit.writes_at_rest() == []


@virtual_time
async def test_a_job_whose_pod_fails_for_good_fails_and_says_which() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        kit.script.when("ring-worker-1").run().fail(exit_code=3)
        job = await kit.submit(ring())
        await kit.until(job, phase="Failed")
        failed = job.condition("Failed")
        assert failed is not None
        assert "ring-worker-1" in failed["message"]
        assert "3" in failed["message"]


@virtual_time
async def test_what_is_never_reached_is_told_with_everything_that_is_known() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        await kit.submit(ring())
        with pytest.raises(AssertionError, match=r"phase Succeeded; default/ring: phase Running, pods .*ring-worker-0.*Running"):
            await kit.until("default/ring", phase="Succeeded")


@virtual_time
async def test_a_manifest_may_be_text() -> None:
    manifest = """
    apiVersion: example.org/v1
    kind: RingJob
    metadata: {name: written}
    spec:
      replicaSpecs:
        Worker: {template: {spec: {containers: [{name: main, image: i}]}}}
    """
    async with OperatorKit(frameworks=[RingJob]) as kit:
        job = await kit.submit(manifest)
        await kit.until(job, phase="Running")
        assert list(job.pods) == ["written-worker-0"]


async def test_the_kit_also_works_on_an_ordinary_event_loop() -> None:
    async with OperatorKit(frameworks=[RingJob], time_scale=0.01) as kit:
        kit.script.when("*").run().succeed()
        job = await kit.submit(ring())
        await kit.until(job, phase="Succeeded", within_seconds=30)


@virtual_time
async def test_a_kind_that_the_kit_does_not_have_is_named() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        with pytest.raises(LookupError, match=r"no framework for example.org/v2 RingJob; it has example.org/v1 RingJob"):
            await kit.submit({**ring(), "apiVersion": "example.org/v2"})
