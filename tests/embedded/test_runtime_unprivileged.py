"""Everything that is claimed of namespaces holds for a user without any rights too."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.embedded.as_nobody import NOBODY

HERE = Path(__file__).parent
CLAIMS = ("processes", "files", "network", "death")
PROJECT = HERE.parents[1]


@pytest.fixture
def room() -> Iterator[Path]:
    """A folder that nobody may write to, in the other sense."""
    folder = Path(tempfile.mkdtemp(prefix="dlop-nobody-"))
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests show it already")
async def test_nobody_can_run_pods_in_namespaces(room: Path) -> None:
    pytest_ = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={room / 'tests'}", "-k", "not plain")
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.embedded.as_nobody"),
        *(*pytest_, *(str(HERE / f"test_runtime_{claims}.py") for claims in CLAIMS)),
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"], "HOME": str(room), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text, _ = await program.communicate()
    assert program.returncode == 0, text.decode()
