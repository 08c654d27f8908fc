"""Start-up is fast, because imports are deferred until they are needed. `hack/bench local` measures it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.machine


def loaded_modules(statement: str) -> set[str]:
    program = f"import contextlib, io, sys\nwith contextlib.redirect_stdout(io.StringIO()):\n    {statement}\nprint(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    return set(printed.split())


@pytest.mark.parametrize("statement", ["import dlop", "import dlop.cli.main; dlop.cli.main.main(['--help'])"])
def test_large_libraries_are_not_imported_at_start_up(statement: str) -> None:
    loaded = loaded_modules(statement)
    assert loaded & {"aiohttp", "asyncio", "cryptography", "kubernetes_asyncio", "pydantic", "rich", "structlog", "uvloop", "yaml"} == set()
