"""In-process transport: a `Transport` that calls the API server directly.

Without sockets and threads, runs are reproducible, also on a virtual clock. As over the network, a response takes at
least one iteration of the event loop, timeouts apply, and a lost response to a write is ambiguous.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, closing
from dlop.embedded.apiserver.server import ApiServer
from dlop.kube.errors import AmbiguousWriteError, KubeError, TransportError
from dlop.kube.transport import Request, Response, StreamResponse


class InProcessTransport:
    """Sends requests to an `ApiServer` in the same event loop."""

    def __init__(self, server: ApiServer, *, token: str, renew_token: Callable[[], Awaitable[str]] | None = None) -> None:
        """An empty `token` means anonymous requests. `renew_token` returns a new one after the server has rejected it."""
        self._server = server
        self._token = token
        self._renew_token = renew_token

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(0)
                response = await self._server.handle(self._authorized(request))
                return await _read_all(response)
        except TimeoutError:
            raise _connection_error(request, f"no response within {timeout_seconds} s") from None
        except ConnectionDroppedError:
            raise _connection_error(request, "the connection was closed") from None

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(idle_timeout_seconds):
                response = await self._server.handle(self._authorized(request))
        except TimeoutError:
            raise _connection_error(request, f"no response within {idle_timeout_seconds} s") from None
        except ConnectionDroppedError:
            raise _connection_error(request, "the connection was closed") from None
        async with aclosing(_chunks(response, request, idle_timeout_seconds)) as chunks:
            yield StreamResponse(response.status, response.headers, chunks)

    async def refresh_credentials(self) -> str:
        if self._renew_token is not None:
            self._token = await self._renew_token()
        return "the embedded API server"

    async def close(self) -> None:
        """Nothing to do, because there are no connections."""

    def _authorized(self, request: Request) -> Request:
        headers = {"authorization": f"Bearer {self._token}", **request.headers}
        return Request(request.method, request.path, request.query, headers, request.body)


async def _read_all(response: Response | StreamResponse) -> Response:
    if isinstance(response, Response):
        return response
    async with closing(response.chunks) as chunks:
        return Response(response.status, response.headers, b"".join([chunk async for chunk in chunks]))


async def _chunks(response: Response | StreamResponse, request: Request, idle_timeout_seconds: float) -> AsyncGenerator[bytes, None]:
    if isinstance(response, Response):
        yield response.body
        return
    async with closing(response.chunks) as chunks:
        while True:
            try:
                async with asyncio.timeout(idle_timeout_seconds):
                    chunk = await anext(chunks, None)
            except TimeoutError:
                raise TransportError(f"no data from {request.path} for {idle_timeout_seconds} s") from None
            except ConnectionDroppedError:
                raise TransportError(f"the connection of {request.path} was closed") from None
            if chunk is None:
                return
            yield chunk


def _connection_error(request: Request, reason: str) -> KubeError:
    message = f"{request.method} {request.path}: {reason}"
    return AmbiguousWriteError(message) if request.is_write else TransportError(message)
