"""Calls to kubelets: only to those that the server was told to trust, over TLS, with the token of each."""

from __future__ import annotations

import ssl
import weakref
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import aiohttp

from dlop.embedded.apiserver.api_errors import internal_error
from dlop.embedded.apiserver.responses import TEXT_HEADERS
from dlop.kube.errors import StatusError
from dlop.kube.transport import Response
from dlop.kube.types import JsonObject

# The first of these that a node has is where its kubelet is looked for.
_ADDRESS_TYPES = ("ExternalIP", "InternalIP", "Hostname")
_CONNECT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class _Trust:
    context: ssl.SSLContext
    token: str


@dataclass(frozen=True, slots=True)
class Location:
    """A path of a kubelet's API."""

    host: str
    port: int
    path: str
    query: Sequence[tuple[str, str]] = ()

    @property
    def url(self) -> str:
        """Without the query."""
        return f"https://{self.host}:{self.port}{self.path}"


class Kubelets:
    """The kubelets that this server may call."""

    def __init__(self) -> None:
        self._trusted: dict[tuple[str, int], _Trust] = {}
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False
        # What is open. A session that is closed leaves those who read waiting.
        self._answers = weakref.WeakSet[aiohttp.ClientResponse]()
        self._sockets = weakref.WeakSet[aiohttp.ClientWebSocketResponse]()

    def trust(self, host: str, port: int, *, authority_pem: str, token: str) -> None:
        """Trust the kubelet at an address: its certificate is from that authority, and it wants that token."""
        self._trusted[host, port] = _Trust(ssl.create_default_context(cadata=authority_pem), token)

    async def get(self, location: Location) -> aiohttp.ClientResponse:
        """Begin to read a page.

        Raises:
            ServerError: the kubelet cannot be reached.
        """
        trust = self._trust(location)
        try:
            answer = await self._opened().get(location.url, params=location.query, ssl=trust.context, headers=_bearing(trust))
        except aiohttp.ClientConnectionError as error:
            raise _unreachable(location, error) from error
        self._answers.add(answer)
        return answer

    async def open_socket(self, location: Location, protocols: Sequence[str]) -> aiohttp.ClientWebSocketResponse | Response:
        """Open a WebSocket, or tell what the kubelet has against it.

        Raises:
            ServerError: the kubelet cannot be reached.
        """
        trust = self._trust(location)
        try:
            opened = await self._opened().ws_connect(
                location.url,
                params=location.query,
                protocols=protocols,
                ssl=trust.context,
                headers=_bearing(trust),
                max_msg_size=0,
                compress=0,
            )
        except aiohttp.WSServerHandshakeError:
            return await self.refusal(location)
        except aiohttp.ClientConnectionError as error:
            raise _unreachable(location, error) from error
        self._sockets.add(opened)
        return opened

    async def refusal(self, location: Location) -> Response:
        """What the kubelet says to a request that asks for no upgrade: what is wrong, or that it should."""
        async with await self.get(location) as answer:
            return Response(answer.status, TEXT_HEADERS, await answer.read())

    async def close(self) -> None:
        """End every stream, and open no more."""
        self._is_closed = True
        for answer in list(self._answers):
            answer.close()
        for opened in list(self._sockets):
            await opened.close()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _trust(self, location: Location) -> _Trust:
        found = self._trusted.get((location.host, location.port))
        if self._is_closed:
            raise internal_error("the server is shutting down")
        if found is None:
            raise internal_error(f"the kubelet at {location.host}:{location.port} is not known to this server")
        return found

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            # Streams last for long, and each has a connection to itself. It is we who close it, when all is read: with uvloop, what
            # a slow reader has not read yet is lost when the other side closes behind its last word.
            self._session = aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0))
        return self._session


def kubelet_address(node: JsonObject) -> tuple[str, int]:
    """Where the kubelet of a node listens.

    Raises:
        ServerError: the node does not say.
    """
    status = node.get("status") or {}
    addresses = {each.get("type"): each.get("address") for each in status.get("addresses") or ()}
    port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port") or 0
    for kind in _ADDRESS_TYPES:
        if addresses.get(kind):
            return addresses[kind], int(port)
    raise internal_error(f"no preferred addresses found; known addresses: {list(addresses)}")


class Body(AsyncGenerator[bytes, None]):
    """The body of an answer, piece by piece. Closing it closes the connection, even if nothing was read."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer

    async def asend(self, value: None) -> bytes:
        """The next piece."""
        try:
            piece = await self._answer.content.readany()
        except aiohttp.ClientError:
            piece = b""  # the kubelet is gone, and that is how a log ends too
        if not piece:
            self._answer.close()
            raise StopAsyncIteration
        return piece

    async def athrow(
        self, typ: type[BaseException] | BaseException, val: BaseException | object = None, tb: TracebackType | None = None
    ) -> Any:
        """Close it: `aclose` comes this way."""
        self._answer.close()
        raise typ


def _bearing(trust: _Trust) -> Mapping[str, str]:
    return {"authorization": f"Bearer {trust.token}"}


def _unreachable(location: Location, error: aiohttp.ClientError) -> StatusError:
    return internal_error(f'Get "{location.url}": {error}')
