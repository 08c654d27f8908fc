"""Start-up is fast, because imports are deferred until they are needed."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

pytestmark = pytest.mark.machine

MAX_IMPORT_SECONDS = 0.150
MAX_HELP_SECONDS = 0.400
RUNS = 8


def loaded_modules(statement: str) -> set[str]:
    program = f"import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()):\n    {statement}\nprint(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    return set(printed.split())


def min_cpu_seconds(*words: str) -> float:
    """The minimum over several runs, which is close to the time on an idle machine."""
    return min(cpu_seconds(*words) for _ in range(RUNS))


def cpu_seconds(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("statement", ["import dlop", "import dlop.cli.main; dlop.cli.main.main(['--help'])"])
def test_large_libraries_are_not_imported_at_start_up(statement: str) -> None:
    loaded = loaded_modules(statement)
    assert loaded & {"aiohttp", "asyncio", "cryptography", "kubernetes_asyncio", "pydantic", "rich", "structlog", "uvloop", "yaml"} == set()


def test_importing_dlop_takes_less_than_150_ms() -> None:
    assert min_cpu_seconds("-c", "import dlop") < MAX_IMPORT_SECONDS


def test_help_takes_less_than_400_ms() -> None:
    assert min_cpu_seconds("-m", "dlop", "--help") < MAX_HELP_SECONDS
