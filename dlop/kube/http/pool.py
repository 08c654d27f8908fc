"""The connections to one API server, each used by one call at a time and kept a while for the next one.

How many there are is bounded by how many calls are in flight, which `dlop.kube.request_pipeline` does. A write goes out at most once;
a read whose connection ends before any answer goes out once more, over a new one.
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

# Below the 90 seconds after which an API server closes an idle connection: a write on a closing connection is ambiguous.
KEEPALIVE_SECONDS = 30.0
# How long one address of a server is tried before the next one is tried beside it.
_NEXT_ADDRESS_SECONDS = 0.25
# More than enough: nothing is left to be sent.
_CLOSE_SECONDS = 5.0
NO_CONNECTION_IN_TIME = "no connection in time; check the address, the network and the proxy"
_DEAD_PEER_OPTIONS = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000))


class UnreachableError(Exception):
    """There is no connection to the server, and nothing was sent. The message says why and what to look at."""

    def __init__(self, message: str, *, is_distrust: bool = False) -> None:
        super().__init__(message)
        self.is_distrust = is_distrust
        """Whether it is because of the server's certificate."""


class ConnectionPool:
    """Connections to one server."""

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

    async def exchange(self, data: bytes, *, tls: ssl.SSLContext | None, connect_seconds: float, deadline: float, again: bool) -> Response:
        """Send a whole request and read the whole answer. `again` allows it to be sent a second time.

        Raises:
            UnreachableError: nothing was sent.
            LostError: it was sent, and no whole answer came.
            TimeoutError: it was sent, and no whole answer came in time.
        """
        tls = self._context(tls)
        wire = self._take(tls) or await self._connect(tls, seconds=connect_seconds)
        try:
            return await self._exchange(wire, data, deadline=deadline)
        except ConnectionLostError as error:
            if error.was_answered or not again:
                raise
        left = deadline - asyncio.get_running_loop().time()
        wire = await self._connect(tls, seconds=min(connect_seconds, left))
        return await self._exchange(wire, data, deadline=deadline)

    async def close(self) -> None:
        """Close every connection, also under a call."""
        self._is_closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        ending = list(self._open)
        for wire in ending:
            wire.close()
        if ending:
            await asyncio.wait([wire.ended for wire in ending], timeout=_CLOSE_SECONDS)

    async def _exchange(self, wire: HttpConnection, data: bytes, *, deadline: float) -> Response:
        try:
            return await wire.exchange(data, deadline=deadline)
        finally:
            # Also after a call that was given up just when its answer had come: nobody else would ever use or close it.
            self._keep(wire)

    # --- keeping -----------------------------------------------------------------------------------------------------

    def _take(self, tls: ssl.SSLContext | None) -> HttpConnection | None:
        """The one that was used last, if it is as good as new."""
        while self._idle:
            wire = self._idle.pop()
            if wire.is_usable and wire.tls is tls and not self._is_old(wire):
                return wire
            wire.close()
        return None

    def _keep(self, wire: HttpConnection) -> None:
        if not wire.is_usable:
            return
        loop = asyncio.get_running_loop()
        wire.idle_since = loop.time()
        self._idle.append(wire)
        if self._sweep is None:
            self._sweep = loop.call_later(KEEPALIVE_SECONDS, self._close_old)

    def _close_old(self) -> None:
        self._sweep = None
        old = [wire for wire in self._idle if self._is_old(wire)]
        self._idle = [wire for wire in self._idle if wire not in old]
        for wire in old:
            wire.close()
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_at(self._idle[0].idle_since + KEEPALIVE_SECONDS, self._close_old)

    def _is_old(self, wire: HttpConnection) -> bool:
        return asyncio.get_running_loop().time() >= wire.idle_since + KEEPALIVE_SECONDS

    def _lost(self, wire: HttpConnection) -> None:
        self._open.discard(wire)
        if wire in self._idle:
            self._idle.remove(wire)

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _connect(self, tls: ssl.SSLContext | None, *, seconds: float) -> HttpConnection:
        if self._is_closed:
            raise UnreachableError("this client has been closed")
        try:
            async with asyncio.timeout(seconds):
                return await self._connected(tls, addresses=await self._addresses())
        except TimeoutError as error:
            raise UnreachableError(NO_CONNECTION_IN_TIME) from error
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(untrusted(error), is_distrust=True) from error
        except (OSError, RuntimeError) as error:  # the latter is what uvloop may raise
            raise UnreachableError(refused(self._host, self._port, error)) from error

    async def _addresses(self) -> list[Any]:
        loop = asyncio.get_running_loop()
        try:
            return await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError) as error:
            raise UnreachableError(unresolved(self._host, error)) from error

    async def _connected(self, tls: ssl.SSLContext | None, *, addresses: list[Any]) -> HttpConnection:
        name = self._name(tls) if tls is not None else None
        connected = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, socket_factory=socket_that_notices_dead_peers
        )
        wire = HttpConnection(tls=tls, on_lost=self._lost)
        try:
            await asyncio.get_running_loop().create_connection(lambda: wire, sock=connected, ssl=tls, server_hostname=name)
        except BaseException:
            # Not the socket, which is asyncio's by now: closed behind its back, the loop would go on listening to the number.
            wire.close()
            raise
        if self._is_closed or not wire.is_usable:
            wire.close()
            raise ConnectionResetError(errno.ECONNRESET, "it was closed at once")
        self._open.add(wire)
        return wire

    def _name(self, tls: ssl.SSLContext) -> str:
        """The name that the server's certificate is to have; there, none ends with a dot."""
        name = (self._tls_server_name or self._host).rstrip(".")
        try:
            # A name that can be none is found here: later it would be found with a socket open that nobody closes.
            tls.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname=name)
        except ValueError as error:
            raise UnreachableError(f"{name!r} can be no server's name ({error}); check the address and tls-server-name") from error
        return name

    def _context(self, tls: ssl.SSLContext | None) -> ssl.SSLContext | None:
        """What to open a connection with: that of the credentials, or else what this machine trusts."""
        if not self._is_tls:
            return None
        if tls is None and self._default_tls is None:
            self._default_tls = ssl.create_default_context()
        return tls or self._default_tls


def unresolved(host: str, cause: object) -> str:
    """A sentence on a name without an address."""
    return f"the name {host} cannot be resolved ({_told(cause)}); check the address, or the network's DNS"


def untrusted(cause: object) -> str:
    """A sentence on a certificate."""
    return f"the server's certificate is not trusted ({cause}); check certificate-authority and tls-server-name"


def refused(host: str, port: object, cause: object) -> str:
    """A sentence on an address where nobody answers as expected."""
    return f"no connection to {host}:{port} ({_told(cause)}); check that the server is running and that its address is right"


def _told(cause: object) -> object:
    return getattr(cause, "strerror", None) or cause


def socket_that_notices_dead_peers(address: Any) -> socket.socket:
    """A socket that asks its peer from time to time whether it is still there."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _DEAD_PEER_OPTIONS:
        option = getattr(socket, name, None)  # not every platform has every one
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
