"""The API server: authentication, authorization, fault injection and dispatch of requests.

The in-process and the HTTP transport both call `ApiServer.handle`. Reads and writes run without awaiting, so they are
atomic; only injected faults, watches and calls to kubelets await. An unexpected exception is logged and becomes a 500.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

import structlog
from aiohttp import ClientWebSocketResponse

from dlop.embedded.apiserver import authorization
from dlop.embedded.apiserver.api_errors import bad_request, internal_error
from dlop.embedded.apiserver.authentication import Authenticator
from dlop.embedded.apiserver.dispatch import RequestDispatcher
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.apiserver.kubelet_proxy.kubelet_client import KubeletClient
from dlop.embedded.apiserver.kubelet_proxy.pod_streams import PodStreams
from dlop.embedded.apiserver.request_info import RequestInfo, UnknownPathError, Verb, parse_request
from dlop.embedded.apiserver.responses import JSON_HEADERS, TEXT_HEADERS, error_response
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, Watch
from dlop.embedded.apiserver.views import discovery, openapi
from dlop.kube.errors import StatusError
from dlop.kube.transport import Request, Response, StreamResponse

log = structlog.get_logger(__name__)

HandlerResult = TypeVar("HandlerResult")


class ApiServer:
    def __init__(self, storage: ResourceStorage, faults: Faults, *, token: str, kubelets: KubeletClient | None = None) -> None:
        """`token` is the bearer token of the administrator. Service accounts use tokens of their own; a few paths need no token."""
        self.token = token
        self.kubelets = KubeletClient() if kubelets is None else kubelets
        self._pod_streams = PodStreams(storage, self.kubelets)
        self.faults = faults
        self.storage = storage
        self._authenticator = Authenticator(storage, admin_token=token)
        self._dispatcher = RequestDispatcher(storage, self._authenticator)
        self._watches: set[Watch] = set()

    async def handle(self, request: Request) -> Response | StreamResponse:
        """Handle a request. Errors become responses.

        Raises:
            ConnectionDroppedError: an injected fault drops the connection.
        """
        return await self._handle_safely(request, self._dispatch)

    async def open_socket(self, request: Request, protocols: Sequence[str]) -> ClientWebSocketResponse | Response:
        """Open the WebSocket to the kubelet for a request, or return the error response.

        Raises:
            ConnectionDroppedError: an injected fault drops the connection.
        """

        async def connect(info: RequestInfo, request: Request) -> ClientWebSocketResponse | Response:
            if not PodStreams.handles(info):
                raise bad_request("Upgrade request not allowed")
            return await self.kubelets.open_socket(self._pod_streams.location(info, request), protocols)

        return await self._handle_safely(request, connect)

    async def _handle_safely(
        self, request: Request, handler: Callable[[RequestInfo, Request], Awaitable[HandlerResult]]
    ) -> HandlerResult | Response:
        """Authenticate, authorize and handle a request. Errors become responses."""
        try:
            user = self._authenticator.authenticate(request.headers.get("authorization", ""))
            authorization.check(self.storage.store, user, request)
            info = parse_request(request, self.storage.registry, user=user)
            await self.faults.before(info)
            result = await handler(info, request)
            self.faults.after(info)
        except StatusError as error:
            return error_response(error)
        except UnknownPathError:
            return self._non_resource_response(request)
        except ConnectionDroppedError:
            raise
        except Exception as error:
            log.exception("unexpected error in request handler", method=request.method, path=request.path)
            return error_response(internal_error(f"{error.__class__.__name__}: {error}"))
        return result

    def end_watches(self) -> None:
        """End all watches normally, as on server shutdown."""
        for watch in list(self._watches):
            watch.end()

    async def _dispatch(self, info: RequestInfo, request: Request) -> Response | StreamResponse:
        if info.target.subresource and PodStreams.handles(info):
            return await self._pod_streams.handle(info, request)
        if info.verb is not Verb.WATCH:
            return self._dispatcher.handle(info, request)
        watch = self._dispatcher.watch(info, request)
        return StreamResponse(200, JSON_HEADERS, self._run(watch))

    async def _run(self, watch: Watch) -> AsyncGenerator[bytes, None]:
        self._watches.add(watch)
        self.faults.watch_opened(watch)
        try:
            async with aclosing(watch.lines()) as chunks:
                async for lines in chunks:
                    yield lines
        finally:
            self._watches.discard(watch)
            self.faults.watch_closed(watch)

    def _non_resource_response(self, request: Request) -> Response:
        """The response of a path that is not a resource: health, version, discovery, OpenAPI, or 404."""
        try:
            return self._document(request) or Response(404, TEXT_HEADERS, b"404 page not found\n")
        except StatusError as error:
            return error_response(error)
        except Exception as error:
            log.exception("unexpected error in non-resource handler", path=request.path)
            return error_response(internal_error(f"{error.__class__.__name__}: {error}"))

    def _document(self, request: Request) -> Response | None:
        path = request.path.rstrip("/")
        if request.method not in ("GET", "HEAD"):
            return None
        if path in authorization.HEALTH_PATHS or path.endswith("/ping"):
            return Response(200, TEXT_HEADERS, b"ok")
        accept = request.headers.get("accept", "")
        return discovery.respond(path, accept, self.storage.registry) or openapi.respond(path, accept, self.storage.registry)
