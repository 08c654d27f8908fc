"""Tasks that run in a forked child.

The child may change its namespaces, sends one result over a socket and exits. A child that execs another program sends no more
results, because its socket is closed on exec.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import ipc
from .exec_program import NOT_STARTED, ExecError

TaskResult = tuple[dict[str, Any], list[int]]


@dataclass(frozen=True, slots=True)
class ForkedTask:
    """The child process and the parent's end of its socket."""

    pid: int
    socket: socket.socket


def fork_task(work: Callable[[socket.socket], TaskResult]) -> ForkedTask:
    """Fork a child that runs `work`. Its result, or the error that it raised, is sent over the task's socket."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return ForkedTask(pid, ours)
    try:
        # The parent's handler cleans up, which a child must not do.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ours.close()
        _send_result(theirs, work)
    except BaseException:  # noqa: BLE001 - the child must never return into the parent's code
        traceback.print_exc(file=sys.stderr)
        os._exit(70)
    os._exit(0)


def _send_result(connection: socket.socket, work: Callable[[socket.socket], TaskResult]) -> None:
    try:
        body, fds = work(connection)
    except ExecError as error:
        body, fds = {"error": str(error), "exit_code": error.exit_code}, []
    except OSError as error:
        body, fds = {"error": error.strerror or str(error), "errno": error.errno, "exit_code": NOT_STARTED}, []
    except ValueError as error:
        # A path that contains a null byte.
        body, fds = {"error": str(error), "exit_code": NOT_STARTED}, []
    ipc.send(connection, body, fds=fds)
    # Close now, because a reader waits for the end of the stream and the child may live longer.
    connection.close()
