"""Memory and process limits of containers by control groups, where the launcher may create them.

Root can create them almost everywhere, and other users can where the system delegates a subtree, as most desktops do. Only cgroup v2
is used, and cgroups that the launcher did not create are never changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_REQUIRED_CONTROLLERS = {"memory", "pids"}


@dataclass(frozen=True, slots=True)
class Cgroup:
    path: str

    def limit(self, *, memory_bytes: int | None, max_processes: int) -> None:
        _write(f"{self.path}/pids.max", str(max_processes))
        if memory_bytes is not None:
            _write(f"{self.path}/memory.max", str(memory_bytes))
            # An OOM kill takes the whole container down.
            _write(f"{self.path}/memory.oom.group", "1")
            # The file is missing on kernels without swap accounting.
            with suppress(OSError):
                _write(f"{self.path}/memory.swap.max", "0")

    def join(self) -> None:
        _write(f"{self.path}/cgroup.procs", "0")

    def ran_out_of_memory(self) -> bool:
        """Whether the OOM killer killed one of its processes."""
        with suppress(OSError), open(f"{self.path}/memory.events") as file:
            return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in file)
        return False

    def remove(self) -> None:
        """Remove it. It must have no processes."""
        with suppress(OSError):
            os.rmdir(self.path)


@dataclass(frozen=True, slots=True)
class CgroupParent:
    """The launcher's own cgroup, parent of the cgroups of containers."""

    path: str

    def create(self, name: str) -> Cgroup:
        cgroup = Cgroup(f"{self.path}/{name}")
        os.mkdir(cgroup.path)
        return cgroup

    def remove(self) -> None:
        with suppress(OSError):
            for entry in os.scandir(self.path):
                if entry.is_dir():
                    Cgroup(entry.path).remove()
            os.rmdir(self.path)


def find_cgroup_parent(*, mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup") -> CgroupParent | None:
    """Create a parent cgroup in the nearest ancestor, starting at the own cgroup, that allows memory limits. None if there is none."""
    for directory in _directories(mounts, own):
        parent = _create_in(directory)
        if parent is not None and _can_join(parent):
            return parent
        if parent is not None:
            parent.remove()
    return None


def _directories(mounts: str, own: str) -> Iterator[str]:
    mount_point, path = _mount_point(mounts), _own_path(own)
    if mount_point is None or path is None:
        return
    directory = os.path.normpath(mount_point + path)
    while directory.startswith(mount_point):
        yield directory
        directory = os.path.dirname(directory)


def _mount_point(mounts: str) -> str | None:
    with suppress(OSError), open(mounts) as file:
        for line in file:
            if " - cgroup2 " in line:
                return line.split()[4]
    return None


def _own_path(own: str) -> str | None:
    with suppress(OSError), open(own) as file:
        for line in file:
            if line.startswith("0::"):
                return line[3:].rstrip("\n")
    return None


def _create_in(directory: str) -> CgroupParent | None:
    parent = CgroupParent(f"{directory}/dlop-{os.getpid()}")
    try:
        with open(f"{directory}/cgroup.subtree_control") as file:
            if not _REQUIRED_CONTROLLERS.issubset(file.read().split()):
                return None
        os.mkdir(parent.path)
        _write(f"{parent.path}/cgroup.subtree_control", "+memory +pids")
    except OSError:
        parent.remove()
        return None
    return parent


def _can_join(parent: CgroupParent) -> bool:
    """Whether a process may join. The rules differ from file permissions, so try it in a child."""
    try:
        cgroup = parent.create("probe")
    except OSError:
        return False
    child = os.fork()
    if not child:
        try:
            cgroup.join()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    cgroup.remove()
    return status == 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
