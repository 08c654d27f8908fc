"""What some examples need that is not on every machine, and is not brought by the example itself."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import Any

import pytest

from dlop.local.node.runtime.choose import choose
from dlop.local.node.runtime.plain import PlainRuntime

HUGE = ("09-tensorflow", "10-pytorch")
"""Their packages have hundreds of megabytes to gigabytes: they are run by `hack/test --frameworks`."""
HUGE_SECONDS = 1800
_SECONDS = 400


def is_huge(name: str) -> bool:
    return name.partition("/")[0] in HUGE


def patience_seconds(name: str) -> float:
    """For a run that may have to install its packages first."""
    return HUGE_SECONDS if is_huge(name) else _SECONDS


def parameter(name: str) -> Any:
    """An example as a parameter of a test, with the marks that it needs."""
    marks = [pytest.mark.frameworks, pytest.mark.timeout(HUGE_SECONDS + 60)] if is_huge(name) else []
    return pytest.param(name, marks=marks, id=name)


def require_mpi(name: str) -> None:
    """OpenMPI is the machine's own, and its launcher needs mounts."""
    if not name.startswith("11-"):
        return
    missing = "" if shutil.which("mpirun") else "there is no mpirun: install OpenMPI, on Debian and Ubuntu the package openmpi-bin"
    chosen = asyncio.run(choose())
    if isinstance(chosen.runtime, PlainRuntime):
        missing = chosen.reason
    if missing and os.environ.get("DLOP_REQUIRE_MPI") == "1":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
