"""A plain process with someone who minds it: the first process of a process table that does not exist.

The minder is a child of the launcher and the parent of the process. It adopts what the process leaves behind, so it can kill all of
it when the process ends. When the launcher ends, its end of the lifeline is closed, and the minder kills everything and follows.
On macOS there is no adopting: there the process group is what is killed.
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
from .syscalls import adopt_orphans, die_with_parent

_MOST_FILES = 1 << 20
_ON_LINUX = sys.platform == "linux"


def mind(lifeline: socket.socket, job: socket.socket, become: Callable[[], object]) -> None:
    """Fork a child that becomes the process, and stay with it to the end, which is told over the lifeline."""
    ended, wake = socket.socketpair()
    wake.settimeout(0)
    signal.signal(signal.SIGCHLD, ignore)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    if _ON_LINUX:
        adopt_orphans()
    child = os.fork()
    if not child:
        if _ON_LINUX:
            die_with_parent(signal.SIGKILL)
        ipc.send(job, {"pid": os.getpid()})
        become()
    _keep_only(lifeline, ended, wake)
    status = _Watch(child, lifeline, ended).until_end()
    _kill_left(child)
    with suppress(OSError):
        lifeline.sendall(status.to_bytes(4, "big"))


def ignore(_number: int, _frame: FrameType | None) -> None:
    """A signal that only has to wake us up."""


def _keep_only(*sockets: socket.socket) -> None:
    # Whoever reads the process's output waits for the last copy to be closed, and so does whoever waits for it to be started.
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(2):
        os.dup2(nothing, number)
    kept = sorted(item.fileno() for item in sockets)
    for low, high in zip([2, *kept], [*kept, min(os.sysconf("SC_OPEN_MAX"), _MOST_FILES)], strict=True):
        os.closerange(low + 1, high)


class _Watch:
    """Waits for the end of the process, passing on signals meanwhile."""

    def __init__(self, child: int, lifeline: socket.socket, ended: socket.socket) -> None:
        self._child = child
        self._lifeline = lifeline
        self._ended = ended

    def until_end(self) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(self._lifeline, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._ended in ready:
                    self._ended.recv(4096)
                status = _reap(self._child)
                if status is not None:
                    return status
                if self._lifeline in ready:
                    self._pass_on(self._lifeline.recv(1))

    def _pass_on(self, data: bytes) -> None:
        if not data:
            _kill_left(self._child)
            os._exit(0)
        number = data[0]
        with suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(self._child, number)
            os.kill(self._child, number)


def _reap(child: int) -> int | None:
    """How the child ended, if it did. What it left behind and has ended is reaped on the way."""
    found = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                found = status
            elif not pid:
                break
    return found


def _kill_left(child: int) -> None:
    """Kill the process and everything that came of it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    with suppress(ChildProcessError):
        while left := _children():
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            # Each one that ends leaves its own children to us.
            os.waitpid(-1, 0)


def _children() -> list[int]:
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []
