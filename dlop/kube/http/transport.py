"""The transport to a real API server: HTTP/1.1, over connections of its own for calls and an aiohttp session for streams.

It promises that a write is put on the wire at most once, that a lost answer is told from a request that was never sent,
and that nothing waits for ever: dead peers are found by TCP keepalive and by timeouts. Behind a proxy calls go through
aiohttp as well, which knows about proxies.
"""

from __future__ import annotations

import asyncio
import functools
import io
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
from yarl import URL

from dlop.kube.config import load
from dlop.kube.config.cluster import Access, ClusterConfig, CurrentAccess
from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.http.connection import USER_AGENT, ConnectionLostError, written
from dlop.kube.http.pool import (
    KEEPALIVE_SECONDS,
    NO_CONNECTION_IN_TIME,
    ConnectionPool,
    UnreachableError,
    refused,
    socket_that_notices_dead_peers,
    unresolved,
    untrusted,
)
from dlop.kube.transport import Request, Response, StreamResponse

# To get credentials, where they are due, and a connection.
_CONNECT_SECONDS = 10.0
# Less for a write: `may_write` was asked before it, and another leader may follow soon after this one's time is up.
_CONNECT_SECONDS_OF_A_WRITE = 5.0
# The part of a call's time that may go into getting credentials and a connection. Less than all of it, so that when the whole time is
# up, the request is known to have been sent.
_CONNECT_SHARE = 0.9
_MAX_CONNECTIONS = 256
# aiohttp stops reading a stream at twice this size; large, so that a long line does not stop and go.
_READ_BUFFER_BYTES = 2**21
_MAX_BYTES_IN_ONE_PIECE = 2**20
# After a lost connection aiohttp repeats these; reads may be repeated.
_SENT_AGAIN_BY_AIOHTTP = ("PUT", "DELETE")
_BEFORE_SENDING = (
    UnreachableError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)


class _AnswerLostError(Exception):
    """Stands in for an error after which aiohttp would send an idempotent request a second time."""


# RuntimeError is what aiohttp raises on a connection or session that was closed under a call.
_WIRE_ERRORS = (UnreachableError, ConnectionLostError, aiohttp.ClientError, _AnswerLostError, TimeoutError, OSError, RuntimeError)


async def connect(kubeconfig: Path | str | None = None, *, context: str | None = None) -> HttpTransport:
    """A transport to the cluster that the kubeconfig, the environment or the pod's service account names.

    Raises:
        ConfigurationError: when none of them names a usable one.
    """
    transport = HttpTransport(await load.load(kubeconfig, context=context))
    try:
        await transport.authenticate()
    except BaseException:
        await transport.close()
        raise
    return transport


class HttpTransport:
    """Sends requests to one API server; see `dlop.kube.transport.Transport`."""

    def __init__(self, connection: ClusterConfig, *, clock: Callable[[], float] = time.time) -> None:
        self.connection = connection
        self._access = CurrentAccess(connection.credentials, clock=clock)
        self._connections = ConnectionPool(connection.server, tls_server_name=connection.tls_server_name)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def authenticate(self) -> None:
        """Read the credentials now: a mistake in them shows before the first call, and a login may take its time.

        Raises:
            ConfigurationError: when there are none that could be used.
        """
        await self._access.get()

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request and read the whole answer."""
        connect_seconds = min(_CONNECT_SECONDS_OF_A_WRITE if request.is_write else _CONNECT_SECONDS, timeout_seconds * _CONNECT_SHARE)
        access = self._access.at_hand()
        if access is None:
            started = asyncio.get_running_loop().time()
            access = await self._read_access(connect_seconds)
            spent = asyncio.get_running_loop().time() - started
            # To aiohttp, zero means no limit.
            timeout_seconds, connect_seconds = max(0.001, timeout_seconds - spent), max(0.001, connect_seconds - spent)
        self._check_open()
        exchange = self._exchange if self.connection.proxy is None else self._exchange_by_proxy
        try:
            response = await exchange(request, access, timeout_seconds=timeout_seconds, connect_seconds=connect_seconds)
        except _WIRE_ERRORS as error:
            raise self._failure(request, error) from error
        self._note_refusal(response.status, access)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a request whose answer is read piece by piece. Leaving the context closes the connection at once."""
        access = self._access.at_hand() or await self._read_access(_CONNECT_SECONDS)
        timeout = aiohttp.ClientTimeout(connect=_CONNECT_SECONDS, sock_read=idle_timeout_seconds, ceil_threshold=math.inf)
        try:
            response = await self._open(request, access, timeout=timeout)
        except _WIRE_ERRORS as error:
            raise self._failure(request, error) from error
        self._note_refusal(response.status, access)
        chunks = self._chunks(request, response)
        try:
            yield StreamResponse(response.status, response.headers, chunks)
        finally:
            # Without TLS's goodbye: nobody would wait for it, and a loop that ends now would leave the socket open.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()
            await chunks.aclose()

    async def refresh_credentials(self) -> str:
        """Read the credentials anew, unless another call has done so since they were refused."""
        await self._access.renew()
        return self.connection.origin

    async def close(self) -> None:
        """Release every connection."""
        self._closed = True
        await self._access.close()
        await self._connections.close()
        if self._session is not None:
            await self._session.close()

    def _note_refusal(self, status: int, access: Access) -> None:
        if status == 401:
            self._access.refuse(access)

    async def _read_access(self, timeout_seconds: float) -> Access:
        self._check_open()
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._access.get()
        except TimeoutError as error:
            raise TransportError(f"the credentials of {self.connection.origin} could not be read in time: nothing was sent") from error

    async def _exchange(self, request: Request, access: Access, *, timeout_seconds: float, connect_seconds: float) -> Response:
        return await self._connections.exchange(
            written(request, server=self.connection.server, authorization=access.authorization),
            tls=access.tls,
            connect_seconds=connect_seconds,
            deadline=asyncio.get_running_loop().time() + timeout_seconds,
            again=not request.is_write,
        )

    async def _exchange_by_proxy(self, request: Request, access: Access, *, timeout_seconds: float, connect_seconds: float) -> Response:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, connect=connect_seconds, ceil_threshold=math.inf)
        async with self._open(request, access, timeout=timeout) as response:
            return Response(response.status, response.headers, await response.read())

    def _open(self, request: Request, access: Access, *, timeout: aiohttp.ClientTimeout) -> Any:
        headers = {"user-agent": USER_AGENT, **request.headers}
        if access.authorization is not None:
            headers["authorization"] = access.authorization
        return self._opened_session().request(
            request.method,
            _url(self.connection.server, request.path, request.query),
            headers=headers,
            data=_streamed_if_large(request.body),
            timeout=timeout,
            allow_redirects=False,
            ssl=access.tls if access.tls is not None else True,
            server_hostname=self.connection.tls_server_name,
            proxy=self.connection.proxy,
            middlewares=(_at_most_once,) if request.method in _SENT_AGAIN_BY_AIOHTTP else None,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("this client has been closed: nothing was sent")

    def _opened_session(self) -> aiohttp.ClientSession:
        self._check_open()
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=_MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=socket_that_notices_dead_peers
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=_READ_BUFFER_BYTES,
                # Compressed lists cost the server and this loop more than the bytes they save.
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._session

    async def _chunks(self, request: Request, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except _WIRE_ERRORS as error:
            raise self._failure(request, error) from error

    def _failure(self, request: Request, error: Exception) -> TransportError | AmbiguousWriteError:
        if isinstance(error, aiohttp.ClientConnectorCertificateError) or (isinstance(error, UnreachableError) and error.is_distrust):
            self._access.doubt()  # the cluster's authority may have been replaced, and so may the file
        what = f"{request.method} {request.path} at {_without_password(self.connection.server)} ({self.connection.origin})"
        if _nothing_was_sent(error):
            return TransportError(f"{what} could not be sent: {_reason(error)}")
        if request.is_write:
            return AmbiguousWriteError(f"{what} was sent and its answer was lost: {_reason(error)}")
        return TransportError(f"{what} got no answer: {_reason(error)}")


async def _at_most_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a PUT or DELETE again on a new connection.

    The second one would answer 409 or 404 for what the first one has done, and it would not ask whether this process
    still may write.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _AnswerLostError(str(error)) from error


def _without_password(server: str) -> str:
    url = urlsplit(server)
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _nothing_was_sent(error: Exception) -> bool:
    return isinstance(error, _BEFORE_SENDING)


def _reason(error: Exception) -> str:
    """Why, and what to look at."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return unresolved(error.host, error.os_error)
        case aiohttp.ClientConnectorCertificateError():
            return untrusted(error)
        case aiohttp.ClientConnectorError():
            # The error as a whole also prints the TLS context, which nobody can read.
            return refused(error.host, error.port, error.os_error)
        case aiohttp.ConnectionTimeoutError():
            return NO_CONNECTION_IN_TIME
        case TimeoutError():
            return "no answer in time"
        case _:
            return str(error) or type(error).__name__


def _streamed_if_large(body: bytes | None) -> bytes | io.BytesIO | None:
    # aiohttp hands bytes over in one piece, and warns of it above a mebibyte.
    return io.BytesIO(body) if body is not None and len(body) > _MAX_BYTES_IN_ONE_PIECE else body


@functools.lru_cache(maxsize=256)
def _url(server: str, path: str, query: tuple[tuple[str, str], ...]) -> URL:
    # The collections that objects are created in are few, and taking a URL apart is a good part of what a request costs.
    return URL(f"{server}{path}{'?' + urlencode(query, quote_via=quote) if query else ''}", encoded=True)
