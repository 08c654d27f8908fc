"""Files that only the launcher sees, and files of the host that no pod can see.

Both are set up once, in the launcher's own mount namespace. The mount namespaces of pods are copies of it, so that no volume of a pod,
whatever path it names, leads to these files.
"""

from __future__ import annotations

import os
from contextlib import suppress

from .syscalls import MS_BIND, MS_RDONLY, MS_UNBINDABLE, mount, unmount


class PrivateFiles:
    """A tmpfs on an empty directory of the host.

    `node_dir` contains the files of all pods. It is moved into the tmpfs: on its path, pods find an empty directory.
    `secrets` are files. Pods find empty files on their paths.
    """

    def __init__(self, *, node_dir: str | None, secrets: list[str]) -> None:
        self.path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"dlop-runtime-{os.urandom(8).hex()}")  # noqa: S108 - a random name
        os.mkdir(self.path, mode=0o700)
        mount("tmpfs", self.path, kind="tmpfs", options="mode=755")
        self.root = self._make_directory("root")
        self.shared_memory = self._make_directory("memory")
        self._node_dir = node_dir
        self._private_node_dir = self._make_directory("node")
        try:
            self._mount(secrets)
        except OSError:
            self.remove()
            raise

    def _mount(self, secrets: list[str]) -> None:
        mount("tmpfs", self.shared_memory, kind="tmpfs", options="mode=755")
        if self._node_dir is not None:
            mount(self._node_dir, self._private_node_dir, flags=MS_BIND)
            mount("tmpfs", self._node_dir, kind="tmpfs", flags=MS_RDONLY, options="mode=700")
        for secret in secrets:
            mount(os.devnull, secret, flags=MS_BIND)

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
