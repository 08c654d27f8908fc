"""A socket for messages with open files beside them, on the event loop: asyncio's own streams cannot carry files."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dlop.embedded.kubelet.runtime.launcher import ipc


class Channel:
    """Sends without waiting, and calls back with what comes. `on_end` is called once, when the other side has hung up."""

    def __init__(self, connection: socket.socket, *, on_message: Callable[[ipc.Message], None], on_end: Callable[[], None]) -> None:
        connection.settimeout(0)
        self._socket = connection
        self._inbox = ipc.Inbox(connection)
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self._loop.add_reader(connection, self._read)

    def send(self, body: dict[str, Any], *, files: Sequence[int] = ()) -> None:
        """Send a message. The caller may close its files at once."""
        if self._closed:
            return
        self._outgoing.append((ipc.packed(body, files=len(files)), [os.dup(file) for file in files]))
        if len(self._outgoing) == 1:
            self._write()

    def close(self) -> None:
        """Hang up."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        while self._outgoing:
            _close_all(self._outgoing.popleft()[1])

    def _write(self) -> None:
        try:
            while self._outgoing:
                self._write_first()
        except BlockingIOError:
            self._loop.add_writer(self._socket, self._write)
        except (BrokenPipeError, ConnectionResetError):
            self._end()
        else:
            self._loop.remove_writer(self._socket)

    def _write_first(self) -> None:
        data, files = self._outgoing[0]
        sent = self._socket.sendmsg([data], ipc.beside(files))
        _close_all(files)
        self._outgoing[0] = (data[sent:], [])
        if sent == len(data):
            self._outgoing.popleft()

    def _read(self) -> None:
        try:
            messages = self._inbox.receive()
        except BlockingIOError:
            return
        except ConnectionResetError:
            self._end()
            return
        for message in messages:
            self._on_message(message)
        if self._inbox.ended:
            self._end()

    def _end(self) -> None:
        self.close()
        self._on_end()


def _close_all(files: list[int]) -> None:
    for file in files:
        os.close(file)
