"""Reserves ports on 127.0.0.1 for programs that must know their port before they start.

A port is reserved by a lock on a file named after it, so that two processes never reserve the same port, even before their
programs listen. The kernel releases the lock when the process exits. This module uses only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

# Below the ephemeral port range, so that no outgoing connection can use a port after its reservation.
_FIRST_PORT, _LAST_PORT = 20_000, 32_000
_ATTEMPTS = 500


class NoFreePortError(Exception):
    """All tried ports are in use."""


class ReservedPorts:
    """Ports that stay reserved until `release`."""

    def __init__(self) -> None:
        self._locks: list[int] = []

    def reserve(self) -> int:
        """Reserve a port that is neither in use nor reserved by another process.

        Raises:
            NoFreePortError: no port is free.
        """
        directory = _lock_directory()
        for port in random.sample(range(_FIRST_PORT, _LAST_PORT), _ATTEMPTS):
            lock = _try_lock(directory / str(port))
            if lock is None:
                continue
            if _is_free(port):
                self._locks.append(lock)
                return port
            os.close(lock)
        raise NoFreePortError(f"no free port on 127.0.0.1 from {_FIRST_PORT} to {_LAST_PORT}")

    def release(self) -> None:
        """Release all ports. The files are kept, because a deleted file could be locked twice."""
        while self._locks:
            os.close(self._locks.pop())


def _lock_directory() -> Path:
    """One directory per user, because the files of another user cannot be opened."""
    directory = Path(tempfile.gettempdir()) / f"dlop-ports-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    return directory


def _try_lock(path: Path) -> int | None:
    """The file descriptor of the locked file; None if another process holds the lock."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _is_free(port: int) -> bool:
    with socket.socket() as listener, contextlib.suppress(OSError):
        listener.bind(("127.0.0.1", port))
        return True
    return False
