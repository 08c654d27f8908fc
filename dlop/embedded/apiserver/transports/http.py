"""The HTTP front: the server on a port of the loopback, for `kubectl`, other processes and load.

It sits directly on aiohttp's low-level server, without a router: the API server reads paths itself. Closing it ends
every watch properly first, so that clients see an end and not a break.
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
from dlop.embedded.apiserver.responses import refusal
from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, closing
from dlop.embedded.apiserver.server import ApiServer
from dlop.embedded.apiserver.transports.websockets import offered_protocols, relay, wants_socket
from dlop.embedded.certificates import Certificates
from dlop.kube.errors import StatusError
from dlop.kube.transport import Request, Response, StreamResponse
from dlop.kube.types import JsonObject

HOST = "127.0.0.1"
# How long a close waits for answers that are under way.
_SHUTDOWN_SECONDS = 5.0
_HEADERS = ("accept", "authorization", "content-type")


@dataclass(slots=True, kw_only=True)
class HttpServer:
    """A running HTTP front."""

    host: str
    port: int
    token: str
    ca_pem: str | None
    """What clients have to trust; None without TLS."""
    _server: ApiServer = field(repr=False)
    _site: web.Server = field(repr=False)
    _listener: asyncio.Server = field(repr=False)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'http' if self.ca_pem is None else 'https'}://{self.host}:{self.port}"

    def kubeconfig(self) -> JsonObject:
        """A kubeconfig for this front, as plain data."""
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
        """Take no more requests, end the watches, and finish what is under way."""
        self._listener.close()
        self._server.end_watches()
        self._site.pre_shutdown()  # idle connections are closed now, and busy ones after their answer
        await self._site.shutdown(_SHUTDOWN_SECONDS)
        await self._listener.wait_closed()


async def serve(
    server: ApiServer, *, certificates: Certificates | None, port: int = 0, listening: socket.socket | None = None
) -> HttpServer:
    """Serve on the loopback, with TLS when there are certificates; port 0 takes a free one. Or on a socket that listens already."""
    site = web.Server(_Handler(server).handle, handler_cancellation=True, access_log=None)
    context: ssl.SSLContext | None = certificates.context if certificates else None
    place = {"host": HOST, "port": port} if listening is None else {"sock": listening}
    listener = await asyncio.get_running_loop().create_server(site, **place, ssl=context, backlog=1024)
    host, bound = listener.sockets[0].getsockname()
    return HttpServer(
        host=host,
        port=bound,
        token=server.token,
        ca_pem=certificates.authority_pem if certificates else None,
        _server=server,
        _site=site,
        _listener=listener,
    )


class _Handler:
    """Turns aiohttp's requests into the server's, and its answers back."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            if wants_socket(request):
                return await self._socket(request)
            try:
                body = await _body(request)
            except StatusError as error:
                return _response(refusal(error), close=True)
            answer = await self._server.handle(_request(request, body))
            if isinstance(answer, Response):
                return _response(answer)
            return await _stream(request, answer)
        except ConnectionDroppedError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()

    async def _socket(self, request: web.BaseRequest) -> web.StreamResponse:
        opened = await self._server.open_socket(_request(request, None), offered_protocols(request))
        return _response(opened) if isinstance(opened, Response) else await relay(request, opened)


async def _body(request: web.BaseRequest) -> bytes | None:
    if not request.can_read_body:
        return None
    if request.content_length is not None:
        check_size(request.content_length)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        check_size(size)
    return b"".join(pieces)


def _request(request: web.BaseRequest, body: bytes | None) -> Request:
    url: URL = request.rel_url
    headers = {name: value for name in _HEADERS if (value := request.headers.get(name)) is not None}
    return Request(request.method, url.raw_path, tuple(url.query.items()), headers, body)


def _response(answer: Response, *, close: bool = False) -> web.Response:
    response = web.Response(status=answer.status, body=answer.body, headers=answer.headers)
    if close:
        # The rest of a body that is too large is not read, so nothing else can be read from this connection.
        response.force_close()
    return response


async def _stream(request: web.BaseRequest, answer: StreamResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=answer.headers)
    await response.prepare(request)
    try:
        async with closing(answer.chunks) as pieces:
            async for piece in pieces:
                await response.write(piece)
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client has gone: nobody is left to tell
    return response
