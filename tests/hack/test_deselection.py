"""Which tests a run deselects, and the line that reports them, also with workers."""

from __future__ import annotations

import subprocess

from tests.hack.scripts import python, run
from tests.thorough import VARIABLE

SELFTEST = "tests/unit/hack/test_bench_certainty.py"
MACHINE = "tests/unit/cli/test_start_up.py"
OTHER = "tests/unit/kube/config/test_proxies.py"
LINE = "tests of benchmarks and test tools were deselected: `hack/test --thorough` runs them"


def collect(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(
        "hack/test", *arguments, "-p", "no:cacheprovider", "--numprocesses", "0", "--collect-only", "-q", environment={VARIABLE: None}
    )


def test_selftests_are_deselected_and_one_line_reports_it() -> None:
    process = collect(SELFTEST, OTHER)
    assert process.returncode == 0, process.stdout
    assert f"{SELFTEST}::" not in process.stdout
    assert process.stdout.count(LINE) == 1


def test_a_thorough_run_includes_selftests() -> None:
    process = collect("--thorough", SELFTEST, OTHER)
    assert f"{SELFTEST}::" in process.stdout
    assert LINE not in process.stdout


def test_a_fast_run_includes_only_unmarked_tests() -> None:
    process = collect("fast", "--ignore", "tests/sim", "--ignore", "tests/unit/embedded", "--ignore", "tests/unit/reconcile")
    assert f"{OTHER}::" in process.stdout
    assert MACHINE not in process.stdout


def test_with_workers_the_line_is_printed_once_with_the_same_number() -> None:
    arguments = ("-m", "pytest", "-p", "no:cacheprovider", SELFTEST, OTHER)
    single = python(*arguments, environment={VARIABLE: None})
    workers = python(*arguments, "--numprocesses", "2", environment={VARIABLE: None})
    assert (single.returncode, workers.returncode) == (0, 0), workers.stdout
    lines = [[line for line in process.stdout.splitlines() if line.endswith(LINE)] for process in (single, workers)]
    assert len(lines[0]) == 1
    assert lines[0] == lines[1]


def test_a_test_without_the_marker_cannot_start_a_process() -> None:
    """Runs the tests of a marked file without their marker."""
    program = "import sys, pytest\n" + _WITHOUT_MARKER + "sys.exit(pytest.main(sys.argv[1:], plugins=[WithoutMarker()]))"
    process = python("-c", program, "-p", "no:cacheprovider", MACHINE)
    assert process.returncode == 1, process.stdout
    assert "subprocess.Popen is only allowed in tests with the marker 'machine'" in process.stdout


_WITHOUT_MARKER = """
class WithoutMarker:
    def pytest_collection_modifyitems(self, items):
        for item in items:
            item.parent.own_markers.clear()
"""
