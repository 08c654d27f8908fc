"""Entry point of the launcher for pods as plain processes."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys

from . import ipc, rlimits
from .plain_host import PlainHost
from .server import LauncherServer
from .syscalls import set_parent_death_signal


def main(control: int) -> None:
    """Serve the runtime over the socket `control`. The first message reports readiness."""
    connection = socket.socket(fileno=control)
    connection.set_inheritable(False)
    os.umask(0o022)
    rlimits.raise_open_file_limit()
    if sys.platform == "linux":
        set_parent_death_signal(signal.SIGKILL)
    # The runtime may already be gone. The server sees the end of the stream and exits.
    with contextlib.suppress(BrokenPipeError):
        ipc.send(connection, {"ready": True})
    LauncherServer(connection, PlainHost()).run()
