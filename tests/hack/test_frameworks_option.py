"""Tests of frameworks with large packages are deselected by default."""

from __future__ import annotations

from tests.hack.scripts import python, run
from tests.local.example_needs import HUGE

FILE = "tests/local/test_examples_with_processes.py"
COLLECT = ("-p", "no:cacheprovider", "--collect-only", "-q", FILE)
LINE = "tests of frameworks with large packages were deselected: `hack/test --frameworks` runs them"


def is_listed(name: str, output: str) -> bool:
    """Whether the output lists a run of an example, or of a folder of examples."""
    return any(f"_its_readme[{name}{end}" in output for end in "/]")


def test_large_frameworks_are_deselected_and_one_line_reports_it() -> None:
    process = python("-m", "pytest", *COLLECT)
    assert process.returncode == 0, process.stdout
    assert not any(is_listed(name, process.stdout) for name in HUGE)
    assert process.stdout.count(LINE) == 1


def test_the_option_frameworks_runs_only_these_tests() -> None:
    process = run("hack/test", "--frameworks", *COLLECT)
    assert process.returncode == 0, process.stdout
    listed = [line for line in process.stdout.splitlines() if line.startswith(FILE)]
    assert listed
    assert all(any(is_listed(name, line) for name in HUGE) for line in listed)
    assert all(any(is_listed(name, line) for line in listed) for name in HUGE)
    assert LINE not in process.stdout
