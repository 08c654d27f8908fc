"""The folder of one laptop cluster: its kubeconfig, its log, and the files and logs of its pods.

It is private, belongs to one cluster at a time, and goes with it unless it is to be kept.
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

_LOCK = "lock"
_OURS = ("kubeconfig", "dlop.log", "node")


class FolderError(Exception):
    """The folder cannot be used. The message says why."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Where everything of a cluster is."""

    path: Path

    @classmethod
    def at(cls, path: str) -> Self:
        """The folder of that path."""
        return cls(Path(path))

    @property
    def kubeconfig(self) -> Path:
        """The way in, for kubectl and others."""
        return self.path / "kubeconfig"

    @property
    def log(self) -> Path:
        """What the operator and the node have to say."""
        return self.path / "dlop.log"

    @property
    def node(self) -> Path:
        """What belongs to pods."""
        return self.path / "node"

    @property
    def pod_logs(self) -> Path:
        """What pods have written."""
        return self.node / "logs"

    def write_kubeconfig(self, content: JsonObject) -> None:
        """Write the kubeconfig, for nobody else to read."""
        _made_private(self.kubeconfig).write_bytes(msgspec.json.format(msgspec.json.encode(content)))

    def open_log(self) -> TextIO:
        """The log, empty and to be written, for nobody else to read."""
        return _made_private(self.log).open("w")


@contextmanager
def using_folder(place: Path | None, *, keep: bool) -> Iterator[Folder]:
    """A folder for the time of a block: this one, or a new one. Unless it is to be kept, nothing of ours stays behind.

    Raises:
        FolderError: it cannot be made, or another cluster uses it.
    """
    made = place is None or not place.exists()
    path = _made(place)
    lock = _locked(path)
    try:
        _remove_ours(path)
        folder = Folder(path)
        folder.node.mkdir()
        yield folder
    finally:
        if not keep:
            _remove_ours(path)
        (path / _LOCK).unlink(missing_ok=True)
        os.close(lock)
        if made and not keep:
            # Somebody else's file keeps it.
            _remove_if_empty(path)


def _made_private(path: Path) -> Path:
    """A new file, whoever may enter its folder."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    return path


def _made(place: Path | None) -> Path:
    if place is None:
        return Path(tempfile.mkdtemp(prefix="dlop-local-"))
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(f"the folder {place} cannot be made: {error.strerror}.") from error
    return place.resolve()


def _locked(path: Path) -> int:
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FolderError(f"the folder {path} cannot be used: {error.strerror}.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise FolderError(f"the folder {path} is in use by another `dlop local`; choose another one.") from error
    return lock


def _remove_ours(path: Path) -> None:
    for name in _OURS:
        found = path / name
        if found.is_dir() and not found.is_symlink():
            shutil.rmtree(found, ignore_errors=True)
        else:
            found.unlink(missing_ok=True)


def _remove_if_empty(path: Path) -> None:
    try:
        path.rmdir()
    except OSError:
        return
