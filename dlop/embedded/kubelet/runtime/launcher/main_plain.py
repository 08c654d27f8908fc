"""Where a launcher for pods as plain processes begins."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from . import ipc, rlimits
from .plain_host import PlainHost
from .server import Server
from .syscalls import die_with_parent


def main(control: int) -> None:
    """Work for the one at the other end of this socket. The first message there says that we are ready."""
    connection = socket.socket(fileno=control)
    connection.set_inheritable(False)
    os.umask(0o022)
    rlimits.allow_open_files()
    if sys.platform == "linux":
        die_with_parent(signal.SIGKILL)
    # Whoever is gone by now has nothing more to say either: the server sees that, and ends.
    with contextlib.suppress(BrokenPipeError):
        ipc.send(connection, {"ready": True})
    Server(connection, PlainHost()).run()
