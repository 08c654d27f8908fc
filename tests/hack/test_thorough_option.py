"""`hack/test --thorough` also tests Kueue itself and the oldest supported version of Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hack.scripts import ROOT, run

# Prints the version and the arguments of each run. The builds fail if the file `no-go` exists.
_PYTHON = """#!/bin/sh
case "$*" in
    *cpu_count*) echo 2 ;;
    -c*) ;;
    *kueue_build.py) echo "build Kueue" && [ ! -e no-go ] ;;
    *kubernetes_build.py) echo "build ${DLOP_KUBERNETES_VERSION-default}" && [ ! -e no-go ] ;;
    *) echo "test ${DLOP_KUBERNETES_VERSION-default} $*" ;;
esac
"""
_ALL = "test default -m pytest --numprocesses 2 --ignore tests/hack/test_bench.py"
_OLDEST = "test oldest -m pytest --numprocesses 2 tests/conformance tests/cluster tests/frameworks -k "
_BENCHMARKS = "test default -m pytest --numprocesses 0 tests/hack/test_bench.py"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project that contains only `hack/test` and a fake Python."""
    (tmp_path / "hack").mkdir()
    for script in ("test", "environment.sh"):
        (tmp_path / "hack" / script).write_bytes((ROOT / "hack" / script).read_bytes())
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(_PYTHON)
    python.chmod(0o755)
    for copy in ("pyproject.toml", ".venv/installed-from"):
        (tmp_path / copy).touch()
    return tmp_path


def runs(project: Path, *arguments: str) -> list[str]:
    process = run("/bin/bash", project / "hack" / "test", *arguments, environment={"DLOP_KUBERNETES_VERSION": None})
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def _check_thorough_run(lines: list[str]) -> None:
    kueue, newest, build, oldest, benchmarks = lines
    assert (kueue, newest, build, benchmarks) == ("build Kueue", _ALL, "build oldest", _BENCHMARKS)
    assert oldest.startswith(_OLDEST)


def test_a_thorough_run_builds_kueue_and_then_builds_and_tests_the_oldest_version_after_the_newest(project: Path) -> None:
    _check_thorough_run(runs(project, "--thorough"))


def test_if_kueue_and_the_oldest_version_cannot_be_built_their_tests_report_it(project: Path) -> None:
    (project / "no-go").touch()
    _check_thorough_run(runs(project, "--thorough"))


@pytest.mark.parametrize("arguments", [(), ("fast",), ("--thorough", "tests/unit")])
def test_other_runs_test_only_the_newest_version(project: Path, arguments: tuple[str, ...]) -> None:
    (line,) = runs(project, *arguments)
    assert line.startswith("test default ")
