"""Port-forwarding through one WebSocket.

There are two protocols. `kubectl` tunnels SPDY, with two streams for each connection, one for data and one for errors. Older clients name
the ports in the query, and each port has one connection and two channels for the lifetime of the WebSocket.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from dlop.embedded.kubelet.server.backend import PodBackend
from dlop.embedded.kubelet.server.spdy import DataFrame, Frame, GoAway, PingFrame, RstStream, SpdyError, SpdyReader, SpdyWriter, SynStream
from dlop.embedded.kubelet.server.websocket_channels import ChannelSocket

TUNNEL = "SPDY/3.1+portforward.k8s.io"

_CHUNK_BYTES = 64 * 1024

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class PodPorts:
    pods: PodBackend
    namespace: str
    pod: str

    async def connect(self, port: int) -> Connection:
        """Connect to a port.

        Raises:
            OSError: with a message for the user.
        """
        try:
            return await self.pods.connect(self.namespace, self.pod, port)
        except (OSError, LookupError) as error:
            raise OSError(f"error forwarding port {port} to pod {self.pod}: {error}") from error


@dataclass(slots=True)
class _Forward:
    """One forwarded connection with its two streams."""

    data: int = 0
    error: int = 0
    port: int = 0
    incoming: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(maxsize=16))
    task: asyncio.Task[None] | None = None


class SpdyTunnel:
    """The SPDY session inside a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, ports: PodPorts) -> None:
        self._socket = socket
        self._ports = ports
        self._reader, self._writer = SpdyReader(), SpdyWriter()
        self._forwards: dict[str, _Forward] = {}
        self._by_data_stream: dict[int, _Forward] = {}

    async def run(self) -> None:
        """Forward connections until the client disconnects."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._serve(group)
                for forward in list(self._forwards.values()):
                    if forward.task is not None:
                        forward.task.cancel()
        except* SpdyError:
            pass  # the session is broken, so nothing can be sent
        await self._socket.close()

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY:
                continue
            for frame in self._reader.feed(message.data):
                if isinstance(frame, GoAway):
                    return
                await self._handle_frame(frame, group)

    async def _handle_frame(self, frame: Frame, group: asyncio.TaskGroup) -> None:
        match frame:
            case SynStream():
                await self._open_stream(frame, group)
            case DataFrame() if (forward := self._by_data_stream.get(frame.stream)) is not None:
                # A pod that does not read blocks all connections of this session.
                if frame.data:
                    await forward.incoming.put(frame.data)
                if frame.ends:
                    await forward.incoming.put(b"")
            case RstStream() if (forward := self._by_data_stream.get(frame.stream)) is not None:
                if forward.task is not None:
                    forward.task.cancel()
                # The client waits for the end of the error stream too.
                await self._send(self._writer.data(forward.error, b"", ends=True))
            case PingFrame():
                await self._send(self._writer.ping(frame.number))
            case _:
                pass

    async def _open_stream(self, frame: SynStream, group: asyncio.TaskGroup) -> None:
        kind, request = frame.headers.get("streamtype"), frame.headers.get("requestid", "")
        port = frame.headers.get("port", "")
        if kind not in ("data", "error") or not port.isdecimal():
            await self._send(self._writer.reset(frame.stream))
            return
        await self._send(self._writer.reply(frame.stream))
        forward = self._forwards.setdefault(request, _Forward(port=int(port)))
        if kind == "error":
            forward.error = frame.stream
        else:
            forward.data = frame.stream
            self._by_data_stream[frame.stream] = forward
        if forward.data and forward.error:
            forward.task = group.create_task(self._forward(request, forward))

    async def _forward(self, request: str, forward: _Forward) -> None:
        """Forward one connection, then end both of its streams."""
        error_message = ""
        try:
            async with _connect(self._ports, forward.port) as connection:
                await _copy(connection, forward.incoming.get, lambda data: self._send(self._writer.data(forward.data, data)))
        except OSError as error:
            error_message = str(error)
        finally:
            self._forwards.pop(request, None)
            self._by_data_stream.pop(forward.data, None)
            while not forward.incoming.empty():
                forward.incoming.get_nowait()  # unblocks a pending put
        await self._send(self._writer.data(forward.error, error_message.encode(), ends=True))
        await self._send(self._writer.data(forward.data, b"", ends=True))

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionResetError):
            await self._socket.send_bytes(data)


async def forward_over_channels(channels: ChannelSocket, ports: PodPorts, numbers: Sequence[int]) -> None:
    """Forward named ports. Channel 2n carries the data of the n-th port and channel 2n + 1 its errors. Each starts with the port."""
    incoming = [asyncio.Queue[bytes](maxsize=16) for _ in numbers]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_forward_over_channel(channels, ports, port, 2 * index, incoming[index]))
            for index, port in enumerate(numbers)
        ]
        async for channel, data in channels.messages():
            if channel % 2 == 0 and channel // 2 < len(incoming) and not tasks[channel // 2].done():
                await incoming[channel // 2].put(data)
        for task in tasks:
            task.cancel()


async def _forward_over_channel(channels: ChannelSocket, ports: PodPorts, port: int, channel: int, incoming: asyncio.Queue[bytes]) -> None:
    for data_or_error in (channel, channel + 1):
        await channels.send(data_or_error, struct.pack("<H", port))
    try:
        async with _connect(ports, port) as connection:
            await _copy(connection, incoming.get, lambda data: channels.send(channel, data))
    except OSError as error:
        await channels.send(channel + 1, str(error).encode())
    await channels.close()


@contextlib.asynccontextmanager
async def _connect(ports: PodPorts, port: int) -> AsyncIterator[Connection]:
    reader, writer = await ports.connect(port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _copy(connection: Connection, receive: Callable[[], Awaitable[bytes]], send: Callable[[bytes], Awaitable[None]]) -> None:
    """Copy bytes in both directions until the pod closes the connection."""
    reader, writer = connection
    copying_in = asyncio.create_task(_copy_in(writer, receive))
    try:
        # A broken connection is the end of the stream and not an error of the port-forward.
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK_BYTES):
                await send(data)
    finally:
        copying_in.cancel()
        await asyncio.wait((copying_in,))


async def _copy_in(writer: asyncio.StreamWriter, receive: Callable[[], Awaitable[bytes]]) -> None:
    with contextlib.suppress(OSError):
        while data := await receive():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
