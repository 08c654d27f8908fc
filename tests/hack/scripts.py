"""Running the project's scripts as a person would, with an environment of the test's own making."""

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
    """Run a command in the project's root. A variable that is None is taken out of the environment."""
    changed = {**os.environ, **(environment or {})}
    kept = {name: value for name, value in changed.items() if value is not None}
    return subprocess.run(command, cwd=ROOT, env=kept, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_seconds)


def python(*arguments: str | Path, environment: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the Python that runs the tests."""
    return run(sys.executable, *arguments, environment=environment)


def without_control_plane(folder: Path) -> dict[str, str | None]:
    """An environment in which no program of a control plane can be found, and no Go to build one."""
    return {"KUBEBUILDER_ASSETS": None, "XDG_CACHE_HOME": str(folder), "PATH": str(folder), "DLOP_REQUIRE_CLUSTER": None}
