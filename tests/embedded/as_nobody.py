"""Run a command as a user without any rights: `as_nobody.py COMMAND...`, by root.

What the command needs may lie below folders that only root can enter, such as root's home. In a mount namespace of our own these are
covered by folders that show just what is needed; the machine is not changed.
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
        _uncover(path)
    os.chdir(Path.cwd())
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    os.execvp(sys.argv[1], sys.argv[1:])


def _uncover(path: Path) -> None:
    for folder, inner in zip(reversed(path.parents), [*list(reversed(path.parents))[1:], path], strict=True):
        if not folder.stat().st_mode & stat.S_IXOTH:
            kept = os.open(inner, os.O_PATH)
            mount("tmpfs", str(folder), kind="tmpfs", options="mode=755")
            inner.mkdir()
            mount(f"/proc/self/fd/{kept}", str(inner), flags=MS_BIND | MS_REC)
            os.close(kept)


if __name__ == "__main__":
    main()
