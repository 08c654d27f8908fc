"""Keeping one container from taking the whole machine, as far as the machine lets us.

Memory: the control group's limit where we may make control groups; there the kernel also tells that it killed for it. Else a limit
on the data of each process, at which an allocation fails: twice the container's, for untouched memory and the stacks of threads
count there, and no job that works on a cluster should fail here.

Processes: a fork bomb ends at a few thousand, by the control group, by the size of the container's own process table (Linux 6.14),
or by the user's limit, which does not bind root.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress

_DATA_PER_LIMIT = 2
_CONTAINERS_PER_LIMIT = 4
_FIRST_TO_GO = "500"


_open_files = resource.getrlimit(resource.RLIMIT_NOFILE)


def allow_open_files() -> None:
    """Have as many open files as we may: there are some for each pod. What we start gets the usual number."""
    _, most = _open_files
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def be_usual() -> None:
    """Be like other programs: no more open files than they have, and no longer to be spared."""
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, _open_files)
    # When the machine runs out of memory, a pod is to go before the program that watches it.
    _write("/proc/self/oom_score_adj", _FIRST_TO_GO)


def limit_memory(limit_bytes: int) -> None:
    """Limit the data of this process and of each that it starts."""
    _lower(resource.RLIMIT_DATA, limit_bytes * _DATA_PER_LIMIT)


def limit_own_table(most: int) -> None:
    """Limit the processes of a container that has its own process table."""
    kernel = _kernel()
    if kernel >= (6, 14):
        # Before, this would have been the whole machine's.
        _write("/proc/sys/kernel/pid_max", str(most))
    if kernel >= (5, 14):
        # Before, this counted everything that the user runs, and a busy desktop would be above it. Now it is all our containers.
        _lower(resource.RLIMIT_NPROC, _CONTAINERS_PER_LIMIT * most)


def limit_shared_table(more: int) -> None:
    """Let the user have so many processes more than the machine has now, and no others."""
    with suppress(OSError), open("/proc/loadavg") as file:
        _lower(resource.RLIMIT_NPROC, int(file.read().split()[3].split("/")[1]) + more)


def _lower(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))


def _write(path: str, text: str) -> None:
    with suppress(OSError), open(path, "w") as file:
        file.write(text)
