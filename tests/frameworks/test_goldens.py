"""Replays all recorded runs of Kubeflow's operator under dlop on the embedded API server.

On the real one, where each takes seconds, a selection is replayed; in a thorough run, all. To replay a single one:

    pytest tests/frameworks/test_goldens.py -k "embedded and pytorch-master-worker"
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark.structures import ParameterSet
from real_cluster import RealCluster

from tests.frameworks.golden_allowed_differences import ALLOWED_DIFFERENCES, allowed_differences
from tests.frameworks.golden_checker import Report
from tests.frameworks.golden_recordings import Golden, golden_names
from tests.frameworks.golden_runs import embedded_report, replay_real
from tests.kubernetes_versions import since
from tests.thorough import select

ON_THE_REAL_SERVER = (
    "jax",
    "mpi",
    "mxnet-suspend",
    "paddle-restart",
    "pytorch-elastic",
    "pytorch-exitcode-retry",
    "pytorch-suspend-resume",
    "pytorch-ttl",
    "tf-ps-chief",
    "tf-worker-fails",
    "xgboost",
)
"""All kinds, and all kinds of events: success, failure, restart, suspension, deletion."""
NEWER_MESSAGES = {"pytorch-queue-immutable": since("1.35", reason="the message of a violated rule contains the value instead of its type")}
"""Recordings that contain a message of the API server which older servers write in another way."""


def parameters(server: str, names: Iterable[str]) -> list[ParameterSet]:
    """One parameter per recording. Its id names the known bugs of Kubeflow's operator that the recording shows."""
    return [parameter(server, name) for name in names]


def parameter(server: str, name: str) -> ParameterSet:
    bugs = "".join(f"-without-bug-{allowed.bug}" for allowed in allowed_differences(name) if allowed.bug is not None)
    marks = [NEWER_MESSAGES[name]] if server == "real" and name in NEWER_MESSAGES else []
    return pytest.param(name, id=f"{server}-{name}{bugs}", marks=marks)


def check(report: Report) -> None:
    if report.unexpected:
        pytest.fail(f"{len(report.unexpected)} differences\n{report}", pytrace=False)


@pytest.mark.parametrize("name", parameters("embedded", golden_names()))
def test_a_replay_on_the_embedded_server_matches_the_recording(name: str) -> None:
    check(embedded_report(name))


@pytest.mark.parametrize("name", parameters("real", select(list(golden_names()), ON_THE_REAL_SERVER)))
async def test_a_replay_on_the_real_server_matches_the_recording(name: str, real_cluster: RealCluster) -> None:
    check(await replay_real(Golden.read(name), real_cluster))


def test_there_are_31_recordings() -> None:
    assert len(list(golden_names())) == 31


def test_every_allowed_difference_occurs() -> None:
    used = {difference for name in golden_names() for difference in embedded_report(name).used}
    assert used == {allowed.name for allowed in ALLOWED_DIFFERENCES}
