"""Work that comes to nothing: what an operator does again because it does not see yet that it has done it."""

from __future__ import annotations

import asyncio

from dlop.embedded.apiserver.faults import Match
from dlop.testing.faulty_transport import Write
from dlop.testing.kit import OperatorKit
from tests.sim.ring import RingJob, ring
from tests.sim.stories import all_run

_WORKERS = 4


async def creates_while_blind(*, plural: str | None, seconds: float) -> list[Write]:
    """All creates of pods and services for a new job that is touched again and again while watch events are withheld."""
    async with OperatorKit([RingJob], operator=False) as kit:
        server = kit.new_server()
        operator = await kit.start_operator(server)
        await operator.operator.wait_synced()
        held = server.faults.hold_watches(match=Match(plural=plural))
        job = await kit.submit(ring(workers=_WORKERS))
        for second in range(round(seconds)):
            await asyncio.sleep(1)
            await kit.edit(job, {"metadata": {"annotations": {"touched": str(second)}}})
        held.release()
        await kit.until(job, phase="Running", reached=lambda job: all_run(job, _WORKERS))
        return [write for write in kit.writes if write.request.method == "POST" and write.request.path.endswith(("/pods", "/services"))]


def wasted(creates: list[Write]) -> list[str]:
    """Those that the server had no use for."""
    return [str(write) for write in creates if write.status != 201]
