"""The API server: a request in, an answer out, whatever the request.

Both fronts, in-process and HTTP, come through `ApiServer.handle`. Everything that reads or changes objects happens
there in one go without awaiting; only injected faults, watches and calls to kubelets wait. No request can end the server: what it cannot
make sense of is refused, and a bug becomes a 500 and a line in the log.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeVar

import structlog
from aiohttp import ClientWebSocketResponse

from dlop.embedded.apiserver import authorization
from dlop.embedded.apiserver.api_errors import bad_request, failure, internal_error
from dlop.embedded.apiserver.authentication import Account, Tokens
from dlop.embedded.apiserver.dispatch import Handlers
from dlop.embedded.apiserver.faults import Faults
from dlop.embedded.apiserver.kubelet_proxy.kubelet_client import Kubelets
from dlop.embedded.apiserver.kubelet_proxy.pod_streams import PodStreams
from dlop.embedded.apiserver.request_info import RequestInfo, UnknownPathError, Verb, parse_request
from dlop.embedded.apiserver.responses import JSON_HEADERS, TEXT_HEADERS, refusal
from dlop.embedded.apiserver.rest.storage import ResourceStorage
from dlop.embedded.apiserver.rest.watch import ConnectionDroppedError, Watch
from dlop.embedded.apiserver.views import discovery, openapi
from dlop.kube.errors import ForbiddenError, StatusError, UnauthorizedError
from dlop.kube.transport import Request, Response, StreamResponse

log = structlog.get_logger(__name__)

_HEALTH = ("/healthz", "/livez", "/readyz")
# What the real server shows to everybody.
_OPEN = (*_HEALTH, "/version")

Answer = TypeVar("Answer")


class ApiServer:
    """Answers requests over one store."""

    def __init__(self, verbs: ResourceStorage, faults: Faults, *, token: str, kubelets: Kubelets | None = None) -> None:
        """Requests must bear the `token`, or that of a service account which may do what is asked.

        A few pages are open to everybody.
        """
        self.token = token
        self.kubelets = Kubelets() if kubelets is None else kubelets
        self._pod_streams = PodStreams(verbs, self.kubelets)
        self.faults = faults
        self.verbs = verbs
        self._tokens = Tokens(verbs, secret=token)
        self._handlers = Handlers(verbs, self._tokens)
        self._authorization = f"Bearer {token}"
        self._watches: set[Watch] = set()

    async def handle(self, request: Request) -> Response | StreamResponse:
        """Answer a request.

        Raises:
            ConnectionDroppedError: when a fault wants the connection to break instead.
        """
        return await self._guarded(request, self._answer)

    async def open_socket(self, request: Request, protocols: Sequence[str]) -> ClientWebSocketResponse | Response:
        """Open the WebSocket at a kubelet that a request asks for, or answer why not.

        Raises:
            ConnectionDroppedError: when a fault wants the connection to break instead.
        """

        async def opened(asked: RequestInfo, request: Request) -> ClientWebSocketResponse | Response:
            if not PodStreams.concern(asked):
                raise bad_request("Upgrade request not allowed")
            return await self.kubelets.open_socket(self._pod_streams.location(asked, request), protocols)

        return await self._guarded(request, opened)

    async def _guarded(self, request: Request, answer: Callable[[RequestInfo, Request], Awaitable[Answer]]) -> Answer | Response:
        """Answer a request that may be refused, fail or be unknown."""
        try:
            is_administrator = request.headers.get("authorization") == self._authorization
            account = None if is_administrator else self._authenticate(request)
            asked = parse_request(request, self.verbs.registry)
            if account is not None:
                authorization.check(self.verbs.store, account, asked)
            await self.faults.before(asked)
            answered = await answer(asked, request)
            self.faults.after(asked)
        except StatusError as error:
            return refusal(error)
        except UnknownPathError:
            return self._page(request)
        except ConnectionDroppedError:
            raise
        except Exception as error:
            log.exception("a request could not be answered", method=request.method, path=request.path)
            return refusal(internal_error(f"{error.__class__.__name__}: {error}"))
        return answered

    def end_watches(self) -> None:
        """End every watch properly, as a server does that is shut down."""
        for watch in list(self._watches):
            watch.end()

    async def _answer(self, asked: RequestInfo, request: Request) -> Response | StreamResponse:
        if asked.target.subresource and PodStreams.concern(asked):
            return await self._pod_streams.answer(asked, request)
        if asked.verb is not Verb.WATCH:
            return self._handlers.answer(asked, request)
        watch = self._handlers.watch(asked, request)
        return StreamResponse(200, JSON_HEADERS, self._run(watch))

    async def _run(self, watch: Watch) -> AsyncGenerator[bytes, None]:
        self._watches.add(watch)
        self.faults.opened(watch)
        try:
            async with aclosing(watch.lines()) as pieces:
                async for lines in pieces:
                    yield lines
        finally:
            self._watches.discard(watch)
            self.faults.closed(watch)

    def _authenticate(self, request: Request) -> Account | None:
        """Whose rights count; None: nobody's, for the administrator asks, or everybody may see it."""
        given = request.headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token.encode()):
            return None
        if scheme.lower() == "bearer":
            account = self._tokens.bearer(token.strip())
            if account is None:
                raise failure(UnauthorizedError, "Unauthorized")
            return account
        if not request.path.startswith(_OPEN):
            message = f'forbidden: User "system:anonymous" cannot {request.method.lower()} path "{request.path}"'
            raise failure(ForbiddenError, message, {})
        return None

    def _page(self, request: Request) -> Response:
        """A page that is no resource."""
        try:
            return self._known_page(request) or Response(404, TEXT_HEADERS, b"404 page not found\n")
        except StatusError as error:
            return refusal(error)
        except Exception as error:
            log.exception("a page could not be made", path=request.path)
            return refusal(internal_error(f"{error.__class__.__name__}: {error}"))

    def _known_page(self, request: Request) -> Response | None:
        path = request.path.rstrip("/")
        if request.method not in ("GET", "HEAD"):
            return None
        if path in _HEALTH or path.endswith("/ping"):
            return Response(200, TEXT_HEADERS, b"ok")
        accept = request.headers.get("accept", "")
        return discovery.answer(path, accept, self.verbs.registry) or openapi.answer(path, accept, self.verbs.registry)
