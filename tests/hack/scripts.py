"""Runs the scripts of the project in subprocesses with a modified environment."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(
    *command: str | Path, environment: Mapping[str, str | None] | None = None, timeout_seconds: float = 100.0
) -> subprocess.CompletedProcess[str]:
    """Run a command in the project root. A variable with the value None is removed from the environment."""
    variables = {**os.environ, **(environment or {})}
    defined = {name: value for name, value in variables.items() if value is not None}
    return subprocess.run(command, cwd=ROOT, env=defined, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds)


def python(*arguments: str | Path, environment: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the Python interpreter of the tests."""
    return run(sys.executable, *arguments, environment=environment)


def without_control_plane(folder: Path) -> dict[str, str | None]:
    """An environment without the programs of a control plane and without Go."""
    return {"KUBEBUILDER_ASSETS": None, "XDG_CACHE_HOME": str(folder), "PATH": str(folder), "DLOP_REQUIRE_CLUSTER": None}
