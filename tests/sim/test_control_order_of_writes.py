"""Where the server can take only so much, pods come before what is told of them; and telling is not put off for long."""

from __future__ import annotations

import asyncio

from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.in_flight import LONGEST_PATIENCE_SECONDS
from dlop.kube.resources import PODS
from dlop.testing.faulty_transport import Write
from dlop.testing.kit import OUTSIDE, OperatorKit
from dlop.testing.script import Script
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_manifests import manifest

JOBS, REPLICAS = 50, 3
CREATES = JOBS * REPLICAS * 2
# The last few jobs have to wait until others have all they need, and those only wait to be told of.
WORKERS, PLACES = 40, 4


def is_create(write: Write) -> bool:
    return write.request.path.endswith(("/pods", "/services"))


def is_status(write: Write) -> bool:
    return write.request.path.endswith("/status")


async def written_for_many_jobs(*, per_second: float, script: Script | None = None, phase: str = "Created") -> list[Write]:
    """What an operator writes that finds all jobs at once, and has few places for writes, and may make so many calls."""
    if script is None:
        script = Script()
        script.when().until_told()
    async with OperatorKit([TFJob], script=script, operator=False) as kit:
        for number in range(JOBS):
            await kit.submit(manifest(TFJob, {"Worker": REPLICAS}, name=f"demo-{number}"))
        already = len(kit.writes)
        limits = {"workers": WORKERS, "writes_in_flight": PLACES, "kube_api_qps": per_second, "kube_api_burst": 1}
        await kit.start_operator(settings=OUTSIDE.model_copy(update=limits))
        for number in range(JOBS):
            await kit.until(f"default/demo-{number}", phase=phase, within_seconds=3600)
        return kit.writes[already:]


@virtual_time
async def test_where_places_are_short_pods_and_services_come_before_statuses() -> None:
    writes = await written_for_many_jobs(per_second=CREATES / (LONGEST_PATIENCE_SECONDS * 0.9))
    kinds = [is_create(write) for write in writes if is_create(write) or is_status(write)]
    assert kinds.count(True) == CREATES
    assert kinds.count(False) == JOBS
    assert all(kinds[:CREATES])


@virtual_time
async def test_however_slow_the_server_is_a_status_does_not_wait_for_the_pods_of_all_others() -> None:
    per_second = 15.0
    writes = await written_for_many_jobs(per_second=per_second)
    first = next(write for write in writes if is_status(write))
    job = first.request.path.split("/")[-2]
    complete_at = max(write.at for write in writes if is_create(write) and f'"{job}-worker-'.encode() in (write.request.body or b""))
    assert first.at - complete_at <= LONGEST_PATIENCE_SECONDS + 2 * PLACES / per_second


@virtual_time
async def test_a_status_that_is_outdated_when_its_turn_comes_is_left_to_the_next_one() -> None:
    script = Script()
    script.when().after(0.1).run().after(0.1).succeed()
    writes = await written_for_many_jobs(per_second=65, script=script, phase="Succeeded")
    statuses: dict[str, list[bytes]] = {}
    for write in writes:
        if is_status(write):
            statuses.setdefault(write.request.path, []).append(write.request.body or b"")
    assert len(statuses) == JOBS
    assert all(len(told) <= 3 for told in statuses.values())
    put_off = [told for told in statuses.values() if b'"phase":"Created"' not in told[0]]
    assert put_off, "no job was told of late"
    assert all(b'"type":"Created"' in told[0] for told in put_off), "what was put off is told as well"


@virtual_time
async def test_an_end_that_was_decided_is_written_whatever_becomes_of_the_pods_meanwhile() -> None:
    script = Script()
    script.when("*", times=1).after(1).run().until_told().succeed()
    jobs = [f"demo-{number}" for number in range(20)]
    async with OperatorKit([TFJob], script=script, operator=False) as kit:
        limits = {"writes_in_flight": 2, "kube_api_qps": 10.0, "kube_api_burst": 1}
        await kit.start_operator(settings=OUTSIDE.model_copy(update=limits))
        for job in jobs:
            await kit.submit(manifest(TFJob, {"Worker": 1}, name=job))
        for job in jobs:
            await kit.until(f"default/{job}", phase="Running", within_seconds=3600)
        await asyncio.sleep(60)
        for job in jobs:
            kit.kubelet.tell(f"default/{job}-worker-0")
        await asyncio.sleep(1.5)  # all ends are decided, and most wait to be written
        assert {kit.job(f"default/{job}").phase for job in jobs} == {"Running", "Succeeded"}
        for job in jobs:
            await kit.client.delete(PODS, f"{job}-worker-0", namespace="default", grace_seconds=0)
        await asyncio.sleep(60)
        assert {kit.job(f"default/{job}").phase for job in jobs} == {"Succeeded"}
