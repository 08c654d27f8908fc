"""The working directory of a local cluster: its kubeconfig, its log, and the files and logs of its pods.

It is locked by one cluster at a time and removed with it, unless it is kept.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

import msgspec

from dlop.kube.types import JsonObject

_LOCK_FILE = "lock"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_CONTENTS = ("kubeconfig", "dlop.log", "node")


class WorkDirError(Exception):
    """The working directory cannot be used."""


@dataclass(frozen=True, slots=True)
class WorkDir:
    path: Path

    @classmethod
    def at(cls, path: str) -> Self:
        return cls(Path(path))

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def log(self) -> Path:
        """The log of the operator and the kubelet."""
        return self.path / "dlop.log"

    @property
    def node(self) -> Path:
        """The files of the kubelet and its pods."""
        return self.path / "node"

    @property
    def pod_logs(self) -> Path:
        return self.node / "logs"

    def write_kubeconfig(self, content: JsonObject) -> None:
        """Write the kubeconfig, readable by the owner only."""
        _create_private_file(self.kubeconfig).write_bytes(msgspec.json.format(msgspec.json.encode(content)))

    def open_log(self) -> TextIO:
        """Truncate the log and open it for writing, readable by the owner only."""
        return _create_private_file(self.log).open("w")


@contextmanager
def open_workdir(directory: Path | None, *, keep: bool) -> Iterator[WorkDir]:
    """Lock a working directory, or a temporary one if it is None. Unless `keep`, its contents are removed at the end.

    Raises:
        WorkDirError: the directory cannot be created, another user can change it, or another cluster uses it.
    """
    path, is_new = _create_directory(directory)
    try:
        _check_permissions(path)
    except WorkDirError:
        if is_new:
            path.rmdir()
        raise
    lock = _lock(path)
    try:
        _remove_contents(path)
        workdir = WorkDir(path)
        workdir.node.mkdir()
        yield workdir
    finally:
        if not keep:
            _remove_contents(path)
        (path / _LOCK_FILE).unlink(missing_ok=True)
        os.close(lock)
        if is_new and not keep:
            # Files of others keep the directory.
            _remove_if_empty(path)


def _create_private_file(path: Path) -> Path:
    # A new file, because an existing one may be a link or have other permissions.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    return path


def _create_directory(directory: Path | None) -> tuple[Path, bool]:
    """Returns the path without symbolic links, and whether the directory is new."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="dlop-local-")).resolve(), True
    try:
        # Only the last component must not be a link: in a shared directory such as /tmp, another user may have created it.
        path = directory.resolve() if directory.name in ("", "..") else directory.parent.resolve() / directory.name
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.is_symlink() and not path.exists()
        path.mkdir(mode=0o700, exist_ok=not is_new)
    except OSError as error:
        raise WorkDirError(f"the directory {directory} cannot be created: {error.strerror}.") from error
    return path, is_new


def _check_permissions(path: Path) -> None:
    """Check that no other user can replace the directory or its contents, which include the administrator's kubeconfig."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise WorkDirError(f"{path} is a symbolic link; specify the directory that it refers to.")
    if status.st_uid != os.geteuid():
        raise WorkDirError(f"the directory {path} belongs to another user (UID {status.st_uid}); choose another one.")
    if status.st_mode & _OTHERS_WRITE:
        raise WorkDirError(f"other users can change the directory {path}; run `chmod go-w {shlex.quote(str(path))}` or choose another one.")
    for parent in path.parents:
        if _can_others_change(parent.stat()):
            raise WorkDirError(
                f"other users can replace the directory {path}, because they can change {parent}; choose another one with --folder."
            )


def _can_others_change(directory: os.stat_result) -> bool:
    """Whether another user can replace the entries of a directory that belong to the current user."""
    if directory.st_uid not in (0, os.geteuid()):
        return True
    # The group of the current user is usually a private one, and many systems let it write by default.
    own_groups = (0, os.getegid())
    others = stat.S_IWOTH if directory.st_gid in own_groups else _OTHERS_WRITE
    return bool(directory.st_mode & others) and not directory.st_mode & stat.S_ISVTX


def _lock(path: Path) -> int:
    try:
        lock = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise WorkDirError(f"the directory {path} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise WorkDirError(f"the directory {path} is in use by another `dlop local`; choose another one.") from error
    return lock


def _remove_contents(path: Path) -> None:
    for name in _CONTENTS:
        entry = path / name
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return
