"""An asyncio socket for messages that carry file descriptors, which asyncio streams cannot do."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dlop.embedded.kubelet.runtime.launcher import ipc


class FdSocket:
    """Sends without waiting and calls `on_message` for each received message. `on_end` is called once, when the peer closes."""

    def __init__(self, connection: socket.socket, *, on_message: Callable[[ipc.Message], None], on_end: Callable[[], None]) -> None:
        connection.settimeout(0)
        self._socket = connection
        self._reader = ipc.MessageReader(connection)
        self._outgoing: deque[tuple[bytes, list[int]]] = deque()
        self._on_message = on_message
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._loop.add_reader(connection, self._read)

    def send(self, body: dict[str, Any], *, fds: Sequence[int] = ()) -> None:
        """Send a message. The caller may close its descriptors immediately."""
        if self._is_closed:
            return
        self._outgoing.append((ipc.encode(body, fds=len(fds)), [os.dup(fd) for fd in fds]))
        if len(self._outgoing) == 1:
            self._write()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
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
        data, fds = self._outgoing[0]
        sent = self._socket.sendmsg([data], ipc.ancillary_data(fds))
        _close_all(fds)
        self._outgoing[0] = (data[sent:], [])
        if sent == len(data):
            self._outgoing.popleft()

    def _read(self) -> None:
        try:
            messages = self._reader.receive()
        except BlockingIOError:
            return
        except ConnectionResetError:
            self._end()
            return
        for message in messages:
            self._on_message(message)
        if self._reader.ended:
            self._end()

    def _end(self) -> None:
        self.close()
        self._on_end()


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
