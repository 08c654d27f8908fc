"""Several streams over one WebSocket: the first byte of a message says which one it belongs to.

Protocol `v5.channel.k8s.io` differs from v4 in one thing: a side can say that a stream has ended while others go on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from enum import IntEnum

import msgspec
from aiohttp import WSMsgType, web

from dlop.kube.types import JsonObject

V5 = "v5.channel.k8s.io"
V4 = "v4.channel.k8s.io"

SUCCESS: JsonObject = {"metadata": {}, "status": "Success"}

# How long a close waits for the other side to close too.
_CLOSE_SECONDS = 2.0


class Channel(IntEnum):
    """The streams of exec and attach."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4
    CLOSE = 255
    """Names, in its one byte of text, a stream that has ended."""


class Channels:
    """The near side of such a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket

    @classmethod
    async def accept(cls, request: web.Request, *protocols: str) -> Channels:
        """Accept the WebSocket that a request asks for."""
        return cls(await accept_socket(request, *protocols))

    async def send(self, channel: int, data: bytes) -> None:
        """Send some bytes; nobody minds if the other side has gone."""
        with contextlib.suppress(ConnectionResetError):
            await self.socket.send_bytes(bytes((channel,)) + data)

    async def received(self) -> AsyncIterator[tuple[int, bytes]]:
        """What comes from the other side, until it closes: channel and bytes."""
        async for message in self.socket:
            if message.type is WSMsgType.BINARY and message.data:
                yield message.data[0], message.data[1:]

    async def finish(self, status: JsonObject) -> None:
        """Say how it went, and close."""
        await self.send(Channel.ERROR, msgspec.json.encode(status))
        await self.socket.close()

    async def close(self) -> None:
        """Close without a word."""
        await self.socket.close()


async def accept_socket(request: web.Request, *protocols: str) -> web.WebSocketResponse:
    """Accept a WebSocket with the first of the protocols that the other side speaks too. Messages have any size."""
    socket = web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=0, timeout=_CLOSE_SECONDS)
    await socket.prepare(request)
    return socket


def offered_protocols(request: web.BaseRequest) -> list[str]:
    """The protocols that the other side speaks; none when it wants no WebSocket."""
    if request.headers.get("upgrade", "").lower() != "websocket":
        return []
    given = ",".join(request.headers.getall("sec-websocket-protocol", []))
    return [name.strip() for name in given.split(",") if name.strip()]


def failure(message: str, *, reason: str = "InternalError", code: int = 500) -> JsonObject:
    """A Status that says what went wrong."""
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def exit_status(code: int) -> JsonObject:
    """The Status of a command that has ended."""
    if code == 0:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
