"""What a test run does where the real control plane is missing, or MPI, or MXNet."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hack.scripts import python, without_control_plane
from tests.local.example_needs import require_mpi, require_mxnet

NEEDS_CLUSTER = "tests/hack/test_real_cluster.py::test_users_besides_the_admin_have_a_token_and_no_rights"
PYTEST = ("-m", "pytest", "-p", "no:cacheprovider", NEEDS_CLUSTER)


def test_without_the_real_server_its_tests_are_skipped_with_one_loud_line(tmp_path: Path) -> None:
    answer = python(*PYTEST, environment=without_control_plane(tmp_path))
    assert answer.returncode == 0, answer.stdout
    assert "1 skipped" in answer.stdout
    assert answer.stdout.count("THE REAL API SERVER WAS NOT TESTED: 1 tests skipped") == 1


def test_where_the_real_server_is_required_its_absence_is_a_failure(tmp_path: Path) -> None:
    answer = python(*PYTEST, environment={**without_control_plane(tmp_path), "DLOP_REQUIRE_CLUSTER": "1"})
    assert answer.returncode == 1
    assert "`hack/cluster up --controllers` builds them there, once" in answer.stdout


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has nothing, and for which there is no MXNet."""
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
def test_an_example_is_skipped_where_what_it_needs_is_missing_and_fails_where_that_is_required(
    require: Callable[[str], None], example: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(variable, raising=False)
    with pytest.raises(pytest.skip.Exception):
        require(example)
    monkeypatch.setenv(variable, "1")
    with pytest.raises(pytest.fail.Exception):
        require(example)


@pytest.mark.usefixtures("bare_machine")
def test_an_example_that_needs_neither_mpi_nor_mxnet_is_run_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DLOP_REQUIRE_MPI", "DLOP_REQUIRE_MXNET"):
        monkeypatch.setenv(variable, "1")
    for require in (require_mpi, require_mxnet):
        require("04-custom-framework/job.yaml")
