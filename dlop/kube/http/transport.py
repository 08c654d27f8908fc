"""HTTP/1.1 transport to a real API server: a connection pool for calls and an aiohttp session for streams.

Guarantees:
- A write is sent at most once.
- A lost response is distinguished from a request that was never sent.
- Nothing waits forever: dead peers are detected by TCP keepalive and by timeouts.

With a proxy, calls use aiohttp as well, because the pool does not support proxies.
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
from dlop.kube.config.cluster import AuthCache, ClusterConfig, RequestAuth
from dlop.kube.errors import AmbiguousWriteError, TransportError
from dlop.kube.http.connection import USER_AGENT, ConnectionLostError, encode_request
from dlop.kube.http.pool import (
    CONNECT_TIMEOUT_MESSAGE,
    KEEPALIVE_SECONDS,
    ConnectionPool,
    UnreachableError,
    certificate_failure_message,
    connection_failure_message,
    create_keepalive_socket,
    dns_failure_message,
)
from dlop.kube.transport import Request, Response, StreamResponse

# For reading credentials, if necessary, and connecting.
_CONNECT_SECONDS = 10.0
# Less for a write, because `may_write` was checked before. Another leader may take over soon after its result expires.
_WRITE_CONNECT_SECONDS = 5.0
# The share of a call's timeout for credentials and connecting. It is less than 1, so that a request whose timeout expires is
# known to have been sent.
_CONNECT_SHARE = 0.9
_MAX_CONNECTIONS = 256
# aiohttp pauses reading at twice this size. It is large, so that long lines do not cause many pauses.
_READ_BUFFER_BYTES = 2**21
_MAX_BODY_BYTES_IN_ONE_WRITE = 2**20
# aiohttp repeats these after a lost connection. Repeating reads is harmless.
_WRITES_REPEATED_BY_AIOHTTP = ("PUT", "DELETE")
_NOT_SENT_ERRORS = (
    UnreachableError,
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)


class _ResponseLostError(Exception):
    """Replaces an error after which aiohttp would send an idempotent request a second time."""


# aiohttp raises RuntimeError if the connection or session is closed during a call.
_NETWORK_ERRORS = (UnreachableError, ConnectionLostError, aiohttp.ClientError, _ResponseLostError, TimeoutError, OSError, RuntimeError)


async def connect(kubeconfig: Path | str | None = None, *, context: str | None = None) -> HttpTransport:
    """A transport to the cluster of the kubeconfig, the environment or the service account, with credentials already read.

    Raises:
        ConfigurationError: no usable configuration or credentials.
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

    def __init__(self, config: ClusterConfig, *, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self._auth = AuthCache(config.credentials, clock=clock)
        self._pool = ConnectionPool(config.server, tls_server_name=config.tls_server_name)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def authenticate(self) -> None:
        """Read the credentials now, so that errors show before the first call and a login is not limited by its timeout.

        Raises:
            ConfigurationError: no usable credentials.
        """
        await self._auth.get()

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        connect_seconds = min(_WRITE_CONNECT_SECONDS if request.is_write else _CONNECT_SECONDS, timeout_seconds * _CONNECT_SHARE)
        auth = self._auth.cached()
        if auth is None:
            started_at = asyncio.get_running_loop().time()
            auth = await self._read_auth(connect_seconds)
            spent = asyncio.get_running_loop().time() - started_at
            # Not zero, which means no limit in aiohttp.
            timeout_seconds, connect_seconds = max(0.001, timeout_seconds - spent), max(0.001, connect_seconds - spent)
        self._check_open()
        exchange = self._exchange if self.config.proxy is None else self._exchange_through_proxy
        try:
            response = await exchange(request, auth, timeout_seconds=timeout_seconds, connect_seconds=connect_seconds)
        except _NETWORK_ERRORS as error:
            raise self._failure(request, error) from error
        self._check_rejected(response.status, auth)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a stream. Leaving the context closes the connection immediately."""
        auth = self._auth.cached() or await self._read_auth(_CONNECT_SECONDS)
        timeout = aiohttp.ClientTimeout(connect=_CONNECT_SECONDS, sock_read=idle_timeout_seconds, ceil_threshold=math.inf)
        try:
            response = await self._open(request, auth, timeout=timeout)
        except _NETWORK_ERRORS as error:
            raise self._failure(request, error) from error
        self._check_rejected(response.status, auth)
        chunks = self._chunks(request, response)
        try:
            yield StreamResponse(response.status, response.headers, chunks)
        finally:
            # Without a TLS shutdown, which would need a wait. If the loop ended first, the socket would stay open.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()
            await chunks.aclose()

    @asynccontextmanager
    async def websocket(
        self, path: str, *, query: tuple[tuple[str, str], ...], protocol: str
    ) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """Open a WebSocket with this subprotocol. Leaving the context closes it.

        Raises:
            TransportError: the server could not be reached, or rejected the request.
        """
        auth = self._auth.cached() or await self._read_auth(_CONNECT_SECONDS)
        headers = {"user-agent": USER_AGENT}
        if auth.authorization is not None:
            headers["authorization"] = auth.authorization
        request = Request("GET", path, query=query)
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                socket = await self._get_session().ws_connect(
                    _url(self.config.server, path, query),
                    protocols=(protocol,),
                    headers=headers,
                    ssl=auth.tls if auth.tls is not None else True,
                    server_hostname=self.config.tls_server_name,
                    proxy=self.config.proxy,
                    max_msg_size=0,
                )
        except aiohttp.WSServerHandshakeError as error:
            self._check_rejected(error.status, auth)
            raise TransportError(f"{request.method} {path}: the API server responded with HTTP {error.status}") from error
        except _NETWORK_ERRORS as error:
            raise self._failure(request, error) from error
        try:
            yield socket
        finally:
            await socket.close()

    async def refresh_credentials(self) -> str:
        """Read the credentials again, unless another call has done so since they were rejected."""
        await self._auth.refresh_rejected()
        return self.config.origin

    async def close(self) -> None:
        self._closed = True
        await self._auth.close()
        await self._pool.close()
        if self._session is not None:
            await self._session.close()

    def _check_rejected(self, status: int, auth: RequestAuth) -> None:
        if status == 401:
            self._auth.mark_rejected(auth)

    async def _read_auth(self, timeout_seconds: float) -> RequestAuth:
        self._check_open()
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._auth.get()
        except TimeoutError as error:
            raise TransportError(f"timed out reading the credentials of {self.config.origin}; nothing was sent") from error

    async def _exchange(self, request: Request, auth: RequestAuth, *, timeout_seconds: float, connect_seconds: float) -> Response:
        return await self._pool.exchange(
            encode_request(request, server=self.config.server, authorization=auth.authorization),
            tls=auth.tls,
            connect_seconds=connect_seconds,
            deadline=asyncio.get_running_loop().time() + timeout_seconds,
            retry=not request.is_write,
        )

    async def _exchange_through_proxy(
        self, request: Request, auth: RequestAuth, *, timeout_seconds: float, connect_seconds: float
    ) -> Response:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, connect=connect_seconds, ceil_threshold=math.inf)
        async with self._open(request, auth, timeout=timeout) as response:
            return Response(response.status, response.headers, await response.read())

    def _open(self, request: Request, auth: RequestAuth, *, timeout: aiohttp.ClientTimeout) -> Any:
        headers = {"user-agent": USER_AGENT, **request.headers}
        if auth.authorization is not None:
            headers["authorization"] = auth.authorization
        return self._get_session().request(
            request.method,
            _url(self.config.server, request.path, request.query),
            headers=headers,
            data=_streamable(request.body),
            timeout=timeout,
            allow_redirects=False,
            ssl=auth.tls if auth.tls is not None else True,
            server_hostname=self.config.tls_server_name,
            proxy=self.config.proxy,
            middlewares=(_at_most_once,) if request.method in _WRITES_REPEATED_BY_AIOHTTP else None,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise TransportError("the client is closed; nothing was sent")

    def _get_session(self) -> aiohttp.ClientSession:
        self._check_open()
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=_MAX_CONNECTIONS, keepalive_timeout=KEEPALIVE_SECONDS, socket_factory=create_keepalive_socket
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                read_bufsize=_READ_BUFFER_BYTES,
                # Compression costs the server and this process more than it saves.
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            )
        return self._session

    async def _chunks(self, request: Request, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in response.content.iter_any():
                yield chunk
        except _NETWORK_ERRORS as error:
            raise self._failure(request, error) from error

    def _failure(self, request: Request, error: Exception) -> TransportError | AmbiguousWriteError:
        if isinstance(error, aiohttp.ClientConnectorCertificateError) or (
            isinstance(error, UnreachableError) and error.is_certificate_error
        ):
            self._auth.invalidate()  # the CA of the cluster and the file may have been rotated
        call = f"{request.method} {request.path} at {_without_password(self.config.server)} ({self.config.origin})"
        if isinstance(error, _NOT_SENT_ERRORS):
            return TransportError(f"{call} could not be sent: {_reason(error)}")
        if request.is_write:
            return AmbiguousWriteError(f"{call} was sent and its response was lost: {_reason(error)}")
        return TransportError(f"{call} got no response: {_reason(error)}")


async def _at_most_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating a PUT or DELETE on a new connection.

    The repetition could fail with 409 or 404 because the first request succeeded, and it would not check `may_write`.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _ResponseLostError(str(error)) from error


def _without_password(server: str) -> str:
    url = urlsplit(server)
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _reason(error: Exception) -> str:
    """The cause of the error, and what to check."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return dns_failure_message(error.host, error.os_error)
        case aiohttp.ClientConnectorCertificateError():
            return certificate_failure_message(error)
        case aiohttp.ClientConnectorError():
            # str(error) would also contain the repr of the TLS context.
            return connection_failure_message(error.host, error.port, error.os_error)
        case aiohttp.ConnectionTimeoutError():
            return CONNECT_TIMEOUT_MESSAGE
        case TimeoutError():
            return "no response in time"
        case _:
            return str(error) or type(error).__name__


def _streamable(body: bytes | None) -> bytes | io.BytesIO | None:
    # aiohttp writes bytes in one piece, and warns about it above 1 MiB.
    return io.BytesIO(body) if body is not None and len(body) > _MAX_BODY_BYTES_IN_ONE_WRITE else body


@functools.lru_cache(maxsize=256)
def _url(server: str, path: str, query: tuple[tuple[str, str], ...]) -> URL:
    # Cached, because parsing a URL is a considerable part of the cost of a request, and creates use few URLs.
    return URL(f"{server}{path}{'?' + urlencode(query, quote_via=quote) if query else ''}", encoded=True)
