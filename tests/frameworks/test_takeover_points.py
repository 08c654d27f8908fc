"""Kubeflow's operator may be stopped at almost any point of a job: dlop changes no existing object and continues from there.

The state after each step of each recording is restored, except where a pod exists whose body was not recorded. dlop is started, must
leave the status and all objects unchanged apart from its own metadata, and then runs the remaining steps of the recording.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from dlop.embedded.cluster import EmbeddedCluster
from dlop.testing.virtual_time import LoopClock, run
from tests.frameworks.golden_checker import Report
from tests.frameworks.golden_recordings import framework_of
from tests.frameworks.golden_replay import resume_replay
from tests.frameworks.golden_sandbox import VIRTUAL_TIME, open_golden_sandbox
from tests.frameworks.takeover_jobs import RECORDED_AT, owned_objects
from tests.frameworks.takeover_points import StopPoint, restore, stop_points

STOP_POINTS = list(stop_points())


async def take_over(point: StopPoint) -> Report:
    clock, framework = LoopClock(start=datetime.fromisoformat(RECORDED_AT).timestamp()), framework_of(point.golden)
    async with (
        EmbeddedCluster(clock=clock) as cluster,
        open_golden_sandbox(cluster.transport(), framework, clock=clock, timeouts=VIRTUAL_TIME, start_operator=False) as sandbox,
    ):
        uid = await restore(point, sandbox.client, sandbox.kubelet, sandbox.resource, namespace=sandbox.namespace)
        before = await owned_objects(sandbox.client, sandbox.namespace)
        await sandbox.start_operator()

        async def check_objects() -> None:
            assert await owned_objects(sandbox.client, sandbox.namespace) == before

        return await resume_replay(point.golden, sandbox, job_uid=uid, steps_done=point.steps_done, before_next_step=check_objects)


@pytest.mark.parametrize("point", STOP_POINTS, ids=lambda point: point.title)
def test_dlop_continues_from_the_point_at_which_kubeflows_operator_was_stopped(point: StopPoint) -> None:
    report = run(take_over(point))
    assert not report.unexpected, str(report)


def test_there_are_points_of_every_recording() -> None:
    assert len(STOP_POINTS) > 90
    assert len({point.golden.name for point in STOP_POINTS}) == 31
