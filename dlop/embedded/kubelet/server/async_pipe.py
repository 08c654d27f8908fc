"""Non-blocking asyncio reads and writes on file descriptors of pipes and terminals."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable

_CHUNK_BYTES = 32 * 1024


class AsyncPipe:
    """One end of a pipe, or the master side of a terminal. Owns its descriptor."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._is_open = True
        self._readable = asyncio.Event()
        self._is_draining = False

    async def read(self) -> bytes:
        """Wait for data. Returns empty bytes at the end of the stream."""
        loop = asyncio.get_running_loop()
        while (data := self._read_available()) is None:
            if self._is_draining:
                return b""
            self._readable.clear()
            await _wait_ready(self._readable, self._fd, loop.add_reader, loop.remove_reader)
        return data

    def drain(self) -> None:
        """Let `read` return the available data and then end, even if another process still has the other end open."""
        self._is_draining = True
        self._readable.set()

    def _read_available(self) -> bytes | None:
        try:
            return os.read(self._fd, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # the other side of the terminal was closed

    async def write(self, data: bytes) -> None:
        """Write everything, waiting for the reader.

        Raises:
            OSError: the other end is closed.
        """
        remaining = memoryview(data)
        while remaining:
            try:
                remaining = remaining[os.write(self._fd, remaining) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _wait_ready(asyncio.Event(), self._fd, loop.add_writer, loop.remove_writer)

    def resize(self, *, columns: int, rows: int) -> None:
        """Set the window size of a terminal."""
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Close the descriptor. May be called again."""
        if self._is_open:
            self._is_open = False
            os.close(self._fd)


async def _wait_ready(ready: asyncio.Event, fd: int, add: Callable[..., object], remove: Callable[[int], bool]) -> None:
    add(fd, ready.set)
    try:
        await ready.wait()
    finally:
        remove(fd)
