"""Port-forwarding to a pod: each connection to a loopback port becomes one WebSocket to the API server.

The protocol is that of the official Python client, which API servers pass on to the kubelet. The first byte of a message is the channel:
0 for data, 1 for an error. The first message of each channel repeats the port.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from dlop.kube.errors import KubeError
from dlop.kube.http.transport import HttpTransport
from dlop.kube.resources import PODS

HOST = "127.0.0.1"
_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_CHUNK_BYTES = 64 * 1024


@asynccontextmanager
async def forward_port(
    transport: HttpTransport, *, namespace: str, pod: str, port: int, local_port: int = 0, on_error: Callable[[str], None]
) -> AsyncIterator[int]:
    """Forward connections to a port of the loopback interface, by default any free one, while the context is open. Yields the port.

    The pod need not exist yet. `on_error` is called with the reason when a connection could not be forwarded.

    Raises:
        OSError: the local port is in use.
    """
    path = PODS.path(namespace=namespace, name=pod, subresource="portforward")
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(_forward(transport, path, port, reader, writer, on_error), name=f"connection to {pod}")
        connections.add(task)
        task.add_done_callback(connections.discard)

    server = await asyncio.start_server(accept, HOST, local_port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()


async def _forward(
    transport: HttpTransport,
    path: str,
    port: int,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    on_error: Callable[[str], None],
) -> None:
    """Forward one connection until one side closes it."""
    try:
        async with transport.websocket(path, query=(("ports", str(port)),), protocol=_PROTOCOL) as socket:
            sending = asyncio.create_task(_send(reader, socket))
            try:
                await _receive(socket, writer, on_error)
            finally:
                sending.cancel()
                await asyncio.wait((sending,))
    except KubeError as error:
        on_error(str(error))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    with contextlib.suppress(OSError, aiohttp.ClientError):
        while data := await reader.read(_CHUNK_BYTES):
            await socket.send_bytes(bytes((_DATA,)) + data)
        # The protocol cannot close one direction.
        await socket.close()


async def _receive(socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter, on_error: Callable[[str], None]) -> None:
    started: set[int] = set()
    async for message in socket:
        if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel not in started:
            started.add(channel)
        elif channel == _DATA:
            writer.write(data)
            with contextlib.suppress(OSError):
                await writer.drain()
        elif channel == _ERROR:
            on_error(data.decode(errors="replace").strip())
