"""Runs a command as a user without privileges: `python -m tests.embedded.unprivileged COMMAND...`, as root.

The command may need files below directories that only root can enter, such as root's home. In a new mount namespace these are covered
by directories that show only what is needed. The machine is not changed.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from dlop.embedded.kubelet.runtime.launcher.syscalls import CLONE_NEWNS, MS_BIND, MS_PRIVATE, MS_REC, mount, unshare

NOBODY = 65534


def main() -> None:
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _make_reachable((Path(sys.executable).resolve(), Path(sys.prefix), Path.cwd()))
    os.chdir(Path.cwd())
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execvp(sys.argv[1], sys.argv[1:])


def _make_reachable(paths: Sequence[Path]) -> None:
    for directory in sorted({parent for path in paths for parent in path.parents}, key=lambda directory: len(directory.parts)):
        if not directory.stat().st_mode & stat.S_IXOTH:
            needed = {directory / path.relative_to(directory).parts[0] for path in paths if path.is_relative_to(directory)}
            opened = {path: os.open(path, os.O_PATH) for path in needed}
            mount("tmpfs", str(directory), kind="tmpfs", options="mode=755")
            for path, fd in opened.items():
                path.mkdir()
                mount(f"/proc/self/fd/{fd}", str(path), flags=MS_BIND | MS_REC)
                os.close(fd)


if __name__ == "__main__":
    main()
