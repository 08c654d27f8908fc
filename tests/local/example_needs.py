"""What some examples need that is not on every machine, and is not brought by the example itself."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from typing import Any

import pytest

from dlop.embedded.kubelet.runtime.detect import choose
from dlop.embedded.kubelet.runtime.plain import PlainRuntime

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
    _demand(chosen.reason if isinstance(chosen.runtime, PlainRuntime) else missing, "DLOP_REQUIRE_MPI")


def require_mxnet(name: str) -> None:
    """MXNet is at its end: there are packages for some machines only, and no NumPy of its time for a younger Python."""
    if not ("mxnet" in name.partition("/")[0] or name.startswith("03-")):
        return
    machine, missing = (platform.system(), platform.machine()), ""
    if sys.version_info[:2] != (3, 11) and shutil.which("python3.11") is None:
        missing = "MXNet 1.9.1 needs Python 3.11, and there is none on the PATH"
    if machine not in {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64")}:
        missing = f"there is no MXNet 1.9.1 for {machine}"
    _demand(missing, "DLOP_REQUIRE_MXNET")


def _demand(missing: str, variable: str) -> None:
    """Where something is missing the test is skipped; where the variable says that it is required, it fails."""
    if missing and os.environ.get(variable) == "1":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
