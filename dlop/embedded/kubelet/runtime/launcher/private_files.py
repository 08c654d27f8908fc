"""Files that only the launcher sees, and files of the host that no pod can see.

Both are set up once, in the launcher's own mount namespace. The mount namespaces of pods are copies of it, so that no volume of a pod,
whatever path it names, leads to these files.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from .exec_program import ExecError, lowercase_strerror
from .mount_table import find_aliases, is_below
from .process_spec import BindMount
from .syscalls import MS_BIND, MS_RDONLY, MS_UNBINDABLE, mount, unmount

_TMP = "/tmp"  # noqa: S108 - the directory that is created there has a random name
_OPEN_FLAGS = os.O_PATH | os.O_CLOEXEC


class PrivateFiles:
    """A tmpfs on an empty directory of the host.

    `node_dir` contains the files of all pods. The launcher finds it in the tmpfs. Pods find empty directories in place of it and of
    `secret_dirs`.
    """

    def __init__(self, *, node_dir: str | None, secret_dirs: list[str]) -> None:
        self.path = os.path.join(_parent_directory(secret_dirs), f"dlop-runtime-{os.urandom(8).hex()}")
        os.mkdir(self.path, mode=0o700)
        mount("tmpfs", self.path, kind="tmpfs", options="mode=755")
        self.root = self._make_directory("root")
        self._files = self._make_directory("files")
        self.shared_memory = self._make_directory("files/memory")
        self._private_node_dir = self._make_directory("files/node")
        self._node_dir = node_dir
        try:
            self._mount(secret_dirs)
        except OSError:
            self.remove()
            raise

    def _mount(self, secret_dirs: list[str]) -> None:
        mount("tmpfs", self.shared_memory, kind="tmpfs", options="mode=755")
        if self._node_dir is not None:
            aliases = find_aliases(self._node_dir)
            mount(self._node_dir, self._private_node_dir, flags=MS_BIND)
            _cover(aliases)
        for directory in secret_dirs:
            _cover(find_aliases(directory))

    def exclude_from_mounts(self) -> None:
        """Let mounts of directories above leave these files out. The copy of a mount namespace may lose this."""
        mount("none", self.path, flags=MS_UNBINDABLE)

    def open_sources(self, mounts: Iterable[BindMount]) -> list[tuple[BindMount, int]]:
        """Open the sources of mounts in the mount namespace of a new container. Optional mounts without a source are left out.

        The private files are hidden after the files of the node have been opened: the path of a volume can lead through links that a
        pod has created.
        """
        mounts = tuple(mounts)
        node_sources = [self._open_node_source(each) for each in mounts]
        _cover([self._files])
        sources = [_open_source(each) if source is None else source for each, source in zip(mounts, node_sources, strict=True)]
        return [(each, source) for each, source in zip(mounts, sources, strict=True) if source is not None]

    def remove(self) -> None:
        with suppress(OSError):
            unmount(self.path)
        with suppress(OSError):
            os.rmdir(self.path)

    def _open_node_source(self, bind_mount: BindMount) -> int | None:
        """Open a file of the node. None for other files."""
        if self._node_dir is None or not bind_mount.source.startswith(self._node_dir + "/"):
            return None
        try:
            return _open_below(self._private_node_dir, bind_mount.source[len(self._node_dir) + 1 :])
        except OSError as error:
            raise _source_error(bind_mount, error) from None

    def _make_directory(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.mkdir(path)
        return path


def _parent_directory(secret_dirs: list[str]) -> str:
    for path in (os.environ.get("TMPDIR", _TMP), _TMP):
        is_secret = any(is_below(os.path.realpath(path), os.path.realpath(directory)) for directory in secret_dirs)
        if os.path.isabs(path) and os.access(path, os.W_OK) and not is_secret:
            return path
    raise OSError(errno.ENOENT, "there is no temporary directory that can be used")


def _cover(directories: Iterable[str]) -> None:
    for directory in directories:
        mount("tmpfs", directory, kind="tmpfs", flags=MS_RDONLY, options="mode=700")


def _open_source(bind_mount: BindMount) -> int | None:
    try:
        return os.open(bind_mount.source, _OPEN_FLAGS)
    except OSError as error:
        if bind_mount.optional:
            return None
        raise _source_error(bind_mount, error) from None


def _open_below(directory: str, path: str) -> int:
    """Open a path without following links, which a pod can create in its volumes."""
    fd = os.open(directory, _OPEN_FLAGS)
    for name in path.split("/"):
        parent = fd
        try:
            fd = os.open(name, _OPEN_FLAGS | os.O_NOFOLLOW, dir_fd=parent)
        finally:
            os.close(parent)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return fd


def _source_error(bind_mount: BindMount, error: OSError) -> ExecError:
    return ExecError(f'failed to stat "{bind_mount.source}": {lowercase_strerror(error)}')
