"""Becoming the holder of namespaces: a user namespace in which we may make the others, and a process table that ends with us."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from .syscalls import CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, MS_PRIVATE, MS_REC, die_with_parent, mount, unmount, unshare


def enter_user_namespace() -> None:
    """Get the right to make namespaces. Whoever we are outside is root inside; real root stays everybody that it could be."""
    user, group = os.geteuid(), os.getegid()
    helper = _start_helper() if user == 0 else None
    unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)
    if helper is None or not helper.map_everybody():
        # The kernel's condition for anyone but root.
        _write("self/setgroups", "deny")
        _write("self/uid_map", f"0 {user} 1")
        _write("self/gid_map", f"0 {group} 1")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


class _Helper:
    """A child that stays outside, where root has the right to say who is who inside."""

    def __init__(self, pid: int, go: int) -> None:
        self._pid = pid
        self._go = go

    def map_everybody(self) -> bool:
        """Let it do so. Returns whether it could: root of a container may not be allowed to."""
        os.close(self._go)
        _, status = os.waitpid(self._pid, 0)
        return status == 0


def _start_helper() -> _Helper:
    wait, go = os.pipe()
    target = os.getpid()
    child = os.fork()
    if child:
        os.close(wait)
        return _Helper(child, go)
    os.close(go)
    os.read(wait, 1)
    try:
        for name in ("uid_map", "gid_map"):
            _write(f"{target}/{name}", _same_as_here(name))
    except OSError:
        os._exit(1)
    os._exit(0)


def _same_as_here(name: str) -> str:
    with open(f"/proc/self/{name}") as file:
        ranges = [line.split() for line in file]
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in ranges) + "\n"


def _write(name: str, text: str) -> None:
    with open(f"/proc/{name}", "w") as file:
        file.write(text)


def continue_as_first_process(clean_up: Callable[[], None]) -> None:
    """Go on as the first process of the new process table: what is in it dies with us, by the kernel.

    The caller stays outside, waits, and cleans up.
    """
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, lambda *_: _end(clean_up))
        die_with_parent(signal.SIGTERM)
        return
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    die_with_parent(signal.SIGTERM)
    os.waitpid(child, 0)
    clean_up()
    sys.exit()


def _end(clean_up: Callable[[], None]) -> None:
    clean_up()
    os._exit(1)


class PrivateFolder:
    """A folder that only we and our children see: a tmpfs over an empty folder of the host, which goes when we do."""

    def __init__(self) -> None:
        self.path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"dlop-runtime-{os.urandom(8).hex()}")  # noqa: S108 - its name is not to be guessed
        os.mkdir(self.path, mode=0o700)
        mount("tmpfs", self.path, kind="tmpfs", options="mode=755")

    def remove(self) -> None:
        """Leave nothing behind."""
        with suppress(OSError):
            unmount(self.path)
        with suppress(OSError):
            os.rmdir(self.path)


_SWITCHES = (
    ("user/max_user_namespaces", "0"),
    ("user/max_net_namespaces", "0"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
)


def why_not(error: OSError) -> str:
    """Why namespaces are refused: the system's word for it, and the setting that is likely behind it."""
    for name, forbidding in _SWITCHES:
        with suppress(OSError), open(f"/proc/sys/{name}") as file:
            if file.read().strip() == forbidding:
                return f"{error.strerror}; {name.replace('/', '.')} is {forbidding}"
    return error.strerror or str(error)
