"""One HTTP/1.1 connection to an API server, for one request at a time.

Watches use aiohttp. Calls use this class instead, because an operator spends most of its time on them and aiohttp takes
three times as long. httptools parses the responses.
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
    """A request was sent, and no complete response arrived."""

    def __init__(self, message: str, *, response_started: bool) -> None:
        super().__init__(message)
        self.response_started = response_started


class HttpConnection(asyncio.Protocol):
    """One connection. After a failed exchange it is closed."""

    def __init__(self, *, tls: ssl.SSLContext | None, on_lost: Callable[[HttpConnection], None]) -> None:
        self.tls = tls
        """The TLS context of the connection; None for plain HTTP."""
        self.idle_since = 0.0
        self.is_usable = True
        """Whether another exchange is possible."""
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is closed."""
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._response: asyncio.Future[Response] | None = None
        self._is_head = False
        self._parser = httptools.HttpResponseParser(self)
        self._reset()

    async def exchange(self, data: bytes, *, deadline: float) -> Response:
        """Send an encoded request and read the response. `deadline` is in loop time.

        Raises:
            ConnectionLostError: the connection was closed before the response was complete, or the response is not HTTP.
            TimeoutError: the deadline has passed.
        """
        assert self._transport is not None  # noqa: S101 - set when the connection was opened
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Response] = loop.create_future()
        self._response = response
        timer = loop.call_at(deadline, self._fail, TimeoutError())
        self._is_head = data.startswith(b"HEAD ")
        # If the exchange ends early, its response may still arrive and must not be taken for the next one.
        self.is_usable = False
        try:
            self._transport.write(data)
            return await response
        finally:
            timer.cancel()
            self._response = None
            if not self.is_usable:
                self.close()

    def close(self) -> None:
        """Close immediately, without a TLS shutdown, which would need a wait."""
        self.is_usable = False
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_waiting():  # unsolicited data, such as 408 on an idle connection
            self.close()
            return
        self._response_started = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.is_usable = False
            self._fail(ConnectionLostError(f"the response is not HTTP ({error})", response_started=True))

    def eof_received(self) -> None:
        # This ends a response without a length. asyncio closes the connection afterwards.
        self.is_usable = False
        if self._is_in_body and not self._has_length:
            self._succeed()
        self._fail(ConnectionLostError("the connection was closed", response_started=self._response_started))

    def connection_lost(self, error: Exception | None) -> None:
        self.is_usable = False
        reason = str(error) if error is not None else "the connection was closed"
        self._fail(ConnectionLostError(reason or type(error).__name__, response_started=self._response_started))
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_lost(self)

    # --- callbacks of httptools --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if not self._is_waiting():  # a second response, which would be taken for that to the next request
            self.is_usable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._is_in_body = True
        self._has_length = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._is_head and self._parser.get_status_code() >= 200:
            self._succeed()  # is_usable stays false, because httptools waits for a body

    def on_body(self, body: bytes) -> None:
        self._body_chunks.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an informational response, followed by the final one
            self._reset()
        elif self._is_waiting():
            self.is_usable = self._parser.should_keep_alive() and self._is_sent()
            self._succeed()

    # --- internals ---------------------------------------------------------------------------------------------------

    def _reset(self) -> None:
        """Prepare for the next response."""
        self._headers: dict[str, str] = {}
        self._body_chunks: list[bytes] = []
        self._is_in_body = False
        self._has_length = False
        self._response_started = False

    def _is_waiting(self) -> bool:
        return self._response is not None and not self._response.done()

    def _is_sent(self) -> bool:
        """Whether the request was sent completely. A server that responds earlier may never read the rest."""
        return self._transport is not None and self._transport.get_write_buffer_size() == 0

    def _succeed(self) -> None:
        if self._response is not None and not self._response.done():
            body = self._body_chunks[0] if len(self._body_chunks) == 1 else b"".join(self._body_chunks)
            self._response.set_result(Response(self._parser.get_status_code(), self._headers, body))
        self._reset()

    def _fail(self, error: Exception) -> None:
        if self._response is not None and not self._response.done():
            self._response.set_exception(error)


# --- requests ------------------------------------------------------------------------------------------------------------


def encode_request(request: Request, *, server: str, authorization: str | None) -> bytes:
    """The bytes of an HTTP/1.1 request.

    Raises:
        TransportError: the path or a header contains a character that is not allowed there, such as a line break.
    """
    host, prefix = _split_server(server)
    query = f"?{_encode_query(request.query)}" if request.query else ""
    headers = {"host": host, "user-agent": USER_AGENT, **request.headers}
    if authorization is not None:
        headers["authorization"] = authorization
    if request.body is not None:
        headers["content-length"] = str(len(request.body))
    lines = [f"{request.method} {prefix}{request.path}{query} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    head = "\r\n".join(lines)
    if " " in request.path or not head.isascii() or head.splitlines() != lines:
        raise TransportError(f"{request.method} {request.path!r} was not sent: its path or headers contain characters that are not allowed")
    return b"%b\r\n\r\n%b" % (head.encode(), request.body or b"")


@functools.lru_cache(maxsize=16)
def _split_server(server: str) -> tuple[str, str]:
    """The value of the Host header, and the path prefix of all requests."""
    url = urlsplit(server)
    return url.netloc.rpartition("@")[2], url.path


@functools.lru_cache(maxsize=64)
def _encode_query(query: tuple[tuple[str, str], ...]) -> str:
    return urlencode(query, quote_via=quote)
