"""With few in-flight slots, creates of pods and services take precedence over status writes, for a limited time."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.request_pipeline import MAX_LOW_PRIORITY_WAIT_SECONDS
from dlop.kube.resources import PODS
from dlop.testing.faulty_transport import RecordedWrite
from dlop.testing.kit import STANDALONE, OperatorKit
from dlop.testing.script import Script
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import manifest

JOBS, REPLICAS = 50, 3
CREATES = JOBS * REPLICAS * 2
# Fewer workers than jobs: the last jobs start only when passes of others wait for nothing but their status write.
WORKERS, WRITES_IN_FLIGHT = 40, 4


def is_create(write: RecordedWrite) -> bool:
    return write.request.path.endswith(("/pods", "/services"))


def is_status(write: RecordedWrite) -> bool:
    return write.request.path.endswith("/status")


async def writes_for_many_jobs(*, per_second: float, script: Script | None = None, phase: str = "Created") -> list[RecordedWrite]:
    """The writes of an operator that starts with many jobs, few in-flight slots and a rate limit."""
    if script is None:
        script = Script()
        script.when().until_released()
    async with OperatorKit([TFJob], script=script, operator=False) as kit:
        for number in range(JOBS):
            await kit.submit(manifest(TFJob, {"Worker": REPLICAS}, name=f"demo-{number}"))
        writes_before = len(kit.writes)
        limits = {"workers": WORKERS, "writes_in_flight": WRITES_IN_FLIGHT, "kube_api_qps": per_second, "kube_api_burst": 1}
        await kit.start_operator(settings=STANDALONE.model_copy(update=limits))
        for number in range(JOBS):
            await kit.until(f"default/demo-{number}", phase=phase, within_seconds=3600)
        return kit.writes[writes_before:]


@virtual_time
async def test_pods_and_services_are_created_before_statuses_are_written() -> None:
    writes = await writes_for_many_jobs(per_second=CREATES / (MAX_LOW_PRIORITY_WAIT_SECONDS * 0.9))
    are_creates = [is_create(write) for write in writes if is_create(write) or is_status(write)]
    assert are_creates.count(True) == CREATES
    assert are_creates.count(False) == JOBS
    assert all(are_creates[:CREATES])


@virtual_time
async def test_a_status_write_waits_for_creates_of_other_jobs_for_a_limited_time() -> None:
    per_second = 15.0
    writes = await writes_for_many_jobs(per_second=per_second)
    first = next(write for write in writes if is_status(write))
    job = first.request.path.split("/")[-2]
    complete_at = max(write.at for write in writes if is_create(write) and f'"{job}-worker-'.encode() in (write.request.body or b""))
    assert first.at - complete_at <= MAX_LOW_PRIORITY_WAIT_SECONDS + 2 * WRITES_IN_FLIGHT / per_second


@virtual_time
async def test_an_outdated_status_write_is_skipped_and_covered_by_the_next_one() -> None:
    script = Script()
    script.when().after(0.1).run().after(0.1).succeed()
    writes = await writes_for_many_jobs(per_second=65, script=script, phase="Succeeded")
    statuses: dict[str, list[bytes]] = {}
    for write in writes:
        if is_status(write):
            statuses.setdefault(write.request.path, []).append(write.request.body or b"")
    assert len(statuses) == JOBS
    assert all(len(bodies) <= 3 for bodies in statuses.values())
    skipped = [bodies for bodies in statuses.values() if b'"phase":"Created"' not in bodies[0]]
    assert skipped, "no status write was skipped"
    assert all(b'"type":"Created"' in bodies[0] for bodies in skipped), "the condition of a skipped write is missing"


@virtual_time
async def test_a_job_that_is_edited_while_its_status_write_waits_needs_no_retry() -> None:
    script = Script()
    script.when().until_released()
    async with OperatorKit([TFJob], script=script, operator=False) as kit:
        jobs = [await kit.submit(manifest(TFJob, {"Worker": REPLICAS}, name=f"demo-{number}")) for number in range(JOBS)]
        limits = {"workers": JOBS, "writes_in_flight": WRITES_IN_FLIGHT, "kube_api_qps": 100.0, "kube_api_burst": 1}
        with capture_logs() as lines:
            await kit.start_operator(settings=STANDALONE.model_copy(update=limits))
            await asyncio.sleep(CREATES / 100)  # all pods are created, and most status writes are queued
            phases = {job.phase for job in jobs}
            for job in jobs:
                await kit.edit(job, {"metadata": {"annotations": {"edited": "true"}}})
            for job in jobs:
                await kit.until(job, phase="Created", within_seconds=3600)
    assert None in phases
    assert [line["event"] for line in lines if line["log_level"] == "error"] == []


@virtual_time
async def test_a_final_status_is_written_even_if_the_pods_are_deleted_meanwhile() -> None:
    script = Script()
    script.when("*", times=1).after(1).run().until_released().succeed()
    jobs = [f"demo-{number}" for number in range(20)]
    async with OperatorKit([TFJob], script=script, operator=False) as kit:
        limits = {"writes_in_flight": 2, "kube_api_qps": 10.0, "kube_api_burst": 1}
        await kit.start_operator(settings=STANDALONE.model_copy(update=limits))
        for job in jobs:
            await kit.submit(manifest(TFJob, {"Worker": 1}, name=job))
        for job in jobs:
            await kit.until(f"default/{job}", phase="Running", within_seconds=3600)
        await asyncio.sleep(60)
        for job in jobs:
            kit.kubelet.release(f"default/{job}-worker-0")
        await asyncio.sleep(1.5)  # all jobs are finished, and most status writes are queued
        assert {kit.job(f"default/{job}").phase for job in jobs} == {"Running", "Succeeded"}
        for job in jobs:
            await kit.client.delete(PODS, f"{job}-worker-0", namespace="default", grace_seconds=0)
        await asyncio.sleep(60)
        assert {kit.job(f"default/{job}").phase for job in jobs} == {"Succeeded"}
