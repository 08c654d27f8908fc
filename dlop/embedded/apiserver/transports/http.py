"""HTTP transport on loopback, for `kubectl` and other processes.

It uses aiohttp's low-level server without a router, because the API server parses paths itself.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from dataclasses import dataclass, field

from aiohttp import web
from yarl import URL

from dlop.embedded.apiserver.request_decoding import check_size
from dlop.embedded.apiserver.responses import error_response
from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, closing
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.transports.websockets import is_websocket_upgrade, offered_protocols, relay
from dlop.embedded.certificates import Certificates
from dlop.embedded.connections import abort_connections, open_transports
from dlop.kube.errors import StatusError
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.kube.types import JsonObject

HOST = "127.0.0.1"
# How long `close` waits for pending responses.
_SHUTDOWN_SECONDS = 5.0
_HEADERS = ("accept", "authorization", "content-type")


@dataclass(slots=True, kw_only=True)
class HttpServer:
    """A running HTTP server."""

    host: str
    port: int
    token: str
    ca_pem: str | None
    """CA certificate for clients; None without TLS."""
    _api_server: ApiServer = field(repr=False)
    _web_server: web.Server = field(repr=False)
    _listener: asyncio.Server = field(repr=False)

    @property
    def url(self) -> str:
        return f"{'http' if self.ca_pem is None else 'https'}://{self.host}:{self.port}"

    def kubeconfig(self) -> JsonObject:
        """A kubeconfig for this server, as plain data."""
        cluster: JsonObject = {"server": self.url}
        if self.ca_pem is not None:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_pem.encode()).decode()
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "dlop", "cluster": cluster}],
            "users": [{"name": "dlop", "user": {"token": self.token}}],
            "contexts": [{"name": "dlop", "context": {"cluster": "dlop", "user": "dlop", "namespace": "default"}}],
            "current-context": "dlop",
        }

    async def close(self) -> None:
        """Stop accepting requests, end the watches normally, and wait for pending responses."""
        self._listener.close()
        self._api_server.end_watches()
        transports = open_transports(self._web_server)
        self._web_server.pre_shutdown()  # closes idle connections now and others after their response
        await self._web_server.shutdown(_SHUTDOWN_SECONDS)
        await abort_connections(self._listener, transports)
        await self._listener.wait_closed()


async def serve(
    server: ApiServer, *, certificates: Certificates | None, port: int = 0, listening: socket.socket | None = None
) -> HttpServer:
    """Serve on loopback, or on a listening socket. Uses TLS if there are certificates; port 0 means a free port."""
    web_server = web.Server(_Handler(server).handle, handler_cancellation=True, access_log=None)
    context: ssl.SSLContext | None = certificates.context if certificates else None
    address = {"host": HOST, "port": port} if listening is None else {"sock": listening}
    listener = await asyncio.get_running_loop().create_server(web_server, **address, ssl=context, backlog=1024)
    host, bound_port = listener.sockets[0].getsockname()
    return HttpServer(
        host=host,
        port=bound_port,
        token=server.token,
        ca_pem=certificates.ca_pem if certificates else None,
        _api_server=server,
        _web_server=web_server,
        _listener=listener,
    )


class _Handler:
    """Converts aiohttp requests and responses."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if is_websocket_upgrade(request):
                return await self._relay_websocket(request)
            try:
                body = await _read_body(request)
            except StatusError as error:
                return _to_aiohttp(error_response(error), close=True)
            response = await self._server.handle(_from_aiohttp(request, body))
            if isinstance(response, Response):
                return _to_aiohttp(response)
            return await _stream(request, response)
        except ConnectionDroppedError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    async def _relay_websocket(self, request: web.BaseRequest) -> web.StreamResponse:
        result = await self._server.open_socket(_from_aiohttp(request, None), offered_protocols(request))
        return _to_aiohttp(result) if isinstance(result, Response) else await relay(request, result)


async def _read_body(request: web.BaseRequest) -> bytes | None:
    if not request.can_read_body:
        return None
    if request.content_length is not None:
        check_size(request.content_length)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        check_size(size)
    return b"".join(chunks)


def _from_aiohttp(request: web.BaseRequest, body: bytes | None) -> Request:
    url: URL = request.rel_url
    headers = {name: value for name in _HEADERS if (value := request.headers.get(name)) is not None}
    return Request(request.method, url.raw_path, tuple(url.query.items()), headers, body)


def _to_aiohttp(response: Response, *, close: bool = False) -> web.Response:
    result = web.Response(status=response.status, body=response.body, headers=response.headers)
    if close:
        # The rest of a request body that is too large is not read, so the connection cannot be reused.
        result.force_close()
    return result


async def _stream(request: web.BaseRequest, response: StreamResponse) -> web.StreamResponse:
    result = web.StreamResponse(status=response.status, headers=response.headers)
    await result.prepare(request)
    try:
        async with closing(response.chunks) as chunks:
            async for chunk in chunks:
                await result.write(chunk)
        await result.write_eof()
    except ConnectionResetError:
        pass  # the client closed the connection
    return result
