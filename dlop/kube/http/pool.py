"""Pool of keep-alive connections to one API server.

The number of connections is bounded by the in-flight limits of `dlop.kube.request_pipeline`. A write is sent at most
once. A read whose connection is closed before the response starts is sent once more, over a new connection.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import Any
from urllib.parse import urlsplit

import aiohappyeyeballs

from dlop.kube.http.connection import ConnectionLostError, HttpConnection
from dlop.kube.transport import Response

# Less than the 90 seconds after which an API server closes idle connections. A write on a closing connection is ambiguous.
KEEPALIVE_SECONDS = 30.0
# Delay before the next address of the server is tried in parallel.
_HAPPY_EYEBALLS_DELAY_SECONDS = 0.25
# Ample, because closing does not send anything.
_CLOSE_TIMEOUT_SECONDS = 5.0
CONNECT_TIMEOUT_MESSAGE = "connection timed out; check the address, the network and the proxy"
_KEEPALIVE_OPTIONS = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))


class UnreachableError(Exception):
    """No connection to the server; nothing was sent. The message has the cause and what to check."""

    def __init__(self, message: str, *, is_certificate_error: bool = False) -> None:
        super().__init__(message)
        self.is_certificate_error = is_certificate_error


class ConnectionPool:
    def __init__(self, server: str, *, tls_server_name: str | None) -> None:
        url = urlsplit(server)
        self._host = url.hostname or ""
        self._is_tls = url.scheme == "https"
        self._port = url.port or (443 if self._is_tls else 80)
        self._tls_server_name = tls_server_name
        self._default_tls: ssl.SSLContext | None = None
        self._idle: list[HttpConnection] = []
        self._open: set[HttpConnection] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def exchange(self, data: bytes, *, tls: ssl.SSLContext | None, connect_seconds: float, deadline: float, retry: bool) -> Response:
        """Send an encoded request and read the response. With `retry` it may be sent a second time.

        Raises:
            UnreachableError: nothing was sent.
            ConnectionLostError: the request was sent, and no complete response arrived.
            TimeoutError: the request was sent, and no complete response arrived before the deadline.
        """
        tls = self._context(tls)
        connection = self._acquire(tls) or await self._connect(tls, seconds=connect_seconds)
        try:
            return await self._exchange(connection, data, deadline=deadline)
        except ConnectionLostError as error:
            if error.response_started or not retry:
                raise
        remaining = deadline - asyncio.get_running_loop().time()
        connection = await self._connect(tls, seconds=min(connect_seconds, remaining))
        return await self._exchange(connection, data, deadline=deadline)

    async def close(self) -> None:
        """Close all connections, also those in use."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        connections = list(self._open)
        for connection in connections:
            connection.close()
        if connections:
            await asyncio.wait([connection.closed for connection in connections], timeout=_CLOSE_TIMEOUT_SECONDS)

    async def _exchange(self, connection: HttpConnection, data: bytes, *, deadline: float) -> Response:
        try:
            return await connection.exchange(data, deadline=deadline)
        finally:
            # Also for a call that was cancelled just after its response arrived. Otherwise the connection would leak.
            self._release(connection)

    # --- idle connections --------------------------------------------------------------------------------------------

    def _acquire(self, tls: ssl.SSLContext | None) -> HttpConnection | None:
        """The most recently used idle connection with this TLS context, if any."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and connection.tls is tls and not self._is_expired(connection):
                return connection
            connection.close()
        return None

    def _release(self, connection: HttpConnection) -> None:
        if not connection.is_usable:
            return
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEPALIVE_SECONDS, self._close_expired)

    def _close_expired(self) -> None:
        self._sweep = None
        expired = [connection for connection in self._idle if self._is_expired(connection)]
        self._idle = [connection for connection in self._idle if connection not in expired]
        for connection in expired:
            connection.close()
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_at(self._idle[0].idle_since + KEEPALIVE_SECONDS, self._close_expired)

    def _is_expired(self, connection: HttpConnection) -> bool:
        return asyncio.get_running_loop().time() >= connection.idle_since + KEEPALIVE_SECONDS

    def _on_lost(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _connect(self, tls: ssl.SSLContext | None, *, seconds: float) -> HttpConnection:
        if self._is_closed:
            raise UnreachableError("the client is closed")
        try:
            async with asyncio.timeout(seconds):
                return await self._open_connection(tls, addresses=await self._resolve())
        except TimeoutError as error:
            raise UnreachableError(CONNECT_TIMEOUT_MESSAGE) from error
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(certificate_failure_message(error), is_certificate_error=True) from error
        except (OSError, RuntimeError) as error:  # uvloop may raise RuntimeError
            raise UnreachableError(connection_failure_message(self._host, self._port, error)) from error

    async def _resolve(self) -> list[Any]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise UnreachableError(dns_failure_message(self._host, error)) from error

    async def _open_connection(self, tls: ssl.SSLContext | None, *, addresses: list[Any]) -> HttpConnection:
        name = self._server_name(tls) if tls is not None else None
        sock = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY_SECONDS, socket_factory=create_keepalive_socket
        )
        connection = HttpConnection(tls=tls, on_lost=self._on_lost)
        try:
            await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock, ssl=tls, server_hostname=name)
        except BaseException:
            # Do not close the socket, which asyncio owns now. The loop would continue to poll its file descriptor.
            connection.close()
            raise
        if self._is_closed or not connection.is_usable:
            connection.close()
            raise ConnectionResetError(errno.ECONNRESET, "closed immediately")
        self._open.add(connection)
        return connection

    def _server_name(self, tls: ssl.SSLContext) -> str:
        """The expected name in the server's certificate, without a trailing dot."""
        name = (self._tls_server_name or self._host).rstrip(".")
        try:
            # Validate the name before a socket is open, because asyncio would leak the socket.
            tls.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
        except ValueError as error:
            raise UnreachableError(f"{name!r} is not a valid server name ({error}); check the address and tls-server-name") from error
        return name

    def _context(self, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """The TLS context of the credentials, or else one with the CAs of the system. None for plain HTTP."""
        if not self._is_tls:
            return None
        if tls is None and self._default_tls is None:
            self._default_tls = ssl.create_default_context()
        return tls or self._default_tls


def dns_failure_message(host: str, cause: object) -> str:
    return f"cannot resolve host {host} ({_describe(cause)}); check the address and DNS"


def certificate_failure_message(cause: object) -> str:
    return f"the server's certificate is not trusted ({cause}); check certificate-authority and tls-server-name"


def connection_failure_message(host: str, port: object, cause: object) -> str:
    return f"no connection to {host}:{port} ({_describe(cause)}); check that the server is running and that its address is correct"


def _describe(cause: object) -> object:
    return getattr(cause, "strerror", None) or cause


def create_keepalive_socket(address: Any) -> socket.socket:
    """A socket with TCP keepalive, which detects dead peers."""
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS:
        option = getattr(socket, name, None)  # not available on all platforms
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
    return sock
