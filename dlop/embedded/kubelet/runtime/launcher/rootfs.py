"""What a container sees as its files: the host's, with a few things of its own.

The root is a private tmpfs which shows the host's top-level entries, so that a mount point can be made there and nothing of the
host is changed. `/tmp`, `/proc` and `/dev/shm` are the pod's own. Where a mount point is missing below a folder of the host, that
folder is mirrored: replaced by a private one that shows the same entries, in which the mount point can be made.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .exec_program import RefusedError, reason
from .process_spec import Binding
from .syscalls import (
    CLONE_NEWNS,
    MS_BIND,
    MS_MOVE,
    MS_NOATIME,
    MS_NODEV,
    MS_NODIRATIME,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    MS_RELATIME,
    MS_REMOUNT,
    mount,
    pivot_root,
    unmount,
    unshare,
)

_OLD_ROOT = "/.host"
_STAGE = "/.stage"
_NOT_SHOWN = frozenset({"tmp", "proc", _OLD_ROOT[1:], _STAGE[1:]})
_KEPT_FLAGS = (
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
    (os.ST_NOATIME, MS_NOATIME),
    (os.ST_NODIRATIME, MS_NODIRATIME),
    (os.ST_RELATIME, MS_RELATIME),
)


def enter_new_root(place: str, *, bindings: list[Binding], folders: list[str]) -> None:
    """Get a mount namespace with a root of one's own. `place` is an empty folder; `folders` are made if they are missing."""
    unshare(CLONE_NEWNS)
    mount("tmpfs", place, kind="tmpfs", options="mode=755")
    _show_host(place)
    os.makedirs(place + _OLD_ROOT, mode=0o700)
    sources = [_open(binding) for binding in bindings]
    pivot_root(place, place + _OLD_ROOT)
    os.chdir("/")
    root = _Root()
    for binding, source in zip(bindings, sources, strict=True):
        if source is not None:
            _bind(root, source, binding)
    for folder in folders:
        root.make(folder, is_folder=True)
    unmount(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)


def _show_host(place: str) -> None:
    for name in os.listdir("/"):
        if name not in _NOT_SHOWN:
            # A mount that answers nobody, such as a lost network drive, must not keep pods from running.
            with suppress(OSError):
                _show("/" + name, f"{place}/{name}")
    os.mkdir(place + "/tmp", mode=0o1777)  # noqa: S108 - a private one
    os.mkdir(place + "/proc")
    try:
        mount("proc", place + "/proc", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except PermissionError:
        # Inside some containers a new one is refused. The host's works, though it shows more.
        mount("/proc", place + "/proc", flags=MS_BIND | MS_REC)


def _show(source: str, target: str) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
        return
    _make_empty(target, is_folder=stat.S_ISDIR(mode))
    mount(source, target, flags=MS_BIND | MS_REC)


def _make_empty(path: str, *, is_folder: bool) -> None:
    if is_folder:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _bind(root: _Root, source: int, binding: Binding) -> None:
    try:
        root.bind(source, binding)
    except OSError as error:
        raise RefusedError(f'error mounting "{binding.source}" to rootfs at "{binding.target}": {reason(error)}') from None
    finally:
        os.close(source)


def _open(binding: Binding) -> int | None:
    # By an open file, for the same path means something else once the root is another.
    try:
        return os.open(binding.source, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if binding.optional:
            return None
        raise RefusedError(f'failed to stat "{binding.source}": {reason(error)}') from None


class _Root:
    """The root, seen from inside, while it is being made."""

    def __init__(self) -> None:
        self._ours = {"/": True} | {f"/{name}": name in _NOT_SHOWN for name in os.listdir("/")}

    def bind(self, source: int, binding: Binding) -> None:
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        target = self.make(binding.target, is_folder=is_folder)
        mount(_by_file(source), target, flags=MS_BIND | MS_REC)
        self._ours[target] = True
        if binding.read_only:
            mount("", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | _flags_of(target))

    def make(self, path: str, *, is_folder: bool) -> str:
        """Make a path if it is missing, and return it without symbolic links."""
        path = os.path.realpath(path)
        missing = []
        while not os.path.lexists(path):
            path, name = os.path.split(path)
            missing.append(name)
        while missing:
            if not self._is_ours(path):
                self._mirror(path)
            path = os.path.join(path, missing.pop())
            _make_empty(path, is_folder=is_folder or bool(missing))
        return path

    def _is_ours(self, path: str) -> bool:
        while path not in self._ours:
            path = os.path.dirname(path)
        return self._ours[path]

    def _mirror(self, folder: str) -> None:
        with _opened(folder) as original, _stage():
            os.chmod(_STAGE, stat.S_IMODE(os.stat(folder).st_mode) | stat.S_IRWXU)
            for name in os.listdir(folder):
                _show(f"{_by_file(original)}/{name}", f"{_STAGE}/{name}")
            mount(_STAGE, folder, flags=MS_MOVE)
            self._ours |= {f"{folder}/{name}": False for name in os.listdir(folder) if f"{folder}/{name}" not in self._ours}
            self._ours[folder] = True


@contextmanager
def _stage() -> Iterator[None]:
    os.mkdir(_STAGE)
    mount("tmpfs", _STAGE, kind="tmpfs")
    yield
    os.rmdir(_STAGE)


@contextmanager
def _opened(path: str) -> Iterator[int]:
    file = os.open(path, os.O_PATH | os.O_CLOEXEC)
    yield file
    os.close(file)


def _by_file(file: int) -> str:
    return f"/proc/self/fd/{file}"


def _flags_of(path: str) -> int:
    # A user may not take away what the system's owner has set on a mount, and a remount that leaves it out would.
    present = os.statvfs(path).f_flag
    return sum(flag for status, flag in _KEPT_FLAGS if present & status)
