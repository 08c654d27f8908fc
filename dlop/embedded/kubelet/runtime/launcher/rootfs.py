"""The root file system of a container: the host's files, read-only, with the pod's mounts.

The root is a private tmpfs that bind-mounts the host's top-level entries, so that mount points can be created without changing the
host. `/tmp`, `/proc` and `/dev` belong to the pod, and hidden directories are empty. If a mount point is missing below a host directory,
that directory is mirrored: replaced by a private one with the same entries, in which the mount point can be created.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .exec_program import ExecError, lowercase_strerror
from .mount_table import is_below, read_mounts
from .process_spec import BindMount
from .syscalls import (
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
    set_read_only,
    unmount,
)

_OLD_ROOT = "/.host"
_STAGE = "/.stage"
_PRIVATE_ENTRIES = frozenset({"tmp", "proc", "dev", _OLD_ROOT[1:], _STAGE[1:]})
# As in container runtimes. Root could change the machine by these files.
_READ_ONLY_PROC_ENTRIES = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_DEVICES = frozenset({"null", "zero", "full", "random", "urandom", "tty", "kfd", "dri", "dxg", "infiniband"})
_DEVICE_PREFIXES = ("nvidia", "nvhost", "nvmap", "accel", "davinci", "hisi_hdc", "devmm_svm", "vfio")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
    "ptmx": "pts/ptmx",
}
_PRESERVED_FLAGS = (
    (os.ST_NOSUID, MS_NOSUID),
    (os.ST_NODEV, MS_NODEV),
    (os.ST_NOEXEC, MS_NOEXEC),
    (os.ST_NOATIME, MS_NOATIME),
    (os.ST_NODIRATIME, MS_NODIRATIME),
    (os.ST_RELATIME, MS_RELATIME),
)


def enter_new_root(new_root: str, *, hidden_dirs: list[str], mounts: list[tuple[BindMount, int]], directories: list[str]) -> None:
    """Enter a new root in the current mount namespace.

    `new_root` is an empty directory. `hidden_dirs` are replaced by empty ones before the mounts. The sources of the mounts are open
    files, because their paths are no longer valid in the new root. They are closed. Missing `directories` are created.
    """
    mount("tmpfs", new_root, kind="tmpfs", options="mode=755")
    _bind_host_entries(new_root)
    os.makedirs(new_root + _OLD_ROOT, mode=0o700)
    pivot_root(new_root, new_root + _OLD_ROOT)
    os.chdir("/")
    root = _Root()
    for directory in hidden_dirs:
        root.hide(directory)
    for bind_mount, source in mounts:
        _bind(root, source, bind_mount)
    for directory in directories:
        root.make(directory, is_directory=True)
    unmount(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)


def protect_proc() -> None:
    """Make the parts of /proc that are not about processes read-only. Called last, because limits are set there."""
    for name in _READ_ONLY_PROC_ENTRIES:
        path = f"/proc/{name}"
        if os.path.exists(path):
            mount(path, path, flags=MS_BIND)
            _set_read_only(path)


def _bind_host_entries(root: str) -> None:
    for name in os.listdir("/"):
        if name not in _PRIVATE_ENTRIES:
            # A broken mount, such as a stale network drive, must not prevent pods from running.
            with suppress(OSError):
                _bind_read_only("/" + name, f"{root}/{name}")
    os.mkdir(root + "/tmp", mode=0o1777)  # noqa: S108 - private to the pod
    _create_dev(root + "/dev")
    os.mkdir(root + "/proc")
    try:
        mount("proc", root + "/proc", kind="proc", flags=MS_NOSUID | MS_NODEV | MS_NOEXEC)
    except PermissionError:
        # Some container runtimes forbid a new procfs. Fall back to the host's, which shows more processes.
        mount("/proc", root + "/proc", flags=MS_BIND | MS_REC)


def _create_dev(dev: str) -> None:
    """Devices that are safe to share, and accelerators. Disks and the terminals of the host are not visible."""
    os.mkdir(dev)
    for name in os.listdir("/dev"):
        if name in _DEVICES or name.startswith(_DEVICE_PREFIXES):
            _bind_entry(f"/dev/{name}", f"{dev}/{name}")
    for name, target in _DEVICE_LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    # Some container runtimes forbid it. Programs in the pod cannot create terminals then.
    with suppress(OSError):
        mount("devpts", f"{dev}/pts", kind="devpts", flags=MS_NOSUID | MS_NOEXEC, options="newinstance,ptmxmode=0666,mode=0620")


def _bind_read_only(source: str, target: str) -> None:
    _bind_entry(source, target)
    if os.path.islink(target):
        return
    try:
        _set_read_only(target)
    except OSError:
        unmount(target)
        raise


def _set_read_only(target: str) -> None:
    try:
        set_read_only(target)
    except OSError as error:
        # A container runtime that does not know the system call forbids it.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
        for path in (entry.mount_point for entry in read_mounts() if is_below(entry.mount_point, target)):
            mount("", path, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | _preserved_flags(path))


def _bind_entry(source: str, target: str) -> None:
    mode = os.lstat(source).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(source), target)
        return
    _create_empty(target, is_directory=stat.S_ISDIR(mode))
    mount(source, target, flags=MS_BIND | MS_REC)


def _create_empty(path: str, *, is_directory: bool) -> None:
    if is_directory:
        os.mkdir(path)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))


def _bind(root: _Root, source: int, bind_mount: BindMount) -> None:
    try:
        root.bind(source, bind_mount)
    except OSError as error:
        raise ExecError(f'error mounting "{bind_mount.source}" to rootfs at "{bind_mount.target}": {lowercase_strerror(error)}') from None
    finally:
        os.close(source)


class _Root:
    """The new root, seen from inside, while it is set up."""

    def __init__(self) -> None:
        self._private = {"/": True} | {f"/{name}": name in _PRIVATE_ENTRIES for name in os.listdir("/")}

    def bind(self, source: int, bind_mount: BindMount) -> None:
        is_directory = stat.S_ISDIR(os.fstat(source).st_mode)
        target = self.make(bind_mount.target, is_directory=is_directory)
        mount(_fd_path(source), target, flags=MS_BIND | MS_REC)
        self._private[target] = not bind_mount.read_only
        if bind_mount.read_only:
            _set_read_only(target)

    def hide(self, directory: str) -> None:
        """Replace a directory by an empty one, which keeps the links: some systems have links to their programs in /run."""
        path = os.path.realpath(directory)
        if self._private.get(path) or not os.path.isdir(path):
            return
        links = []
        # Without privileges, the home of root is not readable.
        with suppress(PermissionError):
            links = [(entry.name, os.readlink(entry)) for entry in os.scandir(path) if entry.is_symlink()]
        mount("tmpfs", path, kind="tmpfs", options="mode=755")
        self._private[path] = True
        for name, target in links:
            os.symlink(target, os.path.join(path, name))

    def make(self, path: str, *, is_directory: bool) -> str:
        """Create a path if it is missing. Returns it with symbolic links resolved."""
        path = os.path.realpath(path)
        missing = []
        while not os.path.lexists(path):
            path, name = os.path.split(path)
            missing.append(name)
        while missing:
            if not self._belongs_to_container(path):
                self._mirror(path)
            path = os.path.join(path, missing.pop())
            # Another container of the pod may create it at the same time, in a directory that they share.
            with suppress(FileExistsError):
                _create_empty(path, is_directory=is_directory or bool(missing))
        return path

    def _belongs_to_container(self, path: str) -> bool:
        while path not in self._private:
            path = os.path.dirname(path)
        return self._private[path]

    def _mirror(self, directory: str) -> None:
        with _open_path(directory) as original, _stage():
            os.chmod(_STAGE, stat.S_IMODE(os.stat(directory).st_mode) | stat.S_IRWXU)
            for name in os.listdir(directory):
                _bind_entry(f"{_fd_path(original)}/{name}", f"{_STAGE}/{name}")
            mount(_STAGE, directory, flags=MS_MOVE)
            self._private |= {f"{directory}/{name}": False for name in os.listdir(directory) if f"{directory}/{name}" not in self._private}
            self._private[directory] = True


@contextmanager
def _stage() -> Iterator[None]:
    os.mkdir(_STAGE)
    mount("tmpfs", _STAGE, kind="tmpfs")
    yield
    os.rmdir(_STAGE)


@contextmanager
def _open_path(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    yield fd
    os.close(fd)


def _fd_path(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _preserved_flags(path: str) -> int:
    # An unprivileged remount must repeat the flags that are locked on the mount.
    flags = os.statvfs(path).f_flag
    return sum(flag for status, flag in _PRESERVED_FLAGS if flags & status)
