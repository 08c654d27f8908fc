"""Multiplexed streams over one WebSocket. The first byte of a message is the channel.

Version 5 of the protocol adds one feature to version 4: a side can close one stream while others continue.
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

# How long a close waits for the peer.
_CLOSE_SECONDS = 2.0


class StreamChannel(IntEnum):
    """The channels of exec and attach."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4
    CLOSE = 255
    """The payload is one byte, the channel that is closed."""


class ChannelSocket:
    """The server side of such a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self.socket = socket

    @classmethod
    async def accept(cls, request: web.Request, *protocols: str) -> ChannelSocket:
        """Accept the WebSocket of a request."""
        return cls(await accept_websocket(request, *protocols))

    async def send(self, channel: int, data: bytes) -> None:
        """Send data. Ignored if the peer is disconnected."""
        with contextlib.suppress(ConnectionResetError):
            await self.socket.send_bytes(bytes((channel,)) + data)

    async def messages(self) -> AsyncIterator[tuple[int, bytes]]:
        """Channel and data of each received message, until the peer closes."""
        async for message in self.socket:
            if message.type is WSMsgType.BINARY and message.data:
                yield message.data[0], message.data[1:]

    async def finish(self, status: JsonObject) -> None:
        """Send the final Status and close."""
        await self.send(StreamChannel.ERROR, msgspec.json.encode(status))
        await self.socket.close()

    async def close(self) -> None:
        await self.socket.close()


async def accept_websocket(request: web.Request, *protocols: str) -> web.WebSocketResponse:
    """Accept a WebSocket with the first of the protocols that the peer supports. Messages may have any size."""
    socket = web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=0, timeout=_CLOSE_SECONDS)
    await socket.prepare(request)
    return socket


def offered_protocols(request: web.BaseRequest) -> list[str]:
    """The protocols that the client offers. Empty if the request is not a WebSocket upgrade."""
    if request.headers.get("upgrade", "").lower() != "websocket":
        return []
    header = ",".join(request.headers.getall("sec-websocket-protocol", []))
    return [name.strip() for name in header.split(",") if name.strip()]


def failure_status(message: str, *, reason: str = "InternalError", code: int = 500) -> JsonObject:
    """A Status for an error."""
    return {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}


def exit_status(code: int) -> JsonObject:
    """The Status of a command that has exited."""
    if code == 0:
        return SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }
