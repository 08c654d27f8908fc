"""Descriptors that are read and written without blocking: the ends of pipes, and terminals."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import struct
import termios
from collections.abc import Callable

_PIECE_BYTES = 32 * 1024


class Pipe:
    """One end of a pipe, or the near side of a terminal. It owns its descriptor."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._is_open = True
        self._readable = asyncio.Event()
        self._is_final = False

    async def read(self) -> bytes:
        """What there is, once there is something; empty at the end."""
        loop = asyncio.get_running_loop()
        while (data := self._read_ready()) is None:
            if self._is_final:
                return b""
            self._readable.clear()
            await _until(self._readable, self._descriptor, loop.add_reader, loop.remove_reader)
        return data

    def expect_no_more(self) -> None:
        """Let `read` come to an end when it has read what is there, though somebody may still hold the other side."""
        self._is_final = True
        self._readable.set()

    def _read_ready(self) -> bytes | None:
        try:
            return os.read(self._descriptor, _PIECE_BYTES)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # nobody has the far side of the terminal open any more

    async def write(self, data: bytes) -> None:
        """Write everything, as fast as it is read.

        Raises:
            OSError: nobody reads any more.
        """
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _until(asyncio.Event(), self._descriptor, loop.add_writer, loop.remove_writer)

    def resize(self, *, columns: int, rows: int) -> None:
        """Tell a terminal how large its window is."""
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """Give the descriptor back. May be called again."""
        if self._is_open:
            self._is_open = False
            os.close(self._descriptor)


async def _until(ready: asyncio.Event, descriptor: int, add: Callable[..., object], remove: Callable[[int], bool]) -> None:
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
