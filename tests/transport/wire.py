"""A scriptable HTTP/1.1 server on a raw socket, which can also do what no decent server does.

A script is a list of handlers: the first request is given to the first one, and so on; the last one serves all the rest.

    async with wire(answer(json={"kind": "Pod"}), cut()) as server:
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

from dlop.kube.client import Client, Limits
from dlop.kube.config.cluster import Access, ClusterConfig, Credentials, FixedCredentials
from dlop.kube.http.transport import HttpTransport


@dataclass(slots=True)
class Exchange:
    """One request as it arrived, and the connection to answer it on."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection_number: int
    """Counted from 1: two exchanges with the same number came over the same connection."""
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

    async def answer(self, *, status: int = 200, json: Any = None, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """A whole, proper answer."""
        if json is not None:
            body = msgspec.json.encode(json)
        extra = {"content-type": "application/json" if json is not None else "text/plain", **(headers or {})}
        await self.send(_head(status, {"content-length": str(len(body)), **extra}) + body)

    async def begin(self, *, chunked: bool = True, headers: Mapping[str, str] | None = None) -> None:
        """The head of a stream: chunked, or one that ends where the connection does."""
        framing = {"transfer-encoding": "chunked"} if chunked else {"connection": "close"}
        await self.send(_head(200, {"content-type": "application/json", **framing, **(headers or {})}))

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, kind: str, obj: Any) -> None:
        """One watch event as one chunk."""
        await self.chunk(event_line(kind, obj))

    async def end(self) -> None:
        """The proper end of a chunked stream."""
        await self.send(b"0\r\n\r\n")

    def cut(self) -> None:
        """Close the connection in the middle of whatever it is doing."""
        self.writer.close()

    def reset(self) -> None:
        """Close the connection with a RST."""
        raw = self.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def stall(self) -> None:
        """Stay connected and silent, until the test ends."""
        await asyncio.Event().wait()


Handler = Callable[[Exchange], Awaitable[None]]


class WireServer:
    """The running server, and what has reached it."""

    def __init__(self, script: tuple[Handler, ...], *, tls: ssl.SSLContext | None) -> None:
        self.exchanges: list[Exchange] = []
        self.connections = 0
        self.open_connections = 0
        self.closed_by_client = asyncio.Event()
        """Set when a client closes a connection, however that happens."""
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
        """Wait until so many requests have arrived."""
        while len(self.exchanges) < count:
            self._arrival.clear()
            await self._arrival.wait()

    def transport(self, *, credentials: Credentials | None = None) -> HttpTransport:
        """A transport to this server."""
        given = credentials or FixedCredentials(Access())
        return HttpTransport(ClusterConfig(server=self.url, credentials=given, origin="the test"))

    @contextlib.asynccontextmanager
    async def client(self, *, timeout_seconds: float = 5.0, credentials: Credentials | None = None, **limits: Any) -> AsyncIterator[Client]:
        """A client of this server."""
        client = Client(self.transport(credentials=credentials), limits=Limits(timeout_seconds=timeout_seconds, **limits))
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

    async def _until_closed(self, answering: Awaitable[None], reader: asyncio.StreamReader) -> None:
        """Answer, but no longer than the client stays: it sends nothing more before it has its answer."""
        answer = asyncio.ensure_future(answering)
        gone = asyncio.ensure_future(_end_of(reader))
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise ConnectionResetError("the client is gone")
            answer.result()
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)


@contextlib.asynccontextmanager
async def wire(*script: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[WireServer]:
    """A server that follows the script, on a free port of the loopback."""
    server = WireServer(script, tls=tls)
    listening = await server.start()
    try:
        yield server
    finally:
        listening.close()
        await server.stop()
        await listening.wait_closed()


# --- handlers that many scripts use ------------------------------------------------------------------------------------


def answer(*, status: int = 200, json: Any = None, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Handler:
    """Answer at once."""
    return lambda exchange: exchange.answer(status=status, json=json, body=body, headers=headers)


def status(code: int, reason: str = "", *, message: str = "", headers: Mapping[str, str] | None = None) -> Handler:
    """Answer with a Status object, as an API server does."""
    return answer(status=code, json=status_object(code, reason, message=message), headers=headers)


def watch_stream(*lines: bytes, then: Callable[[Exchange], Awaitable[None] | None] = Exchange.end, chunked: bool = True) -> Handler:
    """Send these pieces as a stream, one chunk each, and end as `then` says: `Exchange.end`, `.stall`, `.cut` or `.reset`."""

    async def handle(exchange: Exchange) -> None:
        await exchange.begin(chunked=chunked)
        for line in lines:
            await (exchange.chunk(line) if chunked else exchange.send(line))
        done = then(exchange)
        if done is not None:
            await done

    return handle


def stall() -> Handler:
    """Accept the request and never answer."""
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
    """A watch event as it goes over the wire."""
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def status_object(code: int, reason: str = "", *, message: str = "") -> dict[str, Any]:
    """A Failure Status."""
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message or reason,
        "metadata": {},
    }


# --- the wire itself ---------------------------------------------------------------------------------------------------


def _head(status_code: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status_code} Said", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> Exchange:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *rest = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Exchange(method, target, headers, body, number, writer)


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Wait until the client closes its side, without taking bytes that belong to its next request."""
    while not reader.at_eof() and reader.exception() is None:
        await reader._wait_for_data("end")  # type: ignore[attr-defined]
