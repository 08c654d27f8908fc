"""Parent of a plain process, in place of the init process of a PID namespace.

The subreaper is a child of the launcher and the parent of the process. It adopts orphaned descendants, so it can kill all of them when
the process exits. When the launcher exits, the lifeline is closed, and the subreaper kills everything and exits. macOS has no
subreapers; there the process group is killed.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from . import ipc
from .syscalls import set_child_subreaper, set_parent_death_signal

_MAX_FILES = 1 << 20
_ON_LINUX = sys.platform == "linux"


def run_subreaper(lifeline: socket.socket, task: socket.socket, exec_process: Callable[[], object]) -> None:
    """Fork a child that calls `exec_process`, wait for its exit and send the wait status over the lifeline.

    The PID of the child is sent over `task`.
    """
    sigchld, wakeup = socket.socketpair()
    wakeup.settimeout(0)
    signal.signal(signal.SIGCHLD, ignore_signal)
    signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
    if _ON_LINUX:
        set_child_subreaper()
    child = os.fork()
    if not child:
        if _ON_LINUX:
            set_parent_death_signal(signal.SIGKILL)
        ipc.send(task, {"pid": os.getpid()})
        exec_process()
    _close_other_files(lifeline, sigchld, wakeup)
    status = _wait(child, lifeline, sigchld)
    _kill_descendants(child)
    with suppress(OSError):
        lifeline.sendall(status.to_bytes(4, "big"))


def ignore_signal(_number: int, _frame: FrameType | None) -> None:
    """Signal handler for a signal that only has to write to the wakeup descriptor."""


def _close_other_files(*sockets: socket.socket) -> None:
    # Readers of the process's output, and of the task's socket, wait until the last copy of a descriptor is closed.
    devnull = os.open(os.devnull, os.O_RDWR)
    for number in range(2):
        os.dup2(devnull, number)
    kept = sorted(item.fileno() for item in sockets)
    for low, high in zip([2, *kept], [*kept, min(os.sysconf("SC_OPEN_MAX"), _MAX_FILES)], strict=True):
        os.closerange(low + 1, high)


def _wait(child: int, lifeline: socket.socket, sigchld: socket.socket) -> int:
    """Wait for the exit of the child and forward signals to it. Returns the wait status."""
    with selectors.DefaultSelector() as selector:
        selector.register(lifeline, selectors.EVENT_READ)
        selector.register(sigchld, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if sigchld in ready:
                sigchld.recv(4096)
            status = _reap(child)
            if status is not None:
                return status
            if lifeline in ready:
                _forward_signal(child, lifeline.recv(1))


def _forward_signal(child: int, data: bytes) -> None:
    if not data:
        _kill_descendants(child)
        os._exit(0)
    number = data[0]
    with suppress(ProcessLookupError):
        if number == signal.SIGKILL:
            os.killpg(child, number)
        os.kill(child, number)


def _reap(child: int) -> int | None:
    """Reap everything that has exited. Returns the wait status of the child, or None if it still runs."""
    child_status = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                child_status = status
            elif not pid:
                break
    return child_status


def _kill_descendants(child: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        while remaining := _children():
            for pid in remaining:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # The children of a process that exits become children of the subreaper.
            os.waitpid(-1, 0)


def _children() -> list[int]:
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
