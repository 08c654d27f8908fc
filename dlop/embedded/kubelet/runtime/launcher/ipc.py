"""Messages between a runtime and its launcher, and between the launcher and its children.

A message is a JSON object with its length before it, and may have open files beside it. JSON by the standard library, on both
sides: only this one carries a path or a variable that is not UTF-8.
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
_ROOM_FOR_FILES = socket.CMSG_SPACE(16 * array.array("i").itemsize)
# macOS has no such flag; there files are closed on exec by hand.
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


@dataclass(frozen=True, slots=True)
class Message:
    """What was said, and the files that came with it. They belong to whoever got it."""

    body: dict[str, Any]
    files: list[int] = field(default_factory=list)


def packed(body: dict[str, Any], *, files: int = 0) -> bytes:
    """The bytes of a message with so many files beside it."""
    text = json.dumps(body).encode()
    return _HEADER.pack(len(text), files) + text


def beside(files: Sequence[int]) -> list[tuple[int, int, bytes]]:
    """What `sendmsg` wants to be told of files."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files).tobytes())] if files else []


def send(connection: socket.socket, body: dict[str, Any], *, files: Sequence[int] = ()) -> None:
    """Send a message, waiting until it is gone."""
    data = packed(body, files=len(files))
    sent = connection.sendmsg([data], beside(files))
    if sent < len(data):
        connection.sendall(data[sent:])


class Inbox:
    """Takes messages from a socket as they come."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._data = bytearray()
        self._files: list[int] = []
        self.ended = False

    def receive(self) -> list[Message]:
        """Read once and return the messages that are complete. At the end, `ended` is set."""
        data, beside, _, _ = self._connection.recvmsg(_READ_BYTES, _ROOM_FOR_FILES, _CLOSE_ON_EXEC)
        self.ended = not data
        self._data += data
        for _, _, numbers in beside:
            files = array.array("i", numbers)
            self._files += files
            if not _CLOSE_ON_EXEC:
                _close_on_exec(files)
        return self._complete()

    def _complete(self) -> list[Message]:
        messages = []
        while len(self._data) >= _HEADER.size:
            length, files = _HEADER.unpack_from(self._data)
            end = _HEADER.size + length
            if len(self._data) < end:
                break
            messages.append(Message(json.loads(self._data[_HEADER.size : end]), self._files[:files]))
            del self._data[:end]
            del self._files[:files]
        return messages


def _close_on_exec(files: Iterable[int]) -> None:
    for file in files:
        os.set_inheritable(file, False)  # noqa: FBT003 - the standard library's way
