"""WebSockets through the HTTP front: opened here and at the kubelet, and carried from one to the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from aiohttp import ClientWebSocketResponse, WSMsgType, web

_Socket = ClientWebSocketResponse | web.WebSocketResponse

# How long a close waits for the other side to close too.
_CLOSE_SECONDS = 2.0


def offered_protocols(request: web.BaseRequest) -> Sequence[str]:
    """The protocols that a client wants to speak over a WebSocket."""
    given = ",".join(request.headers.getall("sec-websocket-protocol", []))
    return [name.strip() for name in given.split(",") if name.strip()]


def wants_socket(request: web.BaseRequest) -> bool:
    """Whether the client asks for a WebSocket."""
    return request.headers.get("upgrade", "").lower() == "websocket"


async def relay(request: web.BaseRequest, far: ClientWebSocketResponse) -> web.StreamResponse:
    """Accept the WebSocket that a client asks for, and carry everything between it and the far one until either closes."""
    protocols = (far.protocol,) if far.protocol else ()
    near = web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=0, timeout=_CLOSE_SECONDS)
    try:
        await near.prepare(request)
        async with asyncio.TaskGroup() as group:
            group.create_task(_carry(near, far))
            group.create_task(_carry(far, near))
    finally:
        await far.close()
    return near


async def _carry(source: _Socket, destination: _Socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        async for message in source:
            if message.type is WSMsgType.BINARY:
                await destination.send_bytes(message.data)
            elif message.type is WSMsgType.TEXT:
                await destination.send_str(message.data)
    await destination.close(code=source.close_code or 1000)
