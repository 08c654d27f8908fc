"""Files that only the launcher sees, and files of the host that no pod can see.

Both are set up once, in the launcher's own mount namespace. The mount namespaces of pods are copies of it, so that no volume of a pod,
whatever path it names, leads to these files.
"""

from __future__ import annotations

import os
from contextlib import suppress

from .syscalls import MS_BIND, MS_RDONLY, MS_UNBINDABLE, mount, unmount

_TMP = "/tmp"  # noqa: S108 - the directory that is created there has a random name


class PrivateFiles:
    """A tmpfs on an empty directory of the host.

    `node_dir` contains the files of all pods. The launcher finds it in the tmpfs. Pods find empty directories in place of it and of
    `secret_dirs`.
    """

    def __init__(self, *, node_dir: str | None, secret_dirs: list[str]) -> None:
        parents = (os.environ.get("TMPDIR", _TMP), _TMP)
        parent = next(path for path in parents if not any(_is_below(path, directory) for directory in secret_dirs))
        self.path = os.path.join(parent, f"dlop-runtime-{os.urandom(8).hex()}")
        os.mkdir(self.path, mode=0o700)
        mount("tmpfs", self.path, kind="tmpfs", options="mode=755")
        self.root = self._make_directory("root")
        self.shared_memory = self._make_directory("memory")
        self._node_dir = node_dir
        self._private_node_dir = self._make_directory("node")
        try:
            self._mount(secret_dirs)
        except OSError:
            self.remove()
            raise

    def _mount(self, secret_dirs: list[str]) -> None:
        mount("tmpfs", self.shared_memory, kind="tmpfs", options="mode=755")
        if self._node_dir is not None:
            mount(self._node_dir, self._private_node_dir, flags=MS_BIND)
            _cover(self._node_dir)
        for directory in secret_dirs:
            _cover(directory)

    def exclude_from_mounts(self) -> None:
        """Let mounts of directories above leave these files out. The copy of a mount namespace may lose this."""
        mount("none", self.path, flags=MS_UNBINDABLE)

    def source(self, path: str) -> str:
        """The path at which the launcher finds the source of a mount."""
        if self._node_dir is not None and path.startswith(self._node_dir + "/"):
            return self._private_node_dir + path[len(self._node_dir) :]
        return path

    def remove(self) -> None:
        with suppress(OSError):
            unmount(self.path)
        with suppress(OSError):
            os.rmdir(self.path)

    def _make_directory(self, name: str) -> str:
        path = os.path.join(self.path, name)
        os.mkdir(path)
        return path


def _cover(directory: str) -> None:
    mount("tmpfs", directory, kind="tmpfs", flags=MS_RDONLY, options="mode=700")


def _is_below(path: str, directory: str) -> bool:
    real_path, real_directory = os.path.realpath(path), os.path.realpath(directory)
    return os.path.commonpath((real_path, real_directory)) == real_directory
