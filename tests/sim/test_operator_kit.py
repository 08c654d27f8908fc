"""`OperatorKit` as framework authors use it."""

from __future__ import annotations

import pytest

from dlop.testing.kit import OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.sim.ring_job import RingJob, ring


@virtual_time
async def test_a_job_runs_and_succeeds() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        kit.script.when("*-worker-*").run().after(60).succeed()
        job = await kit.submit(ring())
        await kit.until("default/ring", phase="Succeeded")
        assert job.pod_phases == {"ring-worker-0": "Succeeded", "ring-worker-1": "Succeeded"}
        assert list(job.services) == ["ring-worker-0", "ring-worker-1"]
        assert await kit.writes_when_idle() == []


@virtual_time
async def test_a_job_with_a_permanent_failure_fails_and_names_the_pod() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        kit.script.when("ring-worker-1").run().fail(exit_code=3)
        job = await kit.submit(ring())
        await kit.until(job, phase="Failed")
        failed = job.condition("Failed")
        assert failed is not None
        assert "ring-worker-1" in failed["message"]
        assert "3" in failed["message"]


@virtual_time
async def test_a_timeout_reports_the_state_of_the_job() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        await kit.submit(ring())
        with pytest.raises(AssertionError, match=r"phase Succeeded; default/ring: phase Running, pods .*ring-worker-0.*Running"):
            await kit.until("default/ring", phase="Succeeded")


@virtual_time
async def test_a_manifest_can_be_a_yaml_string() -> None:
    manifest = """
    apiVersion: example.org/v1
    kind: RingJob
    metadata: {name: from-yaml}
    spec:
      replicaSpecs:
        Worker: {template: {spec: {containers: [{name: main, image: i}]}}}
    """
    async with OperatorKit(frameworks=[RingJob]) as kit:
        job = await kit.submit(manifest)
        await kit.until(job, phase="Running")
        assert list(job.pods) == ["from-yaml-worker-0"]


async def test_the_kit_works_on_a_real_event_loop() -> None:
    async with OperatorKit(frameworks=[RingJob], time_scale=0.01) as kit:
        kit.script.when("*").run().succeed()
        job = await kit.submit(ring())
        await kit.until(job, phase="Succeeded", within_seconds=30)


@virtual_time
async def test_an_unknown_kind_is_reported() -> None:
    async with OperatorKit(frameworks=[RingJob]) as kit:
        with pytest.raises(LookupError, match=r"no framework for example.org/v2 RingJob; it has example.org/v1 RingJob"):
            await kit.submit({**ring(), "apiVersion": "example.org/v2"})
