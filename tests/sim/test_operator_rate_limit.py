"""`--kube-api-qps` limits all requests of an operator except those for its lease. Without it there is no limit."""

from __future__ import annotations

import asyncio

from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import RecordedWrite
from dlop.testing.kit import STANDALONE, OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import all_run
from tests.frameworks.kubeflow_manifests import manifest

WORKERS = 40
WRITES = 2 * WORKERS


def large_job() -> JsonObject:
    return manifest(TFJob, {"Worker": WORKERS})


def creates(kit: OperatorKit) -> list[RecordedWrite]:
    return [write for write in kit.writes if write.request.path.endswith(("/pods", "/services"))]


@virtual_time
async def test_the_rate_limit_holds_in_every_time_window() -> None:
    per_second, burst = 10, 15
    async with OperatorKit([TFJob], operator=False) as kit:
        await kit.start_operator(settings=STANDALONE.model_copy(update={"kube_api_qps": per_second, "kube_api_burst": burst}))
        await asyncio.sleep(60)
        await kit.submit(large_job())
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == WORKERS and all_run(view))
        times = [write.at for write in kit.writes]
    assert len(times) >= WRITES
    for index, first in enumerate(times):
        for count, last in enumerate(times[index:], 1):
            assert count <= burst + per_second * (last - first) + 1e-6
    assert times[-1] - times[0] > (WRITES - burst) / per_second * 0.9


@virtual_time
async def test_without_a_rate_limit_requests_are_not_delayed() -> None:
    async with OperatorKit([TFJob]) as kit:
        await asyncio.sleep(60)
        await kit.submit(large_job())
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == WORKERS and all_run(view))
        times = [write.at for write in creates(kit)]
    assert len(times) == WRITES
    assert times[-1] - times[0] < 1


@virtual_time
async def test_a_low_rate_limit_does_not_delay_lease_renewals() -> None:
    settings = Settings(leader_election=True, bind_address="off", kube_api_qps=0.5, kube_api_burst=1)
    async with OperatorKit([TFJob], operator=False) as kit:
        running = await kit.start_operator(settings=settings)
        await asyncio.sleep(60)
        await kit.submit(large_job())
        await kit.until("default/demo", reached=lambda view: len(view.pods) == WORKERS, within_seconds=3600)
        assert running.operator.is_leading
