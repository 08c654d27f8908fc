"""The in-process front: a `Transport` that calls the server directly.

No sockets and no threads, so the same program takes the same steps every time, on a virtual clock too. What the wire
adds is kept: an answer takes at least one turn of the loop, time-outs strike, and a lost answer to a write is ambiguous.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, closing
from dlop.embedded.apiserver.server import ApiServer
from dlop.kube.errors import AmbiguousWriteError, KubeError, TransportError
from dlop.kube.transport import Request, Response, StreamResponse


class InProcessTransport:
    """Sends requests to an `ApiServer` in the same event loop."""

    def __init__(self, server: ApiServer, *, token: str | None = None) -> None:
        """By default requests bear the server's own token."""
        self._server = server
        self._authorization = f"Bearer {server.token if token is None else token}"

    async def send(self, request: Request, *, timeout_seconds: float) -> Response:
        """Send a request and read the whole answer."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(0)
                answer = await self._server.handle(self._authorized(request))
                return await _whole(answer)
        except TimeoutError:
            raise _lost(request, f"no answer within {timeout_seconds} s") from None
        except ConnectionDroppedError:
            raise _lost(request, "the connection was closed") from None

    @asynccontextmanager
    async def stream(self, request: Request, *, idle_timeout_seconds: float) -> AsyncIterator[StreamResponse]:
        """Open a request whose answer is read piece by piece."""
        await asyncio.sleep(0)
        try:
            async with asyncio.timeout(idle_timeout_seconds):
                answer = await self._server.handle(self._authorized(request))
        except TimeoutError:
            raise _lost(request, f"no answer within {idle_timeout_seconds} s") from None
        except ConnectionDroppedError:
            raise _lost(request, "the connection was closed") from None
        async with aclosing(_pieces(answer, request, idle_timeout_seconds)) as pieces:
            yield StreamResponse(answer.status, answer.headers, pieces)

    async def refresh_credentials(self) -> str:
        """Nothing to do: the token does not change."""
        return "the embedded API server"

    async def close(self) -> None:
        """Nothing to do: there are no connections."""

    def _authorized(self, request: Request) -> Request:
        headers = {"authorization": self._authorization, **request.headers}
        return Request(request.method, request.path, request.query, headers, request.body)


async def _whole(answer: Response | StreamResponse) -> Response:
    if isinstance(answer, Response):
        return answer
    async with closing(answer.chunks) as pieces:
        return Response(answer.status, answer.headers, b"".join([piece async for piece in pieces]))


async def _pieces(answer: Response | StreamResponse, request: Request, idle_timeout_seconds: float) -> AsyncGenerator[bytes, None]:
    if isinstance(answer, Response):
        yield answer.body
        return
    async with closing(answer.chunks) as chunks:
        while True:
            try:
                async with asyncio.timeout(idle_timeout_seconds):
                    piece = await anext(chunks, None)
            except TimeoutError:
                raise TransportError(f"the stream of {request.path} was silent for {idle_timeout_seconds} s") from None
            except ConnectionDroppedError:
                raise TransportError(f"the stream of {request.path} broke") from None
            if piece is None:
                return
            yield piece


def _lost(request: Request, why: str) -> KubeError:
    message = f"{request.method} {request.path}: {why}"
    return AmbiguousWriteError(message) if request.is_write else TransportError(message)
