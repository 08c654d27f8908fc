"""The kubelet's HTTPS server on a loopback port, as API servers call it.

Clients need the bearer token or a certificate of the configured CA. Paths, parameters, status codes and messages are those of the
kubelet.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import socket
import time
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import web

from dlop.embedded.certificates import generate_certificates
from dlop.embedded.connections import abort_connections, open_transports
from dlop.embedded.kubelet.server.backend import (
    ContainerNotFoundError,
    ContainerRef,
    ContainerUnavailableError,
    PodBackend,
    PodNotFoundError,
)
from dlop.embedded.kubelet.server.exec import RequestedStreams, serve_attach, serve_exec
from dlop.embedded.kubelet.server.log_query import log_query
from dlop.embedded.kubelet.server.port_forward import TUNNEL, PodPorts, SpdyTunnel, forward_over_channels
from dlop.embedded.kubelet.server.websocket_channels import V4, V5, ChannelSocket, accept_websocket, offered_protocols

HOST = "127.0.0.1"

DECLARED_FEATURES = ("ExtendWebSocketsToKubelet",)
"""For `status.declaredFeatures` of the node. An API server then passes WebSockets through and does not need SPDY."""

_SHUTDOWN_SECONDS = 2.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class KubeletServer:
    """An async context manager that serves."""

    def __init__(
        self, backend: PodBackend, *, token: str, client_ca_pem: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` returns seconds since the epoch."""
        self._backend = backend
        self._token = token
        self._clock = clock
        self._certificates = generate_certificates(now_seconds=time.time(), name="dlop-kubelet", client_ca_pem=client_ca_pem)
        self._runner = web.AppRunner(self._application(), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self._request_tasks: set[asyncio.Task[object]] = set()
        self._listener: asyncio.Server | None = None
        self.port = 0

    @property
    def ca_pem(self) -> str:
        """The CA certificate that clients must trust."""
        return self._certificates.ca_pem

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        listener = socket.create_server((HOST, 0))
        self.port = listener.getsockname()[1]
        server = self._runner.server
        if server is None:
            raise RuntimeError("the runner has no server")
        self._listener = await asyncio.get_running_loop().create_server(server, sock=listener, ssl=self._certificates.context)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if self._listener is not None:
            self._listener.close()
        transports = open_transports(self._runner.server) if self._runner.server is not None else []
        for task in self._request_tasks:
            task.cancel()
        await self._runner.cleanup()
        await abort_connections(self._listener, transports)

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._authenticate])
        container = "/{namespace}/{pod}/{container}"
        application.router.add_get("/healthz", _handle_healthz)
        application.router.add_get("/containerLogs" + container, self._handle_logs)
        for method in ("GET", "POST"):
            application.router.add_route(method, "/exec" + container, self._handle_exec)
            application.router.add_route(method, "/attach" + container, self._handle_attach)
            application.router.add_route(method, "/portForward/{namespace}/{pod}", self._handle_port_forward)
        return application

    @web.middleware
    async def _authenticate(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not self._is_authenticated(request):
            return web.Response(status=401, text="Unauthorized")
        task = asyncio.current_task()
        if task is not None:
            self._request_tasks.add(task)
        try:
            return await handler(request)
        except (PodNotFoundError, ContainerNotFoundError) as error:
            return web.Response(status=404, text=str(error))
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        except ContainerUnavailableError as error:
            return web.Response(status=500, text=str(error))
        finally:
            if task is not None:
                self._request_tasks.discard(task)

    def _is_authenticated(self, request: web.Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token.encode()):
            return True
        return request.transport is not None and bool(request.transport.get_extra_info("peercert"))

    # --- logs --------------------------------------------------------------------------------------------------------

    async def _handle_logs(self, request: web.Request) -> web.StreamResponse:
        query = log_query(request.query, now_seconds=self._clock())
        try:
            log = self._backend.log(_container_ref(request), previous=request.query.get("previous") == "true")
        except ContainerUnavailableError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"content-type": "text/plain"})
        # Send the headers now, because the first line may take long.
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            async with contextlib.aclosing(log.read(query)) as chunks:
                async for chunk in chunks:
                    await response.write(chunk)
            await response.write_eof()
        return response

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _handle_exec(self, request: web.Request) -> web.StreamResponse:
        container = _container_ref(request)
        streams = RequestedStreams.from_query(request.query)
        self._check_stream(request, container.container, V5, V4)
        channels = await ChannelSocket.accept(request, V5, V4)
        await serve_exec(channels, self._backend, container, request.query.getall("command", []), streams)
        return channels.socket

    async def _handle_attach(self, request: web.Request) -> web.StreamResponse:
        container = _container_ref(request)
        streams = RequestedStreams.from_query(request.query)
        self._check_stream(request, container.container, V5, V4)
        log = self._backend.log(container, previous=False)
        channels = await ChannelSocket.accept(request, V5, V4)
        await serve_attach(channels, log, streams)
        return channels.socket

    async def _handle_port_forward(self, request: web.Request) -> web.StreamResponse:
        self._check_stream(request, None, TUNNEL, V4)
        pod_ports = PodPorts(self._backend, request.match_info["namespace"], request.match_info["pod"])
        if TUNNEL in offered_protocols(request):
            tunnel = await accept_websocket(request, TUNNEL)
            await SpdyTunnel(tunnel, pod_ports).run()
            return tunnel
        ports = [int(port) for port in request.query.get("port", "").split(",") if port.isdecimal()]
        if not ports:
            raise ValueError('query parameter "port" is required')
        channels = await ChannelSocket.accept(request, V4)
        await forward_over_channels(channels, pod_ports, ports)
        return channels.socket

    def _check_stream(self, request: web.Request, container: str | None, *protocols: str) -> None:
        """Check that a stream can be opened."""
        self._backend.check_running(request.match_info["namespace"], request.match_info["pod"], container)
        if request.headers.get("upgrade", "").lower() != "websocket":
            raise ValueError("Upgrade request required")
        if not set(protocols) & set(offered_protocols(request)):
            raise ValueError(f"unable to upgrade: supported protocols: {', '.join(protocols)}")


async def _handle_healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _container_ref(request: web.Request) -> ContainerRef:
    parameters = request.match_info
    return ContainerRef(parameters["namespace"], parameters["pod"], parameters["container"])
