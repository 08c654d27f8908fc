"""The tests of the namespaces runtime also pass for a user without privileges."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.unprivileged import NOBODY

HERE = Path(__file__).parent
TEST_MODULES = ("processes", "files", "isolation", "network", "death")
PROJECT = HERE.parents[1]


@pytest.fixture
def writable_dir() -> Iterator[Path]:
    """A directory that belongs to the user `nobody`."""
    directory = Path(tempfile.mkdtemp(prefix="dlop-nobody-"))
    os.chown(directory, NOBODY, NOBODY)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests already run without privileges")
async def test_an_unprivileged_user_can_run_pods_in_namespaces(writable_dir: Path) -> None:
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={writable_dir / 'tests'}", "-k", "not plain")
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.embedded.unprivileged"),
        *(*pytest_, *(str(HERE / f"test_runtime_{name}.py") for name in TEST_MODULES)),
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "HOME": str(writable_dir), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text, _ = await program.communicate()
    assert program.returncode == 0, text.decode()
