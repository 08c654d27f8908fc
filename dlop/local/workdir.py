"""The working directory of a local cluster: its kubeconfig, its log, and the files and logs of its pods.

It is locked by one cluster at a time and removed with it, unless it is kept.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TextIO

import msgspec

from dlop.kube.types import JsonObject

_LOCK_FILE = "lock"
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
        WorkDirError: the directory cannot be created, or another cluster uses it.
    """
    is_new = directory is None or not directory.exists()
    path = _create_directory(directory)
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
    # A new file, because an existing one may have other permissions.
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    return path


def _create_directory(directory: Path | None) -> Path:
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="dlop-local-"))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise WorkDirError(f"the directory {directory} cannot be created: {error.strerror}.") from error
    return directory.resolve()


def _lock(path: Path) -> int:
    try:
        lock = os.open(path / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
