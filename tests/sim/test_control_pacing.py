"""`--kube-api-qps` limits everything that an operator asks for, apart from its lease. Without it nothing is held back."""

from __future__ import annotations

import asyncio

from dlop.frameworks.kubeflow.tfjob import TFJob
from dlop.kube.types import JsonObject
from dlop.operator.settings import Settings
from dlop.testing.faulty_transport import Write
from dlop.testing.kit import OUTSIDE, OperatorKit
from dlop.testing.virtual_time import virtual_time
from tests.frameworks.kubeflow_jobs import all_run
from tests.frameworks.kubeflow_manifests import manifest

WORKERS = 40
WRITES = 2 * WORKERS


def large() -> JsonObject:
    return manifest(TFJob, {"Worker": WORKERS})


def creates(kit: OperatorKit) -> list[Write]:
    return [write for write in kit.writes if write.request.path.endswith(("/pods", "/services"))]


@virtual_time
async def test_an_operator_with_a_limit_never_asks_for_more_in_any_span_of_time() -> None:
    per_second, burst = 10, 15
    async with OperatorKit([TFJob], operator=False) as kit:
        await kit.start_operator(settings=OUTSIDE.model_copy(update={"kube_api_qps": per_second, "kube_api_burst": burst}))
        await asyncio.sleep(60)
        await kit.submit(large())
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == WORKERS and all_run(view))
        moments = [write.at for write in kit.writes]
    assert len(moments) >= WRITES
    for index, first in enumerate(moments):
        for count, last in enumerate(moments[index:], 1):
            assert count <= burst + per_second * (last - first) + 1e-6
    assert moments[-1] - moments[0] > (WRITES - burst) / per_second * 0.9


@virtual_time
async def test_an_operator_without_a_limit_waits_for_nothing_but_answers() -> None:
    async with OperatorKit([TFJob]) as kit:
        await asyncio.sleep(60)
        await kit.submit(large())
        await kit.until("default/demo", phase="Running", reached=lambda view: len(view.pods) == WORKERS and all_run(view))
        moments = [write.at for write in creates(kit)]
    assert len(moments) == WRITES
    assert moments[-1] - moments[0] < 1


@virtual_time
async def test_the_lease_is_renewed_in_time_however_low_the_limit_is() -> None:
    settings = Settings(leader_election=True, bind_address="off", kube_api_qps=0.5, kube_api_burst=1)
    async with OperatorKit([TFJob], operator=False) as kit:
        running = await kit.start_operator(settings=settings)
        await asyncio.sleep(60)
        await kit.submit(large())
        await kit.until("default/demo", reached=lambda view: len(view.pods) == WORKERS, within_seconds=3600)
        assert running.operator.is_working
