"""Resource limits of containers, within what the machine allows.

Memory: the cgroup's limit where the launcher may create cgroups, which also reports OOM kills. Otherwise RLIMIT_DATA of each process,
set to twice the container's limit, because it also counts untouched memory and thread stacks, and a job that runs on a cluster must
not fail here.

Processes: a fork bomb stops at a few thousand processes, by the cgroup, by pid_max of the container's PID namespace (Linux 6.14), or by
RLIMIT_NPROC, which does not apply to root.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

_DATA_PER_LIMIT = 2
_CONTAINERS_PER_LIMIT = 4
_OOM_SCORE_ADJ = "500"


_open_files = resource.getrlimit(resource.RLIMIT_NOFILE)


def raise_open_file_limit() -> None:
    """Raise the soft limit to the hard limit, because each pod needs a few descriptors. Children get the original limit back."""
    _, hard_limit = _open_files
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def reset_child_limits() -> None:
    """Restore the open file limit that the launcher was started with, and let the OOM killer prefer this process."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, _open_files)
    # When the machine runs out of memory, pods must be killed before the node that runs them.
    _write("/proc/self/oom_score_adj", _OOM_SCORE_ADJ)


def limit_memory(limit_bytes: int) -> None:
    """Limit the data segment of this process and of each process that it starts."""
    _lower(resource.RLIMIT_DATA, limit_bytes * _DATA_PER_LIMIT)


def limit_pid_namespace(max_processes: int) -> None:
    """Limit the processes of a container that has its own PID namespace."""
    version = _kernel_version()
    if version >= (6, 14):
        # On older kernels this sysctl applies to the whole machine.
        _write("/proc/sys/kernel/pid_max", str(max_processes))
    if version >= (5, 14):
        # Older kernels count all processes of the user, and a busy desktop may exceed the limit. Newer ones count per user namespace.
        _lower(resource.RLIMIT_NPROC, _CONTAINERS_PER_LIMIT * max_processes)


def limit_user_processes(additional: int) -> None:
    """Let the user have this many processes in addition to those that the machine has now."""
    with suppress(OSError), open("/proc/loadavg") as file:
        _lower(resource.RLIMIT_NPROC, int(file.read().split()[3].split("/")[1]) + additional)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))


def _write(path: str, text: str) -> None:
    with suppress(OSError), open(path, "w") as file:
        file.write(text)
