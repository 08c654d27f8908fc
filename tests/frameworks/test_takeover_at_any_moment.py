"""Kubeflow's operator may be stopped at nearly any moment of a job's life: dlop changes nothing that is there, and goes on from it.

Each recording is brought back as it was after nearly each of its steps: those are left out whose pods were not recorded whole. dlop is
started, has to leave the status and every object as it finds them, its own marks apart, and then plays the rest of the recording.
"""

from __future__ import annotations

from datetime import datetime

import pytest

from dlop.embedded.cluster import EmbeddedCluster
from dlop.testing.virtual_time import LoopClock, run
from tests.frameworks.golden_judge import Report
from tests.frameworks.golden_kinds import kind_of
from tests.frameworks.golden_player import go_on
from tests.frameworks.golden_stage import ON_VIRTUAL_TIME, stage
from tests.frameworks.old_moments import Stop, bring_back, stops
from tests.frameworks.old_operator import LONG_AGO, belongings

STOPS = list(stops())


async def hand_over(stop: Stop) -> Report:
    clock, kind = LoopClock(start=datetime.fromisoformat(LONG_AGO).timestamp()), kind_of(stop.golden)
    async with (
        EmbeddedCluster(clock=clock) as cluster,
        stage(cluster.transport(), kind, clock=clock, patience=ON_VIRTUAL_TIME, begun=False) as there,
    ):
        uid = await bring_back(stop, there.client, there.kubelet, there.resource, namespace=there.namespace)
        before = await belongings(there.client, there.namespace)
        await there.begin()

        async def demand_same_objects() -> None:
            assert await belongings(there.client, there.namespace) == before

        return await go_on(stop.golden, there, job_uid=uid, after=stop.steps_done, settled=demand_same_objects)


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.title)
def test_dlop_goes_on_from_where_the_old_operator_was_stopped(stop: Stop) -> None:
    report = run(hand_over(stop))
    assert not report.wrong, str(report)


def test_nearly_every_moment_of_every_recording_is_among_them() -> None:
    assert len(STOPS) > 90
    assert len({stop.golden.name for stop in STOPS}) == 31
