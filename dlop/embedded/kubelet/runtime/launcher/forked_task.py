"""Work that a forked child does: it may change its namespaces as it likes, says what came of it over a socket, and ends.

A child that becomes another program says nothing more by that: its socket is closed on exec.
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
from .exec_program import NOT_STARTED, RefusedError

Answer = tuple[dict[str, Any], list[int]]


@dataclass(frozen=True, slots=True)
class Job:
    """A child at work."""

    pid: int
    socket: socket.socket


def start(work: Callable[[socket.socket], Answer]) -> Job:
    """Fork a child. What `work` returns is sent, and so is why it failed."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return Job(pid, ours)
    try:
        # What its parent does at the end is not for a child to do.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        ours.close()
        _say(theirs, work)
    except BaseException:  # noqa: BLE001 - whatever happens, a child must not go on as if it were its parent
        traceback.print_exc(file=sys.stderr)
        os._exit(70)
    os._exit(0)


def _say(connection: socket.socket, work: Callable[[socket.socket], Answer]) -> None:
    try:
        body, files = work(connection)
    except RefusedError as refusal:
        body, files = {"error": str(refusal), "exit_code": refusal.exit_code}, []
    except OSError as error:
        body, files = {"error": error.strerror or str(error), "errno": error.errno, "exit_code": NOT_STARTED}, []
    except ValueError as error:
        # A path with a null byte in it.
        body, files = {"error": str(error), "exit_code": NOT_STARTED}, []
    ipc.send(connection, body, files=files)
    # Not at the end of this program only: someone may wait for it who must not wait for the end.
    connection.close()
