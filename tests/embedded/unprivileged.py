"""Runs a command as a user without privileges: `python -m tests.embedded.unprivileged COMMAND...`, as root.

The command may need files below directories that only root can enter, such as root's home. In a new mount namespace these are covered
by directories that show only what is needed. The machine is not changed.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

from dlop.embedded.kubelet.runtime.launcher.syscalls import CLONE_NEWNS, MS_BIND, MS_PRIVATE, MS_REC, mount, unshare

NOBODY = 65534


def main() -> None:
    unshare(CLONE_NEWNS)
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    for path in (Path(sys.executable).resolve(), Path(sys.prefix), Path.cwd()):
        _make_reachable(path)
    os.chdir(Path.cwd())
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execvp(sys.argv[1], sys.argv[1:])


def _make_reachable(path: Path) -> None:
    for directory, inner in zip(reversed(path.parents), [*list(reversed(path.parents))[1:], path], strict=True):
        if not directory.stat().st_mode & stat.S_IXOTH:
            inner_fd = os.open(inner, os.O_PATH)
            mount("tmpfs", str(directory), kind="tmpfs", options="mode=755")
            inner.mkdir()
            mount(f"/proc/self/fd/{inner_fd}", str(inner), flags=MS_BIND | MS_REC)
            os.close(inner_fd)


if __name__ == "__main__":
    main()
