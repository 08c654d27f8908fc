"""Control groups: the limits of a container's memory and processes, where we may make groups.

A user may on a desktop that hands its part of the tree over to the user, and root almost everywhere. Only the second version of the
kernel's interface is used, and we never change a group that we have not made.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

_NEEDED = {"memory", "pids"}


@dataclass(frozen=True, slots=True)
class Group:
    """The group of one container."""

    path: str

    def limit(self, *, memory_bytes: int | None, most_processes: int) -> None:
        """Say how much it may have."""
        _write(f"{self.path}/pids.max", str(most_processes))
        if memory_bytes is not None:
            _write(f"{self.path}/memory.max", str(memory_bytes))
            # A container that has lost one process has lost all of them.
            _write(f"{self.path}/memory.oom.group", "1")
            # Some kernels have no swapping.
            with suppress(OSError):
                _write(f"{self.path}/memory.swap.max", "0")

    def join(self) -> None:
        """Put this process into it."""
        _write(f"{self.path}/cgroup.procs", "0")

    def ran_out_of_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for its memory."""
        with suppress(OSError), open(f"{self.path}/memory.events") as file:
            return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in file)
        return False

    def remove(self) -> None:
        """Give it back; it has no processes any more."""
        with suppress(OSError):
            os.rmdir(self.path)


@dataclass(frozen=True, slots=True)
class Groups:
    """A group of ours, in which those of the containers are made."""

    path: str

    def make(self, name: str) -> Group:
        """A group for a container."""
        group = Group(f"{self.path}/{name}")
        os.mkdir(group.path)
        return group

    def remove(self) -> None:
        """Give everything back."""
        with suppress(OSError):
            for entry in os.scandir(self.path):
                if entry.is_dir():
                    Group(entry.path).remove()
            os.rmdir(self.path)


def find_groups(*, mounts: str = "/proc/self/mountinfo", own: str = "/proc/self/cgroup") -> Groups | None:
    """The nearest place, from our own group upwards, where we may make groups that limit memory."""
    for folder in _folders(mounts, own):
        groups = _made_in(folder)
        if groups is not None and _lets_us_in(groups):
            return groups
        if groups is not None:
            groups.remove()
    return None


def _folders(mounts: str, own: str) -> Iterator[str]:
    mount_point, path = _mount_point(mounts), _own_path(own)
    if mount_point is None or path is None:
        return
    folder = os.path.normpath(mount_point + path)
    while folder.startswith(mount_point):
        yield folder
        folder = os.path.dirname(folder)


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


def _made_in(folder: str) -> Groups | None:
    groups = Groups(f"{folder}/dlop-{os.getpid()}")
    try:
        with open(f"{folder}/cgroup.subtree_control") as file:
            if not _NEEDED.issubset(file.read().split()):
                return None
        os.mkdir(groups.path)
        _write(f"{groups.path}/cgroup.subtree_control", "+memory +pids")
    except OSError:
        groups.remove()
        return None
    return groups


def _lets_us_in(groups: Groups) -> bool:
    """Whether a process of ours may join. The rules for that are not those of files, so one tries."""
    try:
        group = groups.make("trial")
    except OSError:
        return False
    child = os.fork()
    if not child:
        try:
            group.join()
        except OSError:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    group.remove()
    return status == 0


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
