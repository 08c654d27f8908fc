"""Enters the user, mount and PID namespaces that the launcher holds, and explains why a machine does not allow them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from .syscalls import CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, MS_PRIVATE, MS_REC, mount, set_parent_death_signal, unshare


def enter_user_namespace() -> None:
    """Enter a user namespace, in which the launcher may create other namespaces.

    The current user becomes root inside. Real root keeps all user and group IDs, if it may map them.
    """
    user, group = os.geteuid(), os.getegid()
    id_mapper = _start_id_mapper() if user == 0 else None
    unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)
    if id_mapper is None or not id_mapper.map_all_ids():
        # The kernel requires this of unprivileged users before they write gid_map.
        _write_proc("self/setgroups", "deny")
        _write_proc("self/uid_map", f"0 {user} 1")
        _write_proc("self/gid_map", f"0 {group} 1")
    mount("none", "/", flags=MS_REC | MS_PRIVATE)


class _IdMapper:
    """A child outside of the user namespace, where root may write the ID maps of the parent."""

    def __init__(self, pid: int, start: int) -> None:
        self._pid = pid
        self._start = start

    def map_all_ids(self) -> bool:
        """Returns False if that is not permitted, as for root in some containers."""
        os.close(self._start)
        _, status = os.waitpid(self._pid, 0)
        return status == 0


def _start_id_mapper() -> _IdMapper:
    wait, start = os.pipe()
    target = os.getpid()
    child = os.fork()
    if child:
        os.close(wait)
        return _IdMapper(child, start)
    os.close(start)
    os.read(wait, 1)
    try:
        for name in ("uid_map", "gid_map"):
            _write_proc(f"{target}/{name}", _identity_map(name))
    except OSError:
        os._exit(1)
    os._exit(0)


def _identity_map(name: str) -> str:
    with open(f"/proc/self/{name}") as file:
        ranges = [line.split() for line in file]
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in ranges) + "\n"


def _write_proc(name: str, text: str) -> None:
    with open(f"/proc/{name}", "w") as file:
        file.write(text)


def become_init(clean_up: Callable[[], None]) -> None:
    """Fork, and continue in the child as the init process of the new PID namespace. The kernel kills the namespace with it.

    The parent stays outside, waits for the child, cleans up and exits.
    """
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, lambda *_: _exit(clean_up))
        set_parent_death_signal(signal.SIGTERM)
        return
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    set_parent_death_signal(signal.SIGTERM)
    os.waitpid(child, 0)
    clean_up()
    sys.exit()


def _exit(clean_up: Callable[[], None]) -> None:
    clean_up()
    os._exit(1)


_BLOCKING_SYSCTLS = (
    ("user/max_user_namespaces", "0"),
    ("user/max_net_namespaces", "0"),
    ("kernel/unprivileged_userns_clone", "0"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1"),
)


def explain_namespace_error(error: OSError) -> str:
    """The error of the system, with the sysctl that probably causes it."""
    for name, blocking_value in _BLOCKING_SYSCTLS:
        with suppress(OSError), open(f"/proc/sys/{name}") as file:
            if file.read().strip() == blocking_value:
                return f"{error.strerror}; {name.replace('/', '.')} is {blocking_value}"
    return error.strerror or str(error)
