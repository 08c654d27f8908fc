"""Counts creates that an operator repeats because its caches do not show the first ones yet."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import RequestMatch
from dlop.testing.faulty_transport import RecordedWrite
from dlop.testing.kit import OperatorKit
from tests.sim.ring_job import RingJob, ring
from tests.sim.scenarios import all_running

_WORKERS = 4


async def creates_with_delayed_watches(*, plural: str | None, seconds: float) -> list[RecordedWrite]:
    """All creates of pods and services for a new job that is edited every second while watch events are delayed."""
    async with OperatorKit([RingJob], operator=False) as kit:
        server = kit.new_server()
        operator = await kit.start_operator(server)
        await operator.operator.wait_synced()
        held = server.faults.hold_watches(match=RequestMatch(plural=plural))
        job = await kit.submit(ring(workers=_WORKERS))
        for second in range(round(seconds)):
            await asyncio.sleep(1)
            await kit.edit(job, {"metadata": {"annotations": {"edited": str(second)}}})
        held.release()
        await kit.until(job, phase="Running", reached=lambda job: all_running(job, _WORKERS))
        return [write for write in kit.writes if write.request.method == "POST" and write.request.path.endswith(("/pods", "/services"))]


def rejected_creates(creates: list[RecordedWrite]) -> list[str]:
    return [str(write) for write in creates if write.status != 201]
