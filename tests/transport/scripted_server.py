"""Scripted HTTP/1.1 server on a raw socket, for protocol faults that a real server would not produce.

A script is a list of handlers, one per request. The last one serves all further requests.

    async with scripted_server(respond(json={"kind": "Pod"}), cut()) as server:
        transport = server.transport()
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from dlop.kube.client import Client, ClientLimits
from dlop.kube.config.cluster import ClusterConfig, Credentials, RequestAuth
from dlop.kube.http.transport import HttpTransport


@dataclass(frozen=True, slots=True)
class StaticCredentials:
    """Credentials that never change."""

    auth: RequestAuth

    async def read(self, *, rejected: bool) -> RequestAuth:
        return self.auth


@dataclass(slots=True)
class Exchange:
    """One request, and the connection to send the response on."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection_number: int
    """Number of the connection, counted from 1."""
    writer: asyncio.StreamWriter = field(repr=False)

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def respond(self, *, status: int = 200, json: Any = None, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a complete response."""
        if json is not None:
            body = msgspec.json.encode(json)
        extra = {"content-type": "application/json" if json is not None else "text/plain", **(headers or {})}
        await self.send(_head(status, {"content-length": str(len(body)), **extra}) + body)

    async def start_stream(self, *, chunked: bool = True, headers: Mapping[str, str] | None = None) -> None:
        """Send the head of a stream, either chunked or delimited by the end of the connection."""
        framing = {"transfer-encoding": "chunked"} if chunked else {"connection": "close"}
        await self.send(_head(200, {"content-type": "application/json", **framing, **(headers or {})}))

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, kind: str, obj: Any) -> None:
        """Send a watch event as one chunk."""
        await self.chunk(event_line(kind, obj))

    async def end_stream(self) -> None:
        """Send the last chunk of a chunked stream."""
        await self.send(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection immediately."""
        self.writer.close()

    def reset(self) -> None:
        """Close the connection with a RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def stall(self) -> None:
        """Keep the connection open and send nothing until the test ends."""
        await asyncio.Event().wait()


Handler = Callable[[Exchange], Awaitable[None]]


class ScriptedServer:
    """The running server and the requests it has received."""

    def __init__(self, script: tuple[Handler, ...], *, tls: ssl.SSLContext | None) -> None:
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.open_connections = 0
        self.closed_by_client = asyncio.Event()
        """Set when a client closes a connection."""
        self.url = ""
        self._script = script
        self._tls = tls
        self._arrival = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def requests(self) -> list[tuple[str, str]]:
        """Method and path of every request so far."""
        return [(exchange.method, exchange.path) for exchange in self.exchanges]

    async def received(self, count: int = 1) -> None:
        """Wait until `count` requests have arrived."""
        while len(self.exchanges) < count:
            self._arrival.clear()
            await self._arrival.wait()

    def transport(self, *, credentials: Credentials | None = None) -> HttpTransport:
        credentials = credentials or StaticCredentials(RequestAuth())
        return HttpTransport(ClusterConfig(server=self.url, credentials=credentials, origin="the test"))

    @contextlib.asynccontextmanager
    async def client(self, *, timeout_seconds: float = 5.0, credentials: Credentials | None = None, **limits: Any) -> AsyncIterator[Client]:
        client = Client(self.transport(credentials=credentials), limits=ClientLimits(timeout_seconds=timeout_seconds, **limits))
        try:
            yield client
        finally:
            await client.close()

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self._tls)
        port = server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{port}"
        return server

    async def stop(self) -> None:
        serving = dict(self._tasks)
        for task, writer in serving.items():
            task.cancel()
            writer.transport.abort()
        await asyncio.gather(*serving, *(writer.wait_closed() for writer in serving.values()), return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer, self.connections))
        self._tasks[task] = writer
        task.add_done_callback(self._tasks.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        self.open_connections += 1
        try:
            while not writer.is_closing():
                exchange = await _read_request(reader, writer, number)
                self.exchanges.append(exchange)
                self._arrival.set()
                handler = self._script[min(len(self.exchanges), len(self._script)) - 1]
                await self._until_closed(handler(exchange), reader)
        except (asyncio.IncompleteReadError, OSError):
            self.closed_by_client.set()
        finally:
            self.open_connections -= 1
            writer.close()
            with contextlib.suppress(OSError, ssl.SSLError):
                await writer.wait_closed()

    async def _until_closed(self, handling: Awaitable[None], reader: asyncio.StreamReader) -> None:
        """Run a handler until it finishes or the client closes the connection."""
        handler = asyncio.ensure_future(handling)
        closed = asyncio.ensure_future(_wait_for_eof(reader))
        try:
            await asyncio.wait((handler, closed), return_when=asyncio.FIRST_COMPLETED)
            if not handler.done():
                raise ConnectionResetError("the client has closed the connection")
            handler.result()
        finally:
            for task in (handler, closed):
                task.cancel()
            await asyncio.gather(handler, closed, return_exceptions=True)


@contextlib.asynccontextmanager
async def scripted_server(*script: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """A server that follows the script, on a free loopback port."""
    server = ScriptedServer(script, tls=tls)
    listening = await server.start()
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


# --- common handlers ---------------------------------------------------------------------------------------------------


def respond(*, status: int = 200, json: Any = None, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Handler:
    """Respond immediately."""
    return lambda exchange: exchange.respond(status=status, json=json, body=body, headers=headers)


def status(code: int, reason: str = "", *, message: str = "", headers: Mapping[str, str] | None = None) -> Handler:
    """Respond with a Status object."""
    return respond(status=code, json=status_object(code, reason, message=message), headers=headers)


def watch_stream(*lines: bytes, then: Callable[[Exchange], Awaitable[None] | None] = Exchange.end_stream, chunked: bool = True) -> Handler:
    """Send a stream, one chunk per line. `then` is `Exchange.end_stream`, `.stall`, `.cut` or `.reset`."""

    async def handle(exchange: Exchange) -> None:
        await exchange.start_stream(chunked=chunked)
        for line in lines:
            await (exchange.chunk(line) if chunked else exchange.send(line))
        ending = then(exchange)
        if ending is not None:
            await ending

    return handle


def stall() -> Handler:
    """Read the request and never respond."""
    return Exchange.stall


def cut() -> Handler:
    """Read the request and close the connection."""

    async def handle(exchange: Exchange) -> None:
        exchange.cut()

    return handle


def reset() -> Handler:
    """Read the request and reset the connection."""

    async def handle(exchange: Exchange) -> None:
        exchange.reset()

    return handle


def event_line(kind: str, obj: Any) -> bytes:
    """An encoded watch event."""
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def status_object(code: int, reason: str = "", *, message: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
        "metadata": {},
    }


# --- HTTP --------------------------------------------------------------------------------------------------------------


def _head(status_code: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status_code} Test", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Exchange(method, target, headers, body, number, writer)


async def _wait_for_eof(reader: asyncio.StreamReader) -> None:
    """Wait until the client closes the connection, without consuming data."""
    while not reader.at_eof() and reader.exception() is None:
        await reader._wait_for_data("end")  # type: ignore[attr-defined]
