"""One connection to an API server: HTTP/1.1, one exchange at a time.

Watches are read by aiohttp. Calls are not: they are what an operator spends its time on, and this costs a third of what
they cost there. httptools takes answers apart; what is left is to know where one ends and what was lost when none came.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable
from typing import cast
from urllib.parse import quote, urlencode, urlsplit

import httptools

from dlop.kube.errors import TransportError
from dlop.kube.transport import Request, Response

USER_AGENT = "dlop"


class ConnectionLostError(Exception):
    """A request was put on the wire, and no whole answer came back."""

    def __init__(self, message: str, *, was_answered: bool) -> None:
        super().__init__(message)
        self.was_answered = was_answered
        """Whether any of the answer came."""


class HttpConnection(asyncio.Protocol):
    """One connection. After an exchange that went wrong it is closed, and never used again."""

    def __init__(self, *, tls: ssl.SSLContext | None, on_lost: Callable[[HttpConnection], None]) -> None:
        self.tls = tls
        """What it was opened with."""
        self.idle_since = 0.0
        self.is_usable = True
        """Whether another exchange may follow."""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it is closed, and nothing of it is left."""
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Response] | None = None
        self._is_head = False
        self._parser = httptools.HttpResponseParser(self)
        self._begin()

    async def exchange(self, data: bytes, *, deadline: float) -> Response:
        """Send a whole request and read the whole answer.

        Raises:
            LostError: the connection ended first, or what came is no answer.
            TimeoutError: the deadline, in the loop's time, did.
        """
        assert self._transport is not None  # noqa: S101 - it is open
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Response] = loop.create_future()
        self._waiting = waiting
        timer = loop.call_at(deadline, self._fail, TimeoutError())
        self._is_head = data.startswith(b"HEAD ")
        # Whatever ends this before the answer does, leaves an answer behind that nobody may take for the next one's.
        self.is_usable = False
        try:
            self._transport.write(data)
            return await waiting
        finally:
            timer.cancel()
            self._waiting = None
            if not self.is_usable:
                self.close()

    def close(self) -> None:
        """Close it at once, without TLS's goodbye: nobody would wait for it."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # --- what asyncio tells ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A piece of the answer. A server that speaks unasked has something to say about an earlier time."""
        if not self._is_waiting():
            self.close()
            return
        self._was_answered = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_usable = False
            self._fail(ConnectionLostError(f"the answer is no HTTP ({error})", was_answered=True))

    def eof_received(self) -> None:
        """The server says no more, perhaps as the end of an answer without a length. asyncio closes the connection then."""
        self.is_usable = False
        if self._is_in_body and not self._has_length:
            self._succeed()
        self._fail(ConnectionLostError("the connection was closed", was_answered=self._was_answered))

    def connection_lost(self, error: Exception | None) -> None:
        """It has ended, and with it an answer that was not whole."""
        self.is_usable = False
        reason = str(error) if error is not None else "the connection was closed"
        self._fail(ConnectionLostError(reason or type(error).__name__, was_answered=self._was_answered))
        if not self.ended.done():
            self.ended.set_result(None)
        self._on_lost(self)

    # --- what httptools tells ----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of an answer. After the one that was asked for, its rest would be taken for that to the next request."""
        if not self._is_waiting():
            self.is_usable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """All of them."""
        self._is_in_body = True
        self._has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._is_head and self._parser.get_status_code() >= 200:
            self._succeed()  # and close the connection: httptools waits for a body

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The end of an answer, or of one that only says to go on."""
        if self._parser.get_status_code() < 200:
            self._begin()
        elif self._is_waiting():
            self.is_usable = self._parser.should_keep_alive() and self._is_sent()
            self._succeed()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make ready for an answer."""
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._is_in_body = False
        self._has_length = False
        self._was_answered = False

    def _is_waiting(self) -> bool:
        return self._waiting is not None and not self._waiting.done()

    def _is_sent(self) -> bool:
        """Whether nothing of the request is left. A server that answers before has no use for the rest, and may never read it."""
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def _succeed(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            body = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._waiting.set_result(Response(self._parser.get_status_code(), self._headers, body))
        self._begin()

    def _fail(self, error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)


# --- requests ------------------------------------------------------------------------------------------------------------


def written(request: Request, *, server: str, authorization: str | None) -> bytes:
    """A request as it goes over the wire.

    Raises:
        TransportError: something in it would be taken for the end of a line.
    """
    host, prefix = _place(server)
    query = f"?{_encoded(request.query)}" if request.query else ""
    headers = {"host": host, "user-agent": USER_AGENT, **request.headers}
    if authorization is not None:
        headers["authorization"] = authorization
    if request.body is not None:
        headers["content-length"] = str(len(request.body))
    lines = [f"{request.method} {prefix}{request.path}{query} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines)
    if " " in request.path or not head.isascii() or head.splitlines() != lines:
        raise TransportError(
            f"{request.method} {request.path!r} was not sent: its path or headers have characters that are not allowed there"
        )
    return b"%b\r\n\r\n%b" % (head.encode(), request.body or b"")


@functools.lru_cache(maxsize=16)
def _place(server: str) -> tuple[str, str]:
    """The host as a server wants to be told it, and the path in front of all others."""
    url = urlsplit(server)
    return url.netloc.rpartition("@")[2], url.path


@functools.lru_cache(maxsize=64)
def _encoded(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query, quote_via=quote)
