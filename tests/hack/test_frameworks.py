"""Which tests are left out because their packages are huge, and what is said of them."""

from __future__ import annotations

from tests.hack.scripts import python, run
from tests.local.example_needs import HUGE

FILE = "tests/local/test_examples_for_real.py"
COLLECT = ("-p", "no:cacheprovider", "--collect-only", "-q", FILE)
LINE = "tests of frameworks with huge packages were left out: `hack/test --frameworks` runs them"


def test_huge_frameworks_are_left_out_and_one_line_says_so() -> None:
    answer = python("-m", "pytest", *COLLECT)
    assert answer.returncode == 0, answer.stdout
    assert not any(f"[{name}/" in answer.stdout for name in HUGE)
    assert answer.stdout.count(LINE) == 1


def test_they_are_run_alone_when_they_are_asked_for() -> None:
    answer = run("hack/test", "--frameworks", *COLLECT)
    assert answer.returncode == 0, answer.stdout
    listed = [line for line in answer.stdout.splitlines() if line.startswith(FILE)]
    assert listed
    assert all(any(f"[{name}/" in line for name in HUGE) for line in listed)
    assert all(any(f"[{name}/" in line for line in listed) for name in HUGE)
    assert LINE not in answer.stdout
