"""Every recorded run of the Kubeflow operator, played again under dlop, on the embedded API server and on the real one.

One of them:

    pytest tests/frameworks/test_goldens.py -k "embedded and pytorch-master-worker"
"""

from __future__ import annotations

import functools
import time

import pytest
from _pytest.mark.structures import ParameterSet
from real_cluster import RealCluster

from dlop.embedded.cluster import EmbeddedCluster
from dlop.kube.http.transport import connect
from dlop.testing.virtual_time import LoopClock, run
from tests.frameworks.golden_differences import ALLOWED, allowed_for
from tests.frameworks.golden_judge import Report
from tests.frameworks.golden_kinds import kind_of
from tests.frameworks.golden_player import Golden, goldens, play
from tests.frameworks.golden_stage import ON_A_REAL_SERVER, ON_VIRTUAL_TIME, stage


def recordings(server: str) -> list[ParameterSet]:
    """One test for each, named after the bug of the recorded operator where the recording shows one."""
    return [recording(server, name) for name in goldens()]


def recording(server: str, name: str) -> ParameterSet:
    bugs = "".join(f"-without-bug-{allowed.bug}" for allowed in allowed_for(name) if allowed.bug is not None)
    return pytest.param(name, id=f"{server}-{name}{bugs}")


async def on_embedded(golden: Golden) -> Report:
    clock = LoopClock()
    async with (
        EmbeddedCluster(clock=clock) as cluster,
        stage(cluster.transport(), kind_of(golden), clock=clock, patience=ON_VIRTUAL_TIME) as there,
    ):
        return await play(golden, there)


async def on_real(golden: Golden, cluster: RealCluster) -> Report:
    kind = kind_of(golden)
    transport = await connect(str(cluster.kubeconfig_path))
    try:
        async with stage(transport, kind, clock=time.time, patience=ON_A_REAL_SERVER) as there:
            return await play(golden, there)
    finally:
        await transport.close()


@functools.cache
def played(name: str) -> Report:
    """What comes of it on the embedded server, where it costs milliseconds."""
    return run(on_embedded(Golden.read(name)))


def demand_same(report: Report) -> None:
    if report.wrong:
        pytest.fail(f"{len(report.wrong)} differences\n{report}", pytrace=False)


@pytest.mark.parametrize("name", recordings("embedded"))
def test_the_embedded_server_sees_what_was_recorded(name: str) -> None:
    demand_same(played(name))


@pytest.mark.parametrize("name", recordings("real"))
async def test_the_real_server_sees_what_was_recorded(name: str, real_cluster: RealCluster) -> None:
    demand_same(await on_real(Golden.read(name), real_cluster))


def test_all_thirty_one_recordings_are_here() -> None:
    assert len(list(goldens())) == 31


def test_every_allowed_difference_is_found_somewhere() -> None:
    used = {difference for name in goldens() for difference in played(name).used}
    assert used == {allowed.name for allowed in ALLOWED}
