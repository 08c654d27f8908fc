"""Test runs on machines without the real control plane, MPI or MXNet."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hack.scripts import python, without_control_plane
from tests.local.example_needs import require_mpi, require_mxnet

NEEDS_CLUSTER = "tests/cluster/test_lease_on_a_real_server.py::test_a_leader_whose_lease_was_taken_stops_leading"
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", NEEDS_CLUSTER)


def test_without_the_real_server_its_tests_are_skipped_and_one_line_reports_it(tmp_path: Path) -> None:
    process = python(*PYTEST, environment=without_control_plane(tmp_path))
    assert process.returncode == 0, process.stdout
    assert "1 skipped" in process.stdout
    assert process.stdout.count("THE REAL API SERVER WAS NOT TESTED: 1 tests skipped") == 1


def test_a_missing_real_server_is_a_failure_if_it_is_required(tmp_path: Path) -> None:
    process = python(*PYTEST, environment={**without_control_plane(tmp_path), "DLOP_REQUIRE_CLUSTER": "1"})
    assert process.returncode == 1
    assert "run `hack/cluster up --controllers` to build them once" in process.stdout


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without MPI, and of an architecture that MXNet does not support."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(platform, "machine", lambda: "abacus")


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize(
    ("require", "example", "variable"),
    [
        (require_mpi, "11-mpi/job.yaml", "DLOP_REQUIRE_MPI"),
        (require_mxnet, "01-mxnet-linear/job.yaml", "DLOP_REQUIRE_MXNET"),
        (require_mxnet, "03-recovery/job.yaml", "DLOP_REQUIRE_MXNET"),
    ],
)
def test_an_example_without_its_dependencies_is_skipped_and_fails_if_they_are_required(
    require: Callable[[str], None], example: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(pytest.skip.Exception):
        require(example)
    monkeypatch.setenv(variable, "1")
    with pytest.raises(pytest.fail.Exception):
        require(example)


@pytest.mark.usefixtures("bare_machine")
def test_an_example_that_needs_neither_mpi_nor_mxnet_runs_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DLOP_REQUIRE_MPI", "DLOP_REQUIRE_MXNET"):
        monkeypatch.setenv(variable, "1")
    for require in (require_mpi, require_mxnet):
        require("04-custom-framework/job.yaml")
