"""Properties of the host: its size, and the environment variables that containers get as if their image set them."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from contextlib import suppress
from pathlib import Path

_INHERITED_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


def cpu_count() -> int:
    """The number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def disk_bytes() -> int:
    """The size of the root file system, because directories for temporary files are often small and in memory."""
    return shutil.disk_usage("/").total


def raise_open_file_limit() -> None:
    """Raise the soft limit to the hard limit, because every container needs a few descriptors. Children inherit it."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems report a hard limit that they do not accept.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def base_environment() -> dict[str, str]:
    """The variables of every container. Others are not inherited, because they may contain secrets."""
    inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    # If the host has no `python`, containers use the one that runs this program.
    python_dir = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    return {**inherited, "PATH": f"{path}:{python_dir}", "HOME": str(Path.home())}
