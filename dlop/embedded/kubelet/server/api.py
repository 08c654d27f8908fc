"""The kubelet's HTTPS API on a port of the loopback, as API servers call it.

Whoever calls must bear the token, or show a certificate of the authority that was named. The paths, parameters, codes and
sentences are those of the kubelet; the API server adds what it knows itself.
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

from dlop.embedded.certificates import make_certificates
from dlop.embedded.kubelet.server.backend import ContainerName, NoSuchContainerError, NoSuchPodError, NotAvailableError, PodsOfNode
from dlop.embedded.kubelet.server.exec import Streams, attach, run_command
from dlop.embedded.kubelet.server.log_query import log_query
from dlop.embedded.kubelet.server.port_forward import TUNNEL, Ports, Tunnel, forward_by_channels
from dlop.embedded.kubelet.server.websocket_channels import V4, V5, Channels, accept_socket, offered_protocols

HOST = "127.0.0.1"

DECLARED_FEATURES = ("ExtendWebSocketsToKubelet",)
"""For `status.declaredFeatures` of the node: an API server then hands on WebSockets as they are, and needs no SPDY."""

_SHUTDOWN_SECONDS = 2.0

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class KubeletApi:
    """Serves the API for as long as the context lasts."""

    def __init__(
        self, pods: PodsOfNode, *, token: str, client_authority_pem: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """`clock` gives seconds since the epoch."""
        self._pods = pods
        self._token = token
        self._clock = clock
        self._certificates = make_certificates(now_seconds=time.time(), name="dlop-kubelet", client_authority_pem=client_authority_pem)
        self._runner = web.AppRunner(self._application(), handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS)
        self._busy: set[asyncio.Task[object]] = set()
        self.port = 0

    @property
    def authority_pem(self) -> str:
        """What clients have to trust."""
        return self._certificates.authority_pem

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        listener = socket.create_server((HOST, 0))
        self.port = listener.getsockname()[1]
        await web.SockSite(self._runner, listener, ssl_context=self._certificates.context).start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        for task in self._busy:
            task.cancel()
        await self._runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application(middlewares=[self._guard])
        container = "/{namespace}/{pod}/{container}"
        application.router.add_get("/healthz", _healthy)
        application.router.add_get("/containerLogs" + container, self._logs)
        for method in ("GET", "POST"):
            application.router.add_route(method, "/exec" + container, self._exec)
            application.router.add_route(method, "/attach" + container, self._attach)
            application.router.add_route(method, "/portForward/{namespace}/{pod}", self._forward)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        if not self._knows(request):
            return web.Response(status=401, text="Unauthorized")
        task = asyncio.current_task()
        if task is not None:
            self._busy.add(task)
        try:
            return await handler(request)
        except (NoSuchPodError, NoSuchContainerError) as error:
            return web.Response(status=404, text=str(error))
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        except NotAvailableError as error:
            return web.Response(status=500, text=str(error))
        finally:
            if task is not None:
                self._busy.discard(task)

    def _knows(self, request: web.Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self._token.encode()):
            return True
        return request.transport is not None and bool(request.transport.get_extra_info("peercert"))

    # --- logs --------------------------------------------------------------------------------------------------------

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        query = log_query(request.query, now_seconds=self._clock())
        try:
            log = self._pods.log(_container(request), previous=request.query.get("previous") == "true")
        except NotAvailableError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"content-type": "text/plain"})
        # The answer begins before the first line does: that may be long in coming.
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):
            async with contextlib.aclosing(log.read(query)) as pieces:
                async for piece in pieces:
                    await response.write(piece)
            await response.write_eof()
        return response

    # --- streams -----------------------------------------------------------------------------------------------------

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        name = _container(request)
        streams = Streams.asked_for(request.query)
        self._check(request, name.container, V5, V4)
        channels = await Channels.accept(request, V5, V4)
        await run_command(channels, self._pods, name, request.query.getall("command", []), streams)
        return channels.socket

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        name = _container(request)
        streams = Streams.asked_for(request.query)
        self._check(request, name.container, V5, V4)
        log = self._pods.log(name, previous=False)
        channels = await Channels.accept(request, V5, V4)
        await attach(channels, log, streams)
        return channels.socket

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        self._check(request, None, TUNNEL, V4)
        ports = Ports(self._pods, request.match_info["namespace"], request.match_info["pod"])
        if TUNNEL in offered_protocols(request):
            tunnel = await accept_socket(request, TUNNEL)
            await Tunnel(tunnel, ports).run()
            return tunnel
        numbers = [int(word) for word in request.query.get("port", "").split(",") if word.isdecimal()]
        if not numbers:
            raise ValueError('query parameter "port" is required')
        channels = await Channels.accept(request, V4)
        await forward_by_channels(channels, ports, numbers)
        return channels.socket

    def _check(self, request: web.Request, container: str | None, *protocols: str) -> None:
        """Whether a stream can be opened."""
        self._pods.check(request.match_info["namespace"], request.match_info["pod"], container)
        if request.headers.get("upgrade", "").lower() != "websocket":
            raise ValueError("Upgrade request required")
        if not set(protocols) & set(offered_protocols(request)):
            raise ValueError(f"unable to upgrade: only {' and '.join(protocols)} are spoken here")


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


def _container(request: web.Request) -> ContainerName:
    found = request.match_info
    return ContainerName(found["namespace"], found["pod"], found["container"])
