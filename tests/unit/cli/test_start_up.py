"""Starting is fast, because nothing is imported that is not needed yet."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

IMPORT_GOAL_SECONDS = 0.150
HELP_GOAL_SECONDS = 0.400
TRIES = 8


def loaded_modules(statement: str) -> set[str]:
    program = f"import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()):\n    {statement}\nprint(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    return set(printed.split())


def fewest_cpu_seconds(*words: str) -> float:
    """The best of a few runs. Starting only computes, so on a machine with nothing else to do it takes as long as this."""
    return min(cpu_seconds(*words) for _ in range(TRIES))


def cpu_seconds(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("statement", ["import dlop", "import dlop.cli.main; dlop.cli.main.main(['--help'])"])
def test_no_large_library_is_loaded_before_it_is_needed(statement: str) -> None:
    loaded = loaded_modules(statement)
    assert loaded & {"aiohttp", "asyncio", "cryptography", "kubernetes_asyncio", "pydantic", "rich", "structlog", "uvloop", "yaml"} == set()


def test_importing_dlop_takes_less_than_150_ms() -> None:
    assert fewest_cpu_seconds("-c", "import dlop") < IMPORT_GOAL_SECONDS


def test_help_takes_less_than_400_ms() -> None:
    assert fewest_cpu_seconds("-m", "dlop", "--help") < HELP_GOAL_SECONDS
