"""Relays WebSockets between clients of the HTTP server and kubelets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from aiohttp import ClientWebSocketResponse, WSMsgType, web

_Socket = ClientWebSocketResponse | web.WebSocketResponse

# How long a close waits for the close frame of the peer.
_CLOSE_SECONDS = 2.0


def offered_protocols(request: web.BaseRequest) -> Sequence[str]:
    """The WebSocket subprotocols that a client offers."""
    header = ",".join(request.headers.getall("sec-websocket-protocol", []))
    return [name.strip() for name in header.split(",") if name.strip()]


def is_websocket_upgrade(request: web.BaseRequest) -> bool:
    return request.headers.get("upgrade", "").lower() == "websocket"


async def relay(request: web.BaseRequest, kubelet: ClientWebSocketResponse) -> web.StreamResponse:
    """Accept the WebSocket of a client and relay messages between it and the kubelet until either side closes."""
    protocols = (kubelet.protocol,) if kubelet.protocol else ()
    client = web.WebSocketResponse(protocols=protocols, compress=False, max_msg_size=0, timeout=_CLOSE_SECONDS)
    try:
        await client.prepare(request)
        async with asyncio.TaskGroup() as group:
            group.create_task(_forward(client, kubelet))
            group.create_task(_forward(kubelet, client))
    finally:
        await kubelet.close()
    return client


async def _forward(source: _Socket, destination: _Socket) -> None:
    with contextlib.suppress(ConnectionResetError):
        async for message in source:
            if message.type is WSMsgType.BINARY:
                await destination.send_bytes(message.data)
            elif message.type is WSMsgType.TEXT:
                await destination.send_str(message.data)
    await destination.close(code=source.close_code or 1000)
