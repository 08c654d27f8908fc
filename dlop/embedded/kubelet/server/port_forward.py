"""Port-forwarding: connections to ports of a pod, through one WebSocket.

Two ways are known. `kubectl` opens SPDY streams in it, two for each connection: one for data and one for an error. Older
clients name the ports in the query, and each of them has one connection and two channels for as long as the WebSocket lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import WSMsgType, web

from dlop.embedded.kubelet.server.backend import PodsOfNode
from dlop.embedded.kubelet.server.spdy import Data, Frame, GoAway, Opened, Ping, Reset, SpdyError, SpdyReader, SpdyWriter
from dlop.embedded.kubelet.server.websocket_channels import Channels

TUNNEL = "SPDY/3.1+portforward.k8s.io"

_PIECE_BYTES = 64 * 1024

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of one pod."""

    pods: PodsOfNode
    namespace: str
    pod: str

    async def connect(self, port: int) -> Connection:
        """A connection to a port.

        Raises:
            OSError: with a sentence for the user.
        """
        try:
            return await self.pods.connect(self.namespace, self.pod, port)
        except (OSError, LookupError) as error:
            raise OSError(f"error forwarding port {port} to pod {self.pod}: {error}") from error


@dataclass(slots=True)
class _Forward:
    """One forwarded connection: its two streams, and who carries it."""

    data: int = 0
    error: int = 0
    port: int = 0
    incoming: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(maxsize=16))
    task: asyncio.Task[None] | None = None


class Tunnel:
    """The SPDY session inside of a WebSocket."""

    def __init__(self, socket: web.WebSocketResponse, ports: Ports) -> None:
        self._socket = socket
        self._ports = ports
        self._reader, self._writer = SpdyReader(), SpdyWriter()
        self._forwards: dict[str, _Forward] = {}
        self._by_data_stream: dict[int, _Forward] = {}

    async def run(self) -> None:
        """Carry connections until the other side goes."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._serve(group)
                for forward in list(self._forwards.values()):
                    if forward.task is not None:
                        forward.task.cancel()
        except* SpdyError:
            pass  # there is nobody to talk to
        await self._socket.close()

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY:
                continue
            for frame in self._reader.feed(message.data):
                if isinstance(frame, GoAway):
                    return
                await self._take(frame, group)

    async def _take(self, frame: Frame, group: asyncio.TaskGroup) -> None:
        match frame:
            case Opened():
                await self._open(frame, group)
            case Data() if (forward := self._by_data_stream.get(frame.stream)) is not None:
                # A pod that does not read holds up the other connections of this session, as it should its own.
                if frame.data:
                    await forward.incoming.put(frame.data)
                if frame.ends:
                    await forward.incoming.put(b"")
            case Reset() if (forward := self._by_data_stream.get(frame.stream)) is not None:
                if forward.task is not None:
                    forward.task.cancel()
                # The other side waits for the end of this one too.
                await self._send(self._writer.data(forward.error, b"", ends=True))
            case Ping():
                await self._send(self._writer.ping(frame.number))
            case _:
                pass

    async def _open(self, opened: Opened, group: asyncio.TaskGroup) -> None:
        kind, request = opened.headers.get("streamtype"), opened.headers.get("requestid", "")
        port = opened.headers.get("port", "")
        if kind not in ("data", "error") or not port.isdecimal():
            await self._send(self._writer.reset(opened.stream))
            return
        await self._send(self._writer.reply(opened.stream))
        forward = self._forwards.setdefault(request, _Forward(port=int(port)))
        if kind == "error":
            forward.error = opened.stream
        else:
            forward.data = opened.stream
            self._by_data_stream[opened.stream] = forward
        if forward.data and forward.error:
            forward.task = group.create_task(self._forward(request, forward))

    async def _forward(self, request: str, forward: _Forward) -> None:
        """Carry one connection, and end both of its streams."""
        problem = ""
        try:
            async with _connected(self._ports, forward.port) as connection:
                await _carry(connection, forward.incoming.get, lambda data: self._send(self._writer.data(forward.data, data)))
        except OSError as error:
            problem = str(error)
        finally:
            self._forwards.pop(request, None)
            self._by_data_stream.pop(forward.data, None)
            while not forward.incoming.empty():
                forward.incoming.get_nowait()  # so that nobody waits for a place in it
        await self._send(self._writer.data(forward.error, problem.encode(), ends=True))
        await self._send(self._writer.data(forward.data, b"", ends=True))

    async def _send(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionResetError):
            await self._socket.send_bytes(data)


async def forward_by_channels(channels: Channels, ports: Ports, numbers: Sequence[int]) -> None:
    """Forward named ports: channel 2n carries the data of the n-th, channel 2n + 1 an error, each begins with the port."""
    incoming = [asyncio.Queue[bytes](maxsize=16) for _ in numbers]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_forward_by_channel(channels, ports, port, 2 * index, incoming[index])) for index, port in enumerate(numbers)
        ]
        async for channel, data in channels.received():
            if channel % 2 == 0 and channel // 2 < len(incoming) and not tasks[channel // 2].done():
                await incoming[channel // 2].put(data)
        for task in tasks:
            task.cancel()


async def _forward_by_channel(channels: Channels, ports: Ports, port: int, channel: int, incoming: asyncio.Queue[bytes]) -> None:
    for each in (channel, channel + 1):
        await channels.send(each, struct.pack("<H", port))
    try:
        async with _connected(ports, port) as connection:
            await _carry(connection, incoming.get, lambda data: channels.send(channel, data))
    except OSError as error:
        await channels.send(channel + 1, str(error).encode())
    await channels.close()


@contextlib.asynccontextmanager
async def _connected(ports: Ports, port: int) -> AsyncIterator[Connection]:
    reader, writer = await ports.connect(port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _carry(connection: Connection, receive: Callable[[], Awaitable[bytes]], send: Callable[[bytes], Awaitable[None]]) -> None:
    """Carry bytes both ways until the pod has nothing more to say."""
    reader, writer = connection
    inwards = asyncio.create_task(_carry_in(writer, receive))
    try:
        # A connection that breaks has ended: that is no error of the forwarding.
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_PIECE_BYTES):
                await send(data)
    finally:
        inwards.cancel()
        await asyncio.wait((inwards,))


async def _carry_in(writer: asyncio.StreamWriter, receive: Callable[[], Awaitable[bytes]]) -> None:
    with contextlib.suppress(OSError):
        while data := await receive():
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
