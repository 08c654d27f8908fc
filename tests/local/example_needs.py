"""Requirements of examples that are not available on every machine."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from typing import Any

import pytest

from dlop.embedded.kubelet.runtime.detect import detect_runtime
from dlop.embedded.kubelet.runtime.plain import PlainRuntime

HUGE = ("09-tensorflow", "10-pytorch", "12-paddle-collective", "13-paddle-parameter-servers", "14-elastic-dlrover/job-pytorch.yaml")
"""Examples, or folders of examples, with very large packages. They are run by `hack/test --frameworks`."""
HUGE_SECONDS = 1800
_MPI = ("11-mpi/job.yaml", "15-kubedl/mpijob.yaml")
_DEFAULT_SECONDS = 400


def is_huge(name: str) -> bool:
    return name in HUGE or name.partition("/")[0] in HUGE


def patience_seconds(name: str) -> float:
    """The timeout of a run, including the installation of packages."""
    return HUGE_SECONDS if is_huge(name) else _DEFAULT_SECONDS


def parameter(name: str) -> Any:
    """An example as a parameter of a test, with its marks."""
    marks = [pytest.mark.frameworks, pytest.mark.timeout(HUGE_SECONDS + 60)] if is_huge(name) else []
    return pytest.param(name, marks=marks, id=name)


def require_mpi(name: str) -> None:
    """Examples of MPI use the OpenMPI of the machine, and their launcher needs mount namespaces."""
    if name not in _MPI:
        return
    missing = "" if shutil.which("mpirun") else "mpirun not found: install OpenMPI (package openmpi-bin on Debian and Ubuntu)"
    detected = asyncio.run(detect_runtime())
    _skip_or_fail(detected.description if isinstance(detected.runtime, PlainRuntime) else missing, "DLOP_REQUIRE_MPI")


def require_mxnet(name: str) -> None:
    """MXNet is retired. It has packages for some platforms only, and needs a NumPy that does not support later Python versions."""
    if not ("mxnet" in name.partition("/")[0] or name.startswith("03-")):
        return
    platform_name, missing = (platform.system(), platform.machine()), ""
    if sys.version_info[:2] != (3, 11) and shutil.which("python3.11") is None:
        missing = "MXNet 1.9.1 needs Python 3.11, which is not on the PATH"
    if platform_name not in {("Linux", "x86_64"), ("Linux", "aarch64"), ("Darwin", "x86_64")}:
        missing = f"MXNet 1.9.1 is not available for {platform_name}"
    _skip_or_fail(missing, "DLOP_REQUIRE_MXNET")


def _skip_or_fail(missing: str, variable: str) -> None:
    """Skip the test if something is missing, or fail it if the environment variable requires it."""
    if missing and os.environ.get(variable) == "1":
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
