"""What the machine under the node has: its size, and the variables that containers get as if from an image."""

from __future__ import annotations

import os
import resource
import shutil
import sys
from contextlib import suppress
from pathlib import Path

_PASSED_ON = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")


def cpu_count() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int:
    """How much memory there is."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def disk_bytes() -> int:
    """How large the disk is: the machine's own, for folders for temporary files often lie in memory, and are small."""
    return shutil.disk_usage("/").total


def allow_open_files() -> None:
    """Let this process have as many open files as it may: every container takes a few. What it starts from now on may too."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some systems promise more than they keep.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def base_environment() -> dict[str, str]:
    """The variables of every container. The rest of this process's own, secrets above all, is none of a pod's business."""
    passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    # Where the host has no `python` of its own, the one that runs this program is better than none.
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    return {**passed_on, "PATH": f"{path}:{own}", "HOME": str(Path.home())}
