"""Messages between a runtime and its launcher, and between the launcher and its children.

A message is a length-prefixed JSON object that may carry file descriptors. Both sides use the json module of the standard library,
because it round-trips paths and variables that are not UTF-8.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

_HEADER = struct.Struct("!IB")
_READ_BYTES = 65536
_FDS_SPACE = socket.CMSG_SPACE(16 * array.array("i").itemsize)
# macOS does not have this flag; there the descriptors are made close-on-exec after they are received.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class Message:
    """A message with its file descriptors, which the receiver owns."""

    body: dict[str, Any]
    fds: list[int] = field(default_factory=list)


def encode(body: dict[str, Any], *, fds: int = 0) -> bytes:
    """The bytes of a message that carries `fds` file descriptors."""
    text = json.dumps(body).encode()
    return _HEADER.pack(len(text), fds) + text


def ancillary_data(fds: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """The `ancdata` argument of `sendmsg` for these file descriptors."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())] if fds else []


def send(connection: socket.socket, body: dict[str, Any], *, fds: Sequence[int] = ()) -> None:
    """Send a message. Blocks until it is written."""
    data = encode(body, fds=len(fds))
    sent = connection.sendmsg([data], ancillary_data(fds))
    if sent < len(data):
        connection.sendall(data[sent:])


class MessageReader:
    """Reads messages from a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()
        self._fds: list[int] = []
        self.ended = False

    def receive(self) -> list[Message]:
        """Read once and return the messages that are complete. Sets `ended` at the end of the stream."""
        data, ancillary_data, _, _ = self._connection.recvmsg(_READ_BYTES, _FDS_SPACE, _CLOSE_ON_EXEC)
        self.ended = not data
        self._data += data
        for _, _, array_bytes in ancillary_data:
            fds = array.array("i", array_bytes)
            self._fds += fds
            if not _CLOSE_ON_EXEC:
                _close_on_exec(fds)
        return self._take_complete()

    def _take_complete(self) -> list[Message]:
        messages = []
        while len(self._data) >= _HEADER.size:
            length, fds = _HEADER.unpack_from(self._data)
            end = _HEADER.size + length
            if len(self._data) < end:
                break
            messages.append(Message(json.loads(self._data[_HEADER.size : end]), self._fds[:fds]))
            del self._data[:end]
            del self._fds[:fds]
        return messages


def _close_on_exec(fds: Iterable[int]) -> None:
    for fd in fds:
        os.set_inheritable(fd, False)  # noqa: FBT003 - positional in the standard library
