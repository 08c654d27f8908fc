"""The mounts of the current mount namespace."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MountEntry:
    """A mount. It shows the directory `root` of a file system at `mount_point`."""

    device: str
    root: str
    mount_point: str


def read_mounts() -> list[MountEntry]:
    """All mounts, in the order in which they cover each other."""
    with open("/proc/self/mountinfo", "rb") as file:
        return [MountEntry(*(_decode(field) for field in line.split()[2:5])) for line in file]


def find_aliases(directory: str) -> list[str]:
    """The path of a directory, and the paths at which other mounts, such as bind mounts of the host, show the same directory."""
    path, status = os.path.realpath(directory), os.stat(directory)
    mounts = read_mounts()
    # The last one of several mounts at the same mount point covers the others.
    parents = [mount for mount in reversed(mounts) if is_below(path, mount.mount_point)]
    own = max(parents, key=lambda mount: len(mount.mount_point), default=None)
    if own is None:  # in a chroot that is not a mount point
        return [path]
    path_in_file_system = os.path.join(own.root, os.path.relpath(path, own.mount_point))
    candidates = [
        os.path.normpath(os.path.join(mount.mount_point, os.path.relpath(path_in_file_system, mount.root)))
        for mount in mounts
        if mount.device == own.device and is_below(path_in_file_system, mount.root)
    ]
    return [candidate for candidate in dict.fromkeys((path, *candidates)) if _is_same(candidate, status)]


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or below it. Both are absolute."""
    return os.path.commonpath((path, directory)) == directory


def _is_same(path: str, status: os.stat_result) -> bool:
    # A mount point may be covered by another mount, or not be accessible.
    try:
        return os.path.samestat(os.stat(path), status)
    except OSError:
        return False


def _decode(field: bytes) -> str:
    # Special characters are escaped as in \\040.
    return os.fsdecode(field.decode("unicode_escape").encode("latin-1"))
